"""The list of mutants, `mutants.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of meaning."""

    file: str
    change: tuple[str, str]  #: what stands there, what is put in its place
    means: str
    tests: tuple[str, ...]

    def applied_to(self, text: str) -> str:
        """Return the file's text with the change made."""
        before, after = self.change
        if text.count(before) != 1:
            raise ValueError(f"{self.file}: {before!r} stands {text.count(before)} times, not once")
        return text.replace(before, after)


def listed() -> list[Mutant]:
    """Return all mutants."""
    document = tomllib.loads((ROOT / "tests/mutants/mutants.toml").read_text())
    return [
        Mutant(
            file=each["file"],
            change=tuple(each["change"]),
            means=each["means"],
            tests=tuple(each["tests"]),
        )
        for each in document["mutant"]
    ]
