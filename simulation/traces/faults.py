"""Bad rows of a file: counted, reported with file and line, never silently dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: The most bad rows that are kept in full; all are counted.
MAX_SHOWN: Final = 1000


class RowError(ValueError):
    """A row with an invalid value."""


@dataclass(slots=True)
class BadRows:
    """The bad rows of one file."""

    file: str
    count: int = 0
    shown: list[tuple[int, str]] = field(default_factory=list)  #: line, what is wrong there

    def add(self, line: int, problem: str) -> None:
        """Count a bad row."""
        self.count += 1
        if len(self.shown) < MAX_SHOWN:
            self.shown.append((line, problem))

    def lines(self) -> list[str]:
        """Return each kept bad row as ``file:line: problem``."""
        return [f"{self.file}:{line}: {problem}" for line, problem in self.shown]

    def document(self) -> Mapping[str, object]:
        """Return JSON values."""
        return {"file": self.file, "count": self.count, "first": self.lines()[:20]}
