"""The usage of a period, and the task that adds ended assignments to daily sums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    case,
    func,
    literal,
    select,
    union_all,
)

from registry.catalogue.resources import VMS, resource_names
from registry.db.bulk import chunks, is_any_of
from registry.db.clock import db_now, earlier_time
from registry.db.engine import Database, retry_on_rollback
from registry.db.schema import (
    assignment_resources,
    assignments,
    daily_usage,
    tenants,
    unreleased,
    vm_types,
    vms,
)
from registry.errors import InvalidError, UnknownNameError
from registry.records.usage import Usage, UsageItem
from registry.usage.costs import PricedLines, minor_units_to_decimal
from registry.usage.daily_usage import DAY, add_to_sums, next_month, to_day, to_number
from registry.usage.holding_times import (
    IS_RELEASED,
    IS_SUMMED,
    IS_UNSUMMED,
    SECOND,
    charged_until,
    greatest,
    holding_times,
    least,
    to_microseconds,
    to_time,
)
from registry.usage.prices import PriceBook, read_currency, read_prices

#: Assignments that are added to the sums in one transaction.
BATCH: Final = 200
#: How long an assignment is released before it is added. A step of the clock that is corrected
#: within this time corrects the time of the release, too (`registry.admin.clock_steps`).
ADDED_AFTER: Final = timedelta(days=1)
LABEL: Final = "label:"
_GROUPINGS: Final = ("tenant", "group", "type")


@dataclass(frozen=True, slots=True)
class _Key:
    """What a sum is of."""

    tenant_id: UUID
    vm_type_id: UUID
    label: str | None
    resource: str


#: Amounts times microseconds, held and charged.
_Sums = defaultdict[_Key, list[int]]


class UsageSums:
    """Reads usage, and keeps its daily sums."""

    def __init__(self, database: Database) -> None:
        self._database = database

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

        With prices, it has costs: sums of lines, each rounded once (`registry.usage.costs`).

        Parameters
        ----------
        tenant, group : str, optional
            Only that tenant, or all tenants below that group. Tenants are in the groups in which
            they are now; those that were removed are in none.
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
            tree = _Tree(connection)
            keys = tree.selected(tenant, group)
            currency = read_currency(connection)
            book = PriceBook(read_prices(connection))
            type_names = _type_names(connection)
            sums: _Sums = defaultdict(lambda: [0, 0])
            lines: PricedLines[_Key] = PricedLines(book)
            period = _Period(to_microseconds(since), to_microseconds(until))
            for part in _parts(period, book.change_days()) if since < until else ():
                of_part: _Sums = defaultdict(lambda: [0, 0])
                for some in (None,) if keys is None else chunks(keys):
                    _read_sums(connection, of_part, part, some, label)
                day = to_day(part.since // DAY)
                for key, (held, charged) in of_part.items():
                    total = sums[key]
                    total[0] += held
                    total[1] += charged
                    lines.add(key, key.resource, type_names[key.vm_type_id], day, charged)
            names = _names(tree, type_names, by, sums)
            order = {name: at for at, name in enumerate((VMS, *resource_names(connection)))}
        digits = 0 if currency is None else currency.minor_digits
        costs = lines.costs(digits)
        return Usage(
            since=since,
            until=until,
            by=by,
            items=_items(sums, names, order, costs, digits),
            currency=None if currency is None else currency.name,
            cost=minor_units_to_decimal(sum(costs.values()), digits) if costs else None,
        )

    @retry_on_rollback
    def add_ended(self, *, by: datetime | None = None) -> int:
        """Add a batch of ended assignments to the daily sums; return how many.

        An assignment has ended a day after its release, by the database's clock and by ``by``.
        """
        with self._database.read() as connection:
            bound = earlier_time(db_now(connection), by) - ADDED_AFTER
            due = select(assignments.c.id).where(_is_due(bound)).limit(1)
            if connection.execute(due).first() is None:
                return 0
        with self._database.write() as connection:
            return add_to_sums(connection, _is_due(bound), max_rows=BATCH)


def _is_due(bound: datetime) -> ColumnElement[bool]:
    return and_(IS_RELEASED, IS_UNSUMMED, assignments.c.released_at < bound)


@dataclass(frozen=True, slots=True)
class _Period:
    """A period in microseconds since 1970, cut at the midnights that enclose whole days."""

    since: int
    until: int

    @property
    def whole_days(self) -> tuple[int, int]:
        """The first whole day, and the day after the last."""
        first = -(-self.since // DAY)
        return first, max(first, self.until // DAY)

    def edges(self) -> Iterator[_Period]:
        """Yield the parts that are not whole days."""
        first, last = self.whole_days
        if first == last:
            # At most two parts of days, at one midnight or none.
            yield self
            return
        if self.since < first * DAY:
            yield _Period(self.since, first * DAY)
        if last * DAY < self.until:
            yield _Period(last * DAY, self.until)

    def covering_days(self) -> tuple[int, int]:
        """Return the first day that is touched, and the day after the last."""
        return self.since // DAY, -(-self.until // DAY)


def _read_sums(
    connection: Connection,
    sums: _Sums,
    period: _Period,
    keys: Sequence[UUID] | None,
    label: str | None,
) -> None:
    """Add the usage of some tenants, or of all, to the sums."""
    _add_assignments(connection, sums, period, keys, label, summed=False)
    if label is not None:
        _check_kept(connection, period, keys, "by", "tenant, group or type")
        _add_assignments(connection, sums, period, keys, label, summed=True)
        return
    _add_stored(connection, sums, period.whole_days, keys)
    for edge in period.edges():
        _check_kept(connection, edge, keys, "since", "whole days (UTC)")
        _add_assignments(connection, sums, edge, keys, None, summed=True)


def _check_kept(
    connection: Connection, period: _Period, keys: Sequence[UUID] | None, field: str, allowed: str
) -> None:
    """Raise if assignments are purged that are in the sums of the days of a period.

    The stored sums of these days and the sum over the assignments are then different.
    """
    first, last = period.covering_days()
    stored: _Sums = defaultdict(lambda: [0, 0])
    _add_stored(connection, stored, (first, last), keys)
    if not stored:
        return
    kept: _Sums = defaultdict(lambda: [0, 0])
    whole = _Period(first * DAY, last * DAY)
    _add_assignments(connection, kept, whole, keys, None, summed=True)
    if _without_zeros(stored) != _without_zeros(kept):
        days = f"{to_day(first)}" if last - first == 1 else f"{to_day(first)} to {to_day(last - 1)}"
        found = f"a period for which assignments are needed; some of {days} are purged"
        raise InvalidError(field, found, allowed)


def _without_zeros(sums: _Sums) -> Mapping[_Key, list[int]]:
    return {key: value for key, value in sums.items() if any(value)}


def _add_stored(
    connection: Connection, sums: _Sums, days: tuple[int, int], keys: Sequence[UUID] | None
) -> None:
    """Add the stored sums of whole days."""
    first, last = days
    columns = (daily_usage.c.tenant_id, daily_usage.c.vm_type_id, daily_usage.c.resource)
    query = (
        select(
            *columns,
            *(
                func.sum(daily_usage.c[name]).label(name)
                for name in ("held_s", "held_us", "charged_s", "charged_us")
            ),
        )
        .where(daily_usage.c.day >= to_day(first), daily_usage.c.day < to_day(last))
        .group_by(*columns)
    )
    if keys is not None:
        query = query.where(is_any_of(connection, daily_usage.c.tenant_id, keys))
    if first < last:
        _add_rows(sums, connection.execute(query.add_columns(literal(None).label("label"))).all())


def _add_assignments(
    connection: Connection,
    sums: _Sums,
    period: _Period,
    keys: Sequence[UUID] | None,
    label: str | None,
    *,
    summed: bool,
) -> None:
    """Add what assignments held in a period: those in the daily sums, or the others."""
    label_value = literal(None) if label is None else vms.c.labels[label].as_string()
    since, until = literal(period.since, BigInteger), literal(period.until, BigInteger)
    # What is not released holds until the end of the period, which is not after now.
    query = holding_times(until, label_value.label("label")).where(_began_before(period))
    if keys is not None:
        query = query.where(is_any_of(connection, assignments.c.tenant_id, keys))
    ended = assignments.c.released_at > to_time(period.since)
    if summed:
        parts: Select[Any] = query.where(IS_RELEASED, IS_SUMMED, ended)
        times: Any = parts.subquery()
    else:
        # Deleted VMs hold nothing, so an index of the live ones finds a tenant's.
        live = query.where(unreleased, vms.c.deleted_at.is_(None))
        if keys is not None:
            live = live.where(is_any_of(connection, vms.c.tenant_id, keys))
        times = union_all(live, query.where(IS_RELEASED, IS_UNSUMMED, ended)).subquery()
    spans = select(
        times.c.id,
        times.c.tenant_id,
        times.c.vm_type_id,
        times.c.label,
        _overlap(times.c.held_from, times.c.held_until, since, until).label("held"),
        _overlap(times.c.charged_from, charged_until(times), since, until).label("charged"),
    ).subquery()
    amount = assignment_resources.c.amount
    of_resources = _sums_of(spans, assignment_resources.c.resource, amount).join(
        assignment_resources, assignment_resources.c.assignment_id == spans.c.id
    )
    _add_rows(sums, connection.execute(of_resources).all())
    of_vms = _sums_of(spans, literal(VMS), literal(1, BigInteger))
    _add_rows(sums, connection.execute(of_vms).all())


def _sums_of(spans: Any, resource: ColumnElement[str], amount: ColumnElement[int]) -> Select[Any]:
    """Return a query for sums; seconds and microseconds are apart, as 64 bits hold both so."""
    columns = (spans.c.tenant_id, spans.c.vm_type_id, spans.c.label, resource.label("resource"))
    return (
        select(
            *columns,
            func.sum(amount * (spans.c.held // SECOND)).label("held_s"),
            func.sum(amount * (spans.c.held % SECOND)).label("held_us"),
            func.sum(amount * (spans.c.charged // SECOND)).label("charged_s"),
            func.sum(amount * (spans.c.charged % SECOND)).label("charged_us"),
        )
        .select_from(spans)
        .group_by(*columns[:3], "resource")
    )


def _overlap(
    start: ColumnElement[int],
    end: ColumnElement[int],
    since: ColumnElement[int],
    until: ColumnElement[int],
) -> ColumnElement[int]:
    """Return the length of the part of a time that lies in a period; 0 without a start."""
    first, last = greatest(since, start), least(until, end)
    return case((last > first, last - first), else_=literal(0, BigInteger))


def _began_before(period: _Period) -> ColumnElement[bool]:
    return assignments.c.created_at < to_time(period.until)


def _add_rows(sums: _Sums, rows: Sequence[Row[Any]]) -> None:
    for row in rows:
        found = sums[_Key(row.tenant_id, row.vm_type_id, row.label, row.resource)]
        found[0] += int(row.held_s) * SECOND + int(row.held_us)
        found[1] += int(row.charged_s) * SECOND + int(row.charged_us)


class _Tree:
    """All tenants and groups that ever were, with their present places."""

    def __init__(self, connection: Connection) -> None:
        query = select(tenants.c.id, tenants.c.name, tenants.c.parent_id, tenants.c.is_group)
        self._nodes = {row.id: row for row in connection.execute(query)}
        self._keys = {row.name: row.id for row in self._nodes.values()}

    def name_of(self, key: UUID) -> str:
        """Return the name of a tenant."""
        return str(self._nodes[key].name)

    def group_of(self, key: UUID) -> str | None:
        """Return the name of the nearest group above a tenant."""
        parent = self._nodes[key].parent_id
        return None if parent is None else self.name_of(parent)

    def selected(self, tenant: str | None, group: str | None) -> Sequence[UUID] | None:
        """Return the ids of a tenant, or of all below a group; None if neither is named."""
        found = None
        if tenant is not None:
            found = {self._key_of("tenant", tenant, is_group=False)}
        if group is not None:
            top = self._key_of("group", group, is_group=True)
            below = {key for key in self._nodes if self._is_below(key, top)}
            found = below if found is None else found & below
        return None if found is None else sorted(found)

    def _key_of(self, field: str, name: str, *, is_group: bool) -> UUID:
        key: UUID | None = self._keys.get(name)
        if key is None or self._nodes[key].is_group != is_group:
            raise UnknownNameError(field, "group of tenants" if is_group else "tenant", name)
        return key

    def _is_below(self, key: UUID, top: UUID) -> bool:
        above: UUID | None = self._nodes[key].parent_id
        while above is not None and above != top:
            above = self._nodes[above].parent_id
        return above == top


def _parts(period: _Period, changes: Sequence[date]) -> Iterator[_Period]:
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
        yield _Period(since, until)


def _type_names(connection: Connection) -> Mapping[UUID, str]:
    """Return the names of all VM types that ever were; the revisions of one have one name."""
    types = connection.execute(select(vm_types.c.id, vm_types.c.name))
    return {row.id: row.name for row in types}


def _names(
    tree: _Tree, type_names: Mapping[UUID, str], by: str | None, sums: Iterable[_Key]
) -> Mapping[_Key, str | None]:
    """Return the name under which each sum counts."""
    if by == "tenant":
        return {key: tree.name_of(key.tenant_id) for key in sums}
    if by == "group":
        return {key: tree.group_of(key.tenant_id) for key in sums}
    if by == "type":
        return {key: type_names[key.vm_type_id] for key in sums}
    return {key: key.label for key in sums}


def _items(
    sums: _Sums,
    names: Mapping[_Key, str | None],
    order: Mapping[str, int],
    costs: Mapping[_Key, int],
    digits: int,
) -> tuple[UsageItem, ...]:
    """Return the items in order of names, those without a name last, then of resources."""
    totals: defaultdict[tuple[str | None, str], list[int]] = defaultdict(lambda: [0, 0])
    named: defaultdict[tuple[str | None, str], int] = defaultdict(int)
    for key, (held, charged) in sums.items():
        total = totals[names[key], key.resource]
        total[0] += held
        total[1] += charged
    for key, cost in costs.items():
        named[names[key], key.resource] += cost
    return tuple(
        UsageItem(
            name=name,
            resource=resource,
            held=_seconds(held),
            charged=_seconds(charged),
            cost=(
                minor_units_to_decimal(named[name, resource], digits)
                if (name, resource) in named
                else None
            ),
        )
        for (name, resource), (held, charged) in sorted(
            totals.items(),
            key=lambda each: (each[0][0] is None, each[0][0] or "", order.get(each[0][1], 0)),
        )
        if held or charged
    )


def _seconds(microseconds: int) -> Decimal:
    """Return microseconds as seconds, without rounding."""
    return Decimal(f"{microseconds // SECOND}.{microseconds % SECOND:06d}")
