"""The usage of a period, and the task that adds ended assignments to daily sums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Final, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, select

from registry.db.bulk import chunks
from registry.db.clock import db_now, earlier_time
from registry.db.dialect import turn_off_jit
from registry.db.engine import Repository, retry_on_rollback
from registry.db.schema import assignments
from registry.errors import InvalidError
from registry.records.usage import Usage, UsageItem
from registry.usage.closed_lines import CORRECTION, ClosedLine, closed_months, read_closed_lines
from registry.usage.costs import (
    LineKey,
    UsageLines,
    line_cost,
    minor_units_to_decimal,
    read_type_names,
    to_minor_units,
)
from registry.usage.daily_usage import DAY, add_to_sums, next_month, to_day, to_number
from registry.usage.holding_times import IS_RELEASED, IS_UNSUMMED, seconds, to_microseconds
from registry.usage.period_sums import Period, PeriodSums, read_sums
from registry.usage.prices import PriceBook, read_currency, read_prices, usage_order
from registry.usage.tenant_names import TenantNames

#: Assignments that are added to the sums in one transaction.
BATCH: Final = 200
#: How long an assignment is released before it is added. A step of the clock that is corrected
#: within this time corrects the time of the release, too (`registry.admin.clock_steps`).
ADDED_AFTER: Final = timedelta(days=1)
LABEL: Final = "label:"
_GROUPINGS: Final = ("tenant", "group", "type")


class UsageSums(Repository):
    """Reads usage, and keeps its daily sums."""

    def read(
        self,
        *,
        since: datetime,
        until: datetime | None = None,
        tenant: str | None = None,
        group: str | None = None,
        by: str | None = None,
    ) -> Usage:
        """Return the usage of a period, which ends now if no earlier end is given.

        What borrowed VMs took is in items of its own, such as `borrowed:vcpus`.

        With prices, it has costs: sums of lines, each rounded once (`registry.usage.costs`).
        Closed months that lie in the period are read from their entries, with corrections.

        Parameters
        ----------
        tenant, group : str, optional
            Only that tenant, or all tenants below that group. Tenants are in the groups in which
            they are now, or in a closed month were when it was closed; those that were removed
            are in none.
        by : str, optional
            Split by ``tenant``, ``group`` (the nearest), ``type`` or ``label:KEY``, with the
            labels that VMs have now or had last.

        Raises
        ------
        InvalidError
            If ``until`` is not after ``since``, if ``by`` is unknown, or if assignments of the
            period are purged and their sums of whole days (UTC) cannot answer.
        UnknownNameError
            If there never was such a tenant or group.
        """
        if until is not None and until <= since:
            raise InvalidError("until", until.isoformat(), f"a time after {since.isoformat()}")
        label = by.removeprefix(LABEL) if by is not None and by.startswith(LABEL) else None
        if by is not None and by not in _GROUPINGS and not label:
            raise InvalidError("by", by, "tenant, group, type or label:KEY")
        with self._database.read() as connection:
            until = earlier_time(db_now(connection), until)
            names = TenantNames(connection)
            keys = names.selected(tenant, group)
            currency = read_currency(connection)
            totals = _Totals(by, names, 0 if currency is None else currency.minor_digits)
            if since < until:
                period = Period(to_microseconds(since), to_microseconds(until))
                closed = [month for month in closed_months(connection) if _contains(period, month)]
                # Closed months do not have labels.
                opened = [period] if label else list(_without_months(period, closed))
                totals.add_lines(read_lines(connection, opened, keys=keys, label=label))
                key = None if tenant is None else names.key_of("tenant", tenant)
                for line in read_closed_lines(connection, closed, tenant_id=key):
                    if group is None or group in line.groups:
                        totals.add_closed(line)
            items, cost = totals.items(usage_order(connection)), totals.cost()
        return Usage(
            since=since,
            until=until,
            by=by,
            items=items,
            currency=None if currency is None else currency.name,
            cost=cost,
        )

    @retry_on_rollback
    def add_ended(self, *, by: datetime | None = None) -> int:
        """Add a batch of ended assignments to the daily sums; return how many.

        An assignment has ended a day after its release, by the database's clock and by ``by``.
        """
        with self._database.read() as connection:
            bound = earlier_time(db_now(connection), by) - ADDED_AFTER
            due = select(assignments.c.id).where(is_due(bound)).limit(1)
            if connection.execute(due).first() is None:
                return 0
        with self._database.write() as connection:
            return add_to_sums(connection, is_due(bound), max_rows=BATCH)


def is_due(bound: datetime) -> ColumnElement[bool]:
    """Return the condition that an assignment was released before a time, and is not added yet."""
    return and_(IS_RELEASED, IS_UNSUMMED, assignments.c.released_at < bound)


def read_lines(
    connection: Connection,
    periods: Collection[Period],
    *,
    keys: Sequence[UUID] | None = None,
    label: str | None = None,
) -> UsageLines:
    """Return the lines of some tenants, or of all, in periods."""
    turn_off_jit(connection)
    book = PriceBook(read_prices(connection))
    lines = UsageLines(book, read_type_names(connection))
    for period in periods:
        for part in split_period(period, book.change_days()):
            sums: PeriodSums = defaultdict(lambda: [0, 0])
            for some in (None,) if keys is None else chunks(keys):
                read_sums(connection, sums, part, some, label)
            lines.add(part, sums)
    return lines


def month_period(month: date) -> Period:
    """Return the period of a month, which its first day names."""
    return Period(to_number(month) * DAY, to_number(next_month(month)) * DAY)


def split_period(period: Period, changes: Sequence[date]) -> Iterator[Period]:
    """Yield the parts of a period in which no price changes, and which lie in one month.

    Before the first price there is one part.
    """
    first, last = to_day(period.since // DAY), to_day((period.until - 1) // DAY)
    begins = {day for day in changes if first < day <= last}
    if changes:
        month = max(first, changes[0])
        while (month := next_month(month)) <= last:
            begins.add(month)
    cuts = [period.since, *(to_number(day) * DAY for day in sorted(begins)), period.until]
    for since, until in pairwise(cuts):
        yield Period(since, until)


def _contains(period: Period, month: date) -> bool:
    whole = month_period(month)
    return period.since <= whole.since and whole.until <= period.until


def _without_months(period: Period, months: Sequence[date]) -> Iterator[Period]:
    """Yield the parts of a period that lie before, between and after months in it."""
    since = period.since
    for month in months:
        whole = month_period(month)
        if since < whole.since:
            yield Period(since, whole.since)
        since = whole.until
    if since < period.until:
        yield Period(since, period.until)


@dataclass(slots=True)
class _Total:
    held: int = 0
    charged: int = 0
    cost: int | None = None  #: in minor units

    def add(self, held: int, charged: int, cost: int | None) -> None:
        self.held += held
        self.charged += charged
        if cost is not None:
            self.cost = cost + (self.cost or 0)


class _Name(NamedTuple):
    name: str | None
    resource: str


class _Totals:
    """Sums of lines, by the names by which usage is split."""

    def __init__(self, by: str | None, names: TenantNames, minor_digits: int) -> None:
        self._by = by
        self._names = names
        self._minor_digits = minor_digits
        self._totals: defaultdict[_Name, _Total] = defaultdict(_Total)

    def add_lines(self, lines: UsageLines) -> None:
        """Add lines of months that are not closed."""
        for line, held, charged in lines.items():
            cost = None
            if line.version is not None and line.version.price is not None and charged:
                cost = line_cost(charged, line.version.price, self._minor_digits)
            self._totals[_Name(self._name_of(line), line.resource)].add(held, charged, cost)

    def _name_of(self, line: LineKey) -> str | None:
        match self._by:
            case "tenant":
                return self._names.name_of(line.tenant_id)
            case "group":
                return next(iter(self._names.groups_of(line.tenant_id)), None)
            case "type":
                return line.vm_type
            case _:
                return line.label

    def add_closed(self, line: ClosedLine) -> None:
        """Add a line of a closed month, or a correction of one."""
        match self._by:
            case "tenant":
                name: str | None = line.tenant
            case "group":
                name = next(iter(line.groups), None)
            case "type":
                name = line.vm_type
            case None:
                name = None
            case _ if line.resource == CORRECTION:
                name = None
            case _:
                return
        cost = None if line.cost is None else to_minor_units(line.cost, self._minor_digits)
        self._totals[_Name(name, line.resource)].add(line.held, line.charged, cost)

    def cost(self) -> Decimal | None:
        """Return the cost of all; None if nothing has a cost."""
        costs = [each.cost for each in self._totals.values() if each.cost is not None]
        return minor_units_to_decimal(sum(costs), self._minor_digits) if costs else None

    def items(self, order: Mapping[str, int]) -> tuple[UsageItem, ...]:
        """Return the items in order of names, those without a name last, then of resources."""
        return tuple(
            UsageItem(
                name=key.name,
                resource=key.resource,
                held=seconds(total.held),
                charged=seconds(total.charged),
                cost=(
                    None
                    if total.cost is None
                    else minor_units_to_decimal(total.cost, self._minor_digits)
                ),
            )
            for key, total in sorted(
                self._totals.items(),
                key=lambda each: (
                    each[0].name is None,
                    each[0].name or "",
                    order.get(each[0].resource, len(order)),
                ),
            )
            if total.held or total.charged or total.cost is not None
        )
