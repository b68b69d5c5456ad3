"""What each kind of problem means: a page for its ``type``, and all of them for the docs.

Made of the one table of problems and of what the error classes say of themselves.
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
    Kind,
)

#: Where the pages are served: the path of every ``type``.
PROBLEMS_PATH: Final = "/problems"

_MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        INVALID.code: "A part of the input is outside what is allowed. `errors` lists each place: "
        "where it is, what was found there and what is allowed.",
        INTERNAL.code: "A fault of ours. `incident` is the name under which the log tells more.",
        "no_such_path": "The path belongs to no operation; `/docs` lists those that there are.",
        "method_not_allowed": "The header `Allow` lists the methods that the path has.",
        "too_slow": "A head has 10 seconds, a body that comes slower than 16 KiB a second 30.",
        "head_too_large": "A head may have 100 lines and 16 KiB.",
        "malformed": "It is not UTF-8, not JSON, nested too deeply, of too many parts, or has the "
        "same name twice.",
    }
)


@dataclass(frozen=True, slots=True)
class Meaning:
    """A kind of problem and what it means."""

    kind: Kind
    said: str


def meanings() -> tuple[Meaning, ...]:
    """Return every kind of problem, by status and code."""
    found: dict[str, Meaning] = {}
    for error, kind in KINDS.items():
        said = _MEANINGS.get(kind.code) or (inspect.getdoc(error) or "").partition("\n\n")[0]
        found.setdefault(kind.code, Meaning(kind, " ".join(said.split())))
    for kind in (*HTTP_KINDS.values(), *CONNECTION_KINDS.values(), INTERNAL):
        found.setdefault(kind.code, Meaning(kind, _MEANINGS.get(kind.code, kind.title + ".")))
    return tuple(sorted(found.values(), key=lambda each: (each.kind.status, each.kind.code)))


def markdown() -> str:
    """Return all kinds as a page of the documentation."""
    lines = [
        "# Problems",
        "",
        "Every error of the API is a problem document (RFC 9457, `application/problem+json`).",
        "Programs look at `code`; it stays as it is from version to version. People read `detail`:",
        "what was asked, what was found, what to do. `type` is",
        f"`{TYPE_PREFIX}CODE`: a name, whose path `{PROBLEMS_PATH}/CODE` every API serves.",
        "`errors` lists the faulty places of the input: `in` (body, query, path or header),",
        "`pointer` (a JSON pointer into the body) or `parameter`, `found` and `allowed`.",
        "",
        "This page is made by `make api-docs`.",
        "",
        "| Status | Code | Title | Meaning |",
        "|---|---|---|---|",
        *(
            f"| {int(each.kind.status)} | `{each.kind.code}` | {each.kind.title} | {each.said} |"
            for each in meanings()
        ),
    ]
    return "\n".join(lines) + "\n"


def problem_page(found: Meaning) -> str:
    """Return the page of one kind."""
    title = f"{int(found.kind.status)} {html.escape(found.kind.code)}"
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        f"<title>{title}</title><h1>{title}</h1><p><b>{html.escape(found.kind.title)}.</b> "
        f"{html.escape(found.said).replace('`', '')}</p><p><a href='/docs'>/docs</a></p></html>"
    )
