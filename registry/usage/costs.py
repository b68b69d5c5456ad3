"""What charged usage costs, by exact rational arithmetic.

A line is the charged usage of a tenant's VMs of one type, of one resource, in one month (UTC), at
one version of a price (and with one value of a label, if usage is split by it). Its cost is the
usage times the price, rounded once to the currency's minor unit, half to even. All other costs are
sums of lines. So the costs of tenants, groups and types add up to the same total, and those of
months to that of a year.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Final, Generic, NamedTuple, TypeVar

from registry.records.usage import Price
from registry.usage.holding_times import SECOND
from registry.usage.prices import PriceBook

_HOUR: Final = 3600 * SECOND

K = TypeVar("K", bound=Hashable)


class _Line(NamedTuple, Generic[K]):
    key: K
    month: date
    version: Price


class PricedLines(Generic[K]):
    """Lines of priced usage; ``key`` is what they belong to, apart from month and version."""

    def __init__(self, book: PriceBook) -> None:
        self._book = book
        self._charged: defaultdict[_Line[K], int] = defaultdict(int)

    def add(self, key: K, resource: str, vm_type: str, day: date, charged: int) -> None:
        """Add the charged usage of a part of a month that begins on a day, if it has a price.

        The price and the month are those of the day: no part goes beyond them.
        """
        version = self._book.version_on(resource, vm_type, day)
        if version is not None and charged:
            self._charged[_Line(key, day.replace(day=1), version)] += charged

    def costs(self, minor_digits: int) -> Mapping[K, int]:
        """Return the sums of the lines' costs by key, in minor units of the currency."""
        found: defaultdict[K, int] = defaultdict(int)
        for line, charged in self._charged.items():
            found[line.key] += line_cost(charged, line.version.price, minor_digits)
        return found


def line_cost(charged: int, price: Decimal | None, minor_digits: int) -> int:
    """Return the cost of a line in minor units, rounded half to even.

    Parameters
    ----------
    charged : int
        Amounts of the resource times microseconds.
    price : Decimal or None
        Of one unit for an hour; None counts as 0.
    """
    exact = Fraction(price or 0) * Fraction(charged * 10**minor_digits, _HOUR)
    return round(exact)  # of a fraction: half to even


def minor_units_to_decimal(cost: int, minor_digits: int) -> Decimal:
    """Return a cost in minor units as a number with that many decimal places."""
    return Decimal(f"{cost}E-{minor_digits}")
