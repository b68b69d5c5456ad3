"""Exact decimals to integers, each resource on the coarsest grid that holds it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Final

_MICRO: Final = 10**6
#: What arithmetic with doubles leaves of a decimal, in parts of it: 0.0025870000000000003
#: was meant to be 0.002587.
_ROUNDING_PARTS: Final = 10**14


def grid_of(amounts: Iterable[int]) -> int:
    """Return the largest number that divides every amount, given in millionths.

    A memory given in bytes or in GiB thus ends in the same integers, small ones,
    and no share changes: every share is a ratio within one resource.
    """
    grid = 0
    for amount in set(amounts):
        grid = math.gcd(grid, amount)
        if grid == 1:
            break
    return grid or 1


def millionths(amount: Decimal) -> int | None:
    """Return an amount in millionths; None if it is no whole number of them, within rounding."""
    numerator, denominator = amount.as_integer_ratio()
    numerator *= _MICRO
    whole = (2 * numerator + denominator) // (2 * denominator)
    rest = abs(numerator - whole * denominator)
    return whole if rest * _ROUNDING_PARTS <= numerator else None
