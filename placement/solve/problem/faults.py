"""Faults of a problem file, and their places."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from placement.errors import PlacementError

#: Keys and positions from the top of the file down, e.g. ("hosts", 0, "capacity", 1).
Place: TypeAlias = tuple[str | int, ...]

#: The most faults that are reported.
MAX_FAULTS: Final = 20

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
_LONGEST_FOUND: Final = 60


@dataclass(frozen=True, slots=True)
class ProblemFault:
    """One fault of a problem file and its place."""

    place: str  #: "hosts[0].capacity[1]", "line 3, column 7", or "" for the whole file
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class ProblemFileError(PlacementError):
    """A problem file that has faults."""

    def __init__(self, faults: Iterable[ProblemFault], *, more: bool = False) -> None:
        self.faults = tuple(faults)
        self.more = more
        lines = [str(fault) for fault in self.faults]
        if more:
            lines.append("and further errors, not listed")
        super().__init__("\n".join(lines))


class ProblemFaults:
    """Collects the faults of a problem file, so that one run shows as many as useful."""

    def __init__(self) -> None:
        self._found: list[ProblemFault] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, place: Place, message: str) -> None:
        """Record a fault of the problem file; raise `ProblemFileError` when there are too many."""
        if len(self._found) == MAX_FAULTS:
            raise ProblemFileError(self._found, more=True)
        self._found.append(ProblemFault(place_text(place), message))

    def raise_if_any(self) -> None:
        """Raise `ProblemFileError` with all recorded faults of the problem file."""
        if self._found:
            raise ProblemFileError(self._found)


def refuse_file(place: Place, message: str) -> NoReturn:
    """Raise `ProblemFileError` for one fault that makes the rest unreadable."""
    raise ProblemFileError([ProblemFault(place_text(place), message)])


def place_text(place: Place) -> str:
    """Format a place in the problem file as a path: ``demands[3].speed.s9``."""
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{quote_text(step)}]"
    return text


def quote_text(text: str) -> str:
    """Put a string from the problem file in quotes, in ASCII, shortened if it is long."""
    if len(text) > _LONGEST_FOUND:
        text = text[: _LONGEST_FOUND - 3] + "..."
    return json.dumps(text)


def describe_value(value: object) -> str:
    """Describe a wrong value of the problem file in a few words."""
    match value:
        case None | True | False:
            return json.dumps(value)
        case str():
            return quote_text(value)
        case []:
            return "an empty list"
        case list():
            return f"a list of {len(value):,}"
        case dict():
            return "an object"
        case _:
            return str(value)


def suggest_names(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the known names like it, or all if they are few."""
    names = list(known)
    # difflib is quadratic in the length of what it compares
    near = difflib.get_close_matches(name[:64], names[:2000], n=3)
    if near:
        return f"; did you mean {', '.join(map(quote_text, near))}?"
    if 0 < len(names) <= 12:
        return f"; known: {', '.join(map(quote_text, names))}"
    return ""
