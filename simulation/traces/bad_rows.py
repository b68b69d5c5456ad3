"""Bad rows of a file: counted, reported with file and line, never silently dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: The most bad rows that are kept in full; all are counted.
MAX_SHOWN: Final = 1000


class RowError(ValueError):
    """A row of a trace with an invalid value."""


@dataclass(slots=True)
class BadRows:
    """The bad rows of one trace file."""

    file: str
    count: int = 0
    shown: list[tuple[int, str]] = field(default_factory=list)  #: line, what is wrong there

    def add(self, line: int, problem: str) -> None:
        """Count a bad row of the trace; the first ones are kept for the report."""
        self.count += 1
        if len(self.shown) < MAX_SHOWN:
            self.shown.append((line, problem))

    def lines(self) -> list[str]:
        """Return each kept bad row of the trace as ``file:line: problem``."""
        return [f"{self.file}:{line}: {problem}" for line, problem in self.shown]

    def document(self) -> Mapping[str, object]:
        """Return the count and the first bad rows as JSON values."""
        return {"file": self.file, "count": self.count, "first": self.lines()[:20]}
