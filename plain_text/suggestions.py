"""Suggestions for misspelled names, and lists of names in sentences."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

from plain_text.escaping import plain

#: Names that are compared with what was typed, at most: each comparison takes microseconds.
_MAX_COMPARED: Final = 1_000
_MAX_LISTED: Final = 8


def similar_names(typed: str, names: Iterable[str]) -> list[str]:
    """Return at most three names that are similar to a mistyped one, the most similar first."""
    wanted = typed.lower()
    likely = [name for name in names if _is_similar_candidate(wanted, name)][:_MAX_COMPARED]
    return difflib.get_close_matches(wanted, likely, n=3, cutoff=0.6)


def suggest_names(typed: str, names: Sequence[str]) -> str | None:
    """Return text that suggests similar names, or lists all if they are few; else None."""
    close = similar_names(typed, names)
    if close:
        return f"did you mean {join_names([plain(each) for each in close], 'or')}?"
    if names and len(names) <= _MAX_LISTED:
        shown = [plain(each) for each in sorted(names)]
        return f"known: {join_names(shown, 'and')}"
    return None


def join_names(names: Sequence[object], joined: str) -> str:
    """Join names as in a sentence: with commas, and the conjunction before the last."""
    *first, last = map(str, names)
    return f"{', '.join(first)} {joined} {last}" if first else last


def _is_similar_candidate(wanted: str, name: str) -> bool:
    """Return whether a name may be similar to a mistyped one, by its length and ends."""
    if abs(len(wanted) - len(name)) > 3:
        return False
    return wanted[:1] == name[:1] or wanted[-2:] == name[-2:]
