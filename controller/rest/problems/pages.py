"""Pages with the meaning of each kind of problem, and a table of all for the documentation.

Built from the table of problems and the docstrings of the error classes.
"""

from __future__ import annotations

import html
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from controller.rest.problems.documents import (
    CONNECTION_KINDS,
    HTTP_KINDS,
    INTERNAL,
    INVALID,
    KINDS,
    TYPE_PREFIX,
    ProblemKind,
)

#: Where the pages are served: the path of every ``type``.
PROBLEMS_PATH: Final = "/problems"

_MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        INVALID.code: "A part of the input is not allowed. `errors` lists each place: "
        "where it is, what was found there and what is allowed.",
        INTERNAL.code: "A fault in fuga. The log has details under the name `incident`.",
        "no_such_path": "The path belongs to no operation; `/docs` lists all paths.",
        "method_not_allowed": "The header `Allow` lists the methods of the path.",
        "too_slow": "The limit is 10 seconds for the header, and 30 for a body slower than 16"
        " KiB/s.",
        "head_too_large": "The limit is 100 header lines and 16 KiB.",
        "malformed": "The body is not UTF-8 or not JSON, is nested too deeply, has too many"
        " parts, or has the "
        "same name twice.",
    }
)


@dataclass(frozen=True, slots=True)
class Meaning:
    """A kind of problem and its meaning."""

    kind: ProblemKind
    said: str


def problem_meanings() -> tuple[Meaning, ...]:
    """Return the meaning of every kind of problem, sorted by status and code."""
    found: dict[str, Meaning] = {}
    for error, kind in KINDS.items():
        said = _MEANINGS.get(kind.code) or (inspect.getdoc(error) or "").partition("\n\n")[0]
        found.setdefault(kind.code, Meaning(kind, " ".join(said.split())))
    for kind in (*HTTP_KINDS.values(), *CONNECTION_KINDS.values(), INTERNAL):
        found.setdefault(kind.code, Meaning(kind, _MEANINGS.get(kind.code, kind.title + ".")))
    return tuple(sorted(found.values(), key=lambda each: (each.kind.status, each.kind.code)))


def problems_markdown() -> str:
    """Return the page of the documentation with a table of all kinds of problems."""
    lines = [
        "# Problems",
        "",
        "Every error of the API is a problem document (RFC 9457, `application/problem+json`).",
        "Programs use `code`, which does not change between versions. People read `detail`:",
        "what is wrong and what to do. `type` is",
        f"`{TYPE_PREFIX}CODE`: a name; every API serves its page at `{PROBLEMS_PATH}/CODE`.",
        "`errors` lists the errors of the input: `in` (body, query, path or header),",
        "`pointer` (a JSON pointer into the body) or `parameter`, `found` and `allowed`.",
        "",
        "`make api-docs` generates this page.",
        "",
        "| Status | Code | Title | Meaning |",
        "|---|---|---|---|",
        *(
            f"| {int(each.kind.status)} | `{each.kind.code}` | {each.kind.title} | {each.said} |"
            for each in problem_meanings()
        ),
    ]
    return "\n".join(lines) + "\n"


def problem_page(found: Meaning) -> str:
    """Return the HTML page with the meaning of a kind of problem."""
    title = f"{int(found.kind.status)} {html.escape(found.kind.code)}"
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        f"<title>{title}</title><h1>{title}</h1><p><b>{html.escape(found.kind.title)}.</b> "
        f"{html.escape(found.said).replace('`', '')}</p><p><a href='/docs'>/docs</a></p></html>"
    )
