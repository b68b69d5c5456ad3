"""Print what a section of docs/operations.md has people type, for machines that are set up by it.

`python -m scripts.guide SECTION [WITH]`: of its blocks those that contain WITH, in order. Prompts
are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.docs.markdown import split

GUIDE = Path(__file__).parents[1] / "docs" / "operations.md"


def commands(section: str, containing: str = "", text: str | None = None) -> Iterator[str]:
    """Yield the commands of each block; raise if there is none, since the guide has changed."""
    text = GUIDE.read_text("utf-8") if text is None else text
    found = [each for each in text.split("\n## ") if each.splitlines()[0] == section]
    blocks = [
        block
        for block in (split(found[0])[0] if found else [])
        if block.info in ("sh", "console") and containing in block.text
    ]
    if not blocks:
        raise SystemExit(f"docs/operations.md: {section!r} types nothing with {containing!r}")
    for block in blocks:
        if block.info == "sh":
            yield block.text
            continue
        # The lines of a here-document have no prompt.
        lines = block.text.splitlines()
        yield "\n".join(line[2:] if line[:2] in ("# ", "$ ", "> ") else line for line in lines)


if __name__ == "__main__":
    print("\n".join(commands(*sys.argv[1:])))
