"""Lists of names in messages: the first few, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence


def first_names(names: Sequence[str], shown: int) -> str:
    """Return the first names with commas, and the number of the others: ``a, b and 3 more``."""
    listed, more = ", ".join(names[:shown]), len(names) - shown
    return f"{listed} and {more} more" if more > 0 else listed
