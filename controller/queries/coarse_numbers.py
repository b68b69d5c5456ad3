"""Rounding of numbers for tenants: steps of 0, 1, 2, 5, 10, 20, 50 and so on; whole percents.

Tenants see numbers of hosts and free amounts in steps, because the difference of two exact
numbers would reveal each VM of others. An exact share and the tenant's own VMs would together
reveal the size of the cluster.
"""

from __future__ import annotations

from typing import Final

_FIRST: Final = (1, 2, 5)


def round_down_to_step(number: int) -> int:
    """Round down to one of 0, 1, 2, 5, 10, 20, 50 and so on, for texts such as "at least N"."""
    if number < 1:
        return 0
    power = int(10 ** (len(str(number)) - 1))
    return power * max(each for each in _FIRST if each * power <= number)


def round_up_to_step(number: int) -> int:
    """Round up to one of 0, 1, 2, 5, 10, 20, 50 and so on, for texts such as "at most N"."""
    below = round_down_to_step(number)
    if number <= below:
        return below
    power = int(10 ** (len(str(below)) - 1))
    return power * next(each for each in (*_FIRST, 10) if each * power > below)


def round_to_percent(share: float) -> float:
    """Round a share of the cluster to whole percents."""
    return round(share, 2)
