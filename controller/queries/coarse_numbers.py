"""Numbers in steps: 0, 1, 2, 5, 10, 20, 50 and so on; shares in whole percent.

Tenants see numbers of hosts and free amounts in steps: an exact number, read
before and after, would reveal each VM of others. An exact share would reveal, with
what is held, the total of the cluster.
"""

from __future__ import annotations

from typing import Final

_FIRST: Final = (1, 2, 5)


def step_below(number: int) -> int:
    """Return the largest step that is not above a number: "at least so many"."""
    if number < 1:
        return 0
    power = int(10 ** (len(str(number)) - 1))
    return power * max(each for each in _FIRST if each * power <= number)


def step_above(number: int) -> int:
    """Return the smallest step that is not below a number: "at most so many"."""
    below = step_below(number)
    if number <= below:
        return below
    power = int(10 ** (len(str(below)) - 1))
    return power * next(each for each in (*_FIRST, 10) if each * power > below)


def to_the_percent(share: float) -> float:
    """Return a share of the cluster to the nearest whole percent."""
    return round(share, 2)
