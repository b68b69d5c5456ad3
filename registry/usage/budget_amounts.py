"""What tenants are charged in a month, in units and in costs, as budgets count it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date
from itertools import chain
from typing import Final
from uuid import UUID

from sqlalchemy import Connection

from registry.records.usage import Price
from registry.usage.borrowed_times import BORROWED
from registry.usage.charged_parts import has_sums_since, read_charged
from registry.usage.costs import (
    line_cost,
    minor_units_per_microsecond,
    read_type_names,
    round_half_even,
)
from registry.usage.daily_usage import DAY, to_day
from registry.usage.period_sums import Period
from registry.usage.prices import PriceBook, read_prices
from registry.usage.usage import read_lines, split_period

COST: Final = "cost"  #: the name under which a budget is of costs
#: By tenant and resource, or `COST`: unit microseconds, or minor units.
Amounts = Mapping[UUID, Mapping[str, int]]


def read_amounts(
    connection: Connection, periods: Sequence[Period], tenants: Collection[UUID], minor_digits: int
) -> Callable[[], Sequence[Amounts]]:
    """Read what tenants are charged in each of two periods; the returned function adds it up.

    It does not use the connection, whose transaction can end before. The first period begins with
    a month, the second follows it and is not longer than a day.
    """
    if has_sums_since(connection, periods[1].since // DAY, tenants):
        # The clock went back by more than a day.
        found = [amounts_of_lines(connection, each, tenants, minor_digits) for each in periods]
        return lambda: found
    book, type_names = PriceBook(read_prices(connection)), read_type_names(connection)
    parts = [
        list(split_period(each, book.change_days())) if each.since < each.until else []
        for each in periods
    ]
    charged = read_charged(connection, list(chain(*parts)), tenants)

    def add_up() -> Sequence[Amounts]:
        sums = [_PeriodSums(book, type_names, minor_digits, each) for each in parts]
        border = len(parts[0])
        for tenant_id, vm_type_id, resource, amounts in charged:
            sums[0].add(tenant_id, vm_type_id, resource, amounts[:border])
            sums[1].add(tenant_id, vm_type_id, resource, amounts[border:])
        return [each.amounts() for each in sums]

    return add_up


def amounts_of_lines(
    connection: Connection, period: Period, tenants: Collection[UUID], minor_digits: int
) -> Amounts:
    """Return the same of one period, from the lines of `fuga usage`: the form to compare with."""
    amounts: defaultdict[UUID, Counter[str]] = defaultdict(Counter)
    if period.since == period.until:
        return amounts
    for line, _, charged in read_lines(connection, [period], keys=sorted(tenants)).items():
        mine = amounts[line.tenant_id]
        # A budget limits what borrowed VMs take, too.
        mine[line.resource.removeprefix(BORROWED)] += charged
        if line.version is not None and line.version.price is not None:
            mine[COST] += line_cost(charged, line.version.price, minor_digits)
    return amounts


class _PeriodSums:
    """Adds up units, and lines whose costs are rounded once."""

    def __init__(
        self,
        book: PriceBook,
        type_names: Mapping[UUID, str],
        minor_digits: int,
        parts: Sequence[Period],
    ) -> None:
        self._book = book
        self._type_names = type_names
        self._minor_digits = minor_digits
        self._days = [to_day(part.since // DAY) for part in parts]
        #: by tenant: units by resource, and by number of a line
        self._sums: dict[UUID, tuple[Counter[str], defaultdict[int, int]]] = {}
        #: by VM type and resource, the number of the line of each part; None: it has no price
        self._numbers: dict[tuple[UUID, str], Sequence[int | None]] = {}
        self._line_numbers: dict[tuple[str, str, date, Price], int] = {}
        self._prices: list[tuple[int, int]] = []  #: by a line's number

    def add(self, tenant_id: UUID, vm_type_id: UUID, resource: str, sums: Sequence[int]) -> None:
        """Add what a tenant is charged in each part."""
        mine = self._sums.get(tenant_id)
        if mine is None:
            mine = self._sums[tenant_id] = (Counter(), defaultdict(int))
        units, lines = mine
        # A budget limits what borrowed VMs take, too.
        units[resource.removeprefix(BORROWED)] += sum(sums)
        numbers = self._numbers.get((vm_type_id, resource))
        if numbers is None:
            numbers = [self._line_number(vm_type_id, resource, day) for day in self._days]
            self._numbers[vm_type_id, resource] = numbers
        for number, charged in zip(numbers, sums, strict=True):
            if number is not None and charged:
                lines[number] += charged

    def _line_number(self, vm_type_id: UUID, resource: str, day: date) -> int | None:
        vm_type = self._type_names[vm_type_id]
        version = self._book.version_on(resource, vm_type, day)
        if version is None or version.price is None:
            return None
        line = (vm_type, resource, day.replace(day=1), version)
        if line not in self._line_numbers:
            self._line_numbers[line] = len(self._prices)
            self._prices.append(minor_units_per_microsecond(version.price, self._minor_digits))
        return self._line_numbers[line]

    def amounts(self) -> Amounts:
        """Return the units, and the sums of the rounded lines."""
        for units, lines in self._sums.values():
            for number, charged in lines.items():
                units[COST] += round_half_even(charged, *self._prices[number])
        return {tenant_id: units for tenant_id, (units, _) in self._sums.items()}
