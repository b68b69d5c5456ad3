"""Search small random problems for violations of the properties claimed of the mechanisms.

    python -m benchmarks.properties [properties] [trees] [--cases 60] [--write docs/mechanisms.md]

Prints Markdown: a summary, and for each property a table with what papers claim
and what was found, and the smallest counter-example of each mechanism. With
--write it goes between the markers of that document. The answer depends on the
seed and the number of cases alone.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.kit import parser
from benchmarks.properties.cases import Family
from benchmarks.properties.document import PARTS, markdown, put_into
from benchmarks.properties.search import Cell, search


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser(__doc__, cases=60, seed=1, processes=2)
    arguments.add_argument("parts", nargs="*", default=[*PARTS], metavar=" | ".join(PARTS))
    arguments.add_argument("--write", type=Path)
    given = arguments.parse_args(argv)
    for name in given.parts:
        part = PARTS[name]
        ask = functools.partial(_search, seed=given.seed, cases=given.cases)
        found = {}
        with ProcessPoolExecutor(given.processes) as pool:
            for key, cell in zip(part.searches(), pool.map(ask, part.searches()), strict=True):
                found[key] = cell
                if sys.stderr.isatty():
                    print(
                        f"\r\x1b[2K{len(found)} of {len(part.searches())}", end="", file=sys.stderr
                    )
        text = markdown(part, found, cases=given.cases, seed=given.seed)
        if given.write:
            written = put_into(given.write.read_text("utf-8"), part, text)
            given.write.write_text(written, "utf-8")
        else:
            print(text)


def _search(key: tuple[str, str, Family], *, seed: int, cases: int) -> Cell | None:
    return search(*key, seed=seed, cases=cases)


if __name__ == "__main__":
    main()
