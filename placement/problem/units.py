"""Exact decimals to integers, each resource on the coarsest grid that holds it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from placement.problem.fields import MOST_PLACES

_MICRO: Final = 10**MOST_PLACES


def grid_of(amounts: Iterable[Decimal]) -> int:
    """Return the largest number of millionths that divides every amount.

    A memory given in bytes or in GiB thus ends in the same integers, small ones,
    and no share changes: every share is a ratio within one resource.
    """
    grid = 0
    for amount in set(amounts):
        grid = math.gcd(grid, millionths(amount))
        if grid == 1:
            break
    return grid or 1


def millionths(amount: Decimal) -> int:
    """Return an amount of at most six decimal places in millionths, exactly."""
    numerator, denominator = amount.as_integer_ratio()
    return numerator * (_MICRO // denominator)
