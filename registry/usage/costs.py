"""What charged usage costs, by exact rational arithmetic.

A line is the usage of a tenant's VMs of one type, of one resource, in one month (UTC), at one
version of a price or at none (and with one value of a label, if usage is split by it). Its cost is
what was charged times the price, rounded once to the currency's minor unit, half to even. All
other costs are sums of lines. So the costs of tenants, groups and types add up to the same total,
and those of months to that of a year.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, select

from registry.db.schema import vm_types
from registry.records.usage import Price
from registry.usage.daily_usage import DAY, to_day
from registry.usage.holding_times import SECOND
from registry.usage.period_sums import Period, PeriodSums
from registry.usage.prices import PriceBook

_HOUR: Final = 3600 * SECOND


@dataclass(frozen=True, slots=True)
class LineKey:
    """What a line is of."""

    tenant_id: UUID
    vm_type: str
    label: str | None
    resource: str
    month: date
    version: Price | None  #: None: no price holds


class UsageLines:
    """Usage in lines, which parts of periods are added to."""

    def __init__(self, book: PriceBook, type_names: Mapping[UUID, str]) -> None:
        self._book = book
        self._type_names = type_names
        self._sums: defaultdict[LineKey, list[int]] = defaultdict(lambda: [0, 0])

    def add(self, part: Period, sums: PeriodSums) -> None:
        """Add the sums of a part of a month in which no price changes."""
        day = to_day(part.since // DAY)
        for key, (held, charged) in sums.items():
            vm_type = self._type_names[key.vm_type_id]
            version = self._book.version_on(key.resource, vm_type, day)
            month = day.replace(day=1)
            line = LineKey(key.tenant_id, vm_type, key.label, key.resource, month, version)
            total = self._sums[line]
            total[0] += held
            total[1] += charged

    def items(self) -> Iterator[tuple[LineKey, int, int]]:
        """Yield each line with what was held and charged, in microseconds."""
        for key, (held, charged) in self._sums.items():
            if held or charged:
                yield key, held, charged


def read_type_names(connection: Connection) -> Mapping[UUID, str]:
    """Return the names of all VM types that ever were; the revisions of one have one name."""
    types = connection.execute(select(vm_types.c.id, vm_types.c.name))
    return {row.id: row.name for row in types}


def line_cost(charged: int, price: Decimal, minor_digits: int) -> int:
    """Return the cost of a line in minor units, rounded half to even.

    Parameters
    ----------
    charged : int
        Amounts of the resource times microseconds.
    price : Decimal
        Of one unit for an hour.
    """
    return round_half_even(charged, *minor_units_per_microsecond(price, minor_digits))


def minor_units_per_microsecond(price: Decimal, minor_digits: int) -> tuple[int, int]:
    """Return a price as numerator and denominator: minor units for a unit microsecond."""
    numerator, denominator = price.as_integer_ratio()
    return numerator * 10**minor_digits, denominator * _HOUR


def round_half_even(charged: int, numerator: int, denominator: int) -> int:
    """Return ``charged`` times a fraction, rounded half to even.

    It takes a twentieth of the time of `Fraction`, which looks for common divisors.
    """
    whole, rest = divmod(charged * numerator, denominator)
    return whole + (2 * rest > denominator or (2 * rest == denominator and whole % 2 == 1))


def minor_units_to_decimal(cost: int, minor_digits: int) -> Decimal:
    """Return a cost in minor units as a number with that many decimal places."""
    return Decimal(f"{cost}E-{minor_digits}")


def to_minor_units(cost: Decimal, minor_digits: int) -> int:
    """Return a cost in minor units; it has no more decimal places than the currency."""
    return int(Fraction(cost) * 10**minor_digits)
