"""What somebody may have meant who typed a name that there is not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

from plain_text.shown import plain

#: Names that are compared with what was typed, at most: each comparison takes microseconds.
_MOST_COMPARED: Final = 1_000
_ALL_TOLD: Final = 8


def nearest(typed: str, names: Iterable[str]) -> list[str]:
    """Return the names, three at most, that somebody may have meant, the likeliest first."""
    wanted = typed.lower()
    likely = [name for name in names if _may_be_like(wanted, name)][:_MOST_COMPARED]
    return difflib.get_close_matches(wanted, likely, n=3, cutoff=0.6)


def advice(typed: str, names: Sequence[str]) -> str | None:
    """Say which of these names was meant, or which there are; None: no more can be said."""
    close = nearest(typed, names)
    if close:
        return f"did you mean {listed([plain(each) for each in close], 'or')}?"
    if names and len(names) <= _ALL_TOLD:
        shown = [plain(each) for each in sorted(names)]
        return f"there {'is' if len(names) == 1 else 'are'} {listed(shown, 'and')}"
    return None


def listed(names: Sequence[object], joined: str) -> str:
    """Return names as a sentence lists them."""
    *first, last = map(str, names)
    return f"{', '.join(first)} {joined} {last}" if first else last


def _may_be_like(wanted: str, name: str) -> bool:
    """Sort out at little cost what is far from it: of thousands of names few are compared."""
    if abs(len(wanted) - len(name)) > 3:
        return False
    return wanted[:1] == name[:1] or wanted[-2:] == name[-2:]
