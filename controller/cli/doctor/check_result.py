"""The result of one check: ok, a note, or WRONG."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check of `fuga doctor` or `fuga host check`."""

    about: str
    well: bool
    message: str
    note: bool = False  #: well, and something that an operator may want otherwise

    @property
    def level(self) -> str:
        """The level printed before the result: ok, note or WRONG."""
        if not self.well:
            return "WRONG"
        return "note" if self.note else "ok"

    def document(self) -> dict[str, str | bool]:
        """Return the result as JSON values."""
        return {
            "about": self.about,
            "well": self.well,
            "note": self.well and self.note,
            "message": self.message,
        }
