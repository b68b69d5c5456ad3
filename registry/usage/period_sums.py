"""What assignments held in a period: read from the sums of days, and from assignments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    case,
    func,
    literal,
    select,
    union_all,
)

from registry.catalogue.resources import VMS
from registry.db.bulk import is_any_of
from registry.db.schema import (
    assignment_resources,
    assignments,
    borrowed_times,
    daily_usage,
    unreleased,
    vms,
)
from registry.errors import InvalidError
from registry.usage.borrowed_times import BORROWED
from registry.usage.daily_usage import DAY, to_day
from registry.usage.holding_times import (
    IS_RELEASED,
    IS_SUMMED,
    IS_UNSUMMED,
    SECOND,
    MicrosecondsOf,
    charged_until,
    greatest,
    holding_times,
    least,
    to_time,
)


@dataclass(frozen=True, slots=True)
class UsageKey:
    """What a sum is of."""

    tenant_id: UUID
    vm_type_id: UUID
    label: str | None
    resource: str


#: Amounts times microseconds, held and charged.
PeriodSums = defaultdict[UsageKey, list[int]]


@dataclass(frozen=True, slots=True)
class Period:
    """A period in microseconds since 1970, cut at the midnights that enclose whole days."""

    since: int
    until: int

    @property
    def whole_days(self) -> tuple[int, int]:
        """The first whole day, and the day after the last."""
        first = -(-self.since // DAY)
        return first, max(first, self.until // DAY)

    def edges(self) -> Iterator[Period]:
        """Yield the parts that are not whole days."""
        first, last = self.whole_days
        if first == last:
            # At most two parts of days, at one midnight or none.
            yield self
            return
        if self.since < first * DAY:
            yield Period(self.since, first * DAY)
        if last * DAY < self.until:
            yield Period(last * DAY, self.until)

    def covering_days(self) -> tuple[int, int]:
        """Return the first day that is touched, and the day after the last."""
        return self.since // DAY, -(-self.until // DAY)


def read_sums(
    connection: Connection,
    sums: PeriodSums,
    period: Period,
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
    connection: Connection, period: Period, keys: Sequence[UUID] | None, field: str, allowed: str
) -> None:
    """Raise if assignments are purged that are in the sums of the days of a period.

    The stored sums of these days and the sum over the assignments are then different.
    """
    first, last = period.covering_days()
    stored: PeriodSums = defaultdict(lambda: [0, 0])
    _add_stored(connection, stored, (first, last), keys)
    if not stored:
        return
    kept: PeriodSums = defaultdict(lambda: [0, 0])
    whole = Period(first * DAY, last * DAY)
    _add_assignments(connection, kept, whole, keys, None, summed=True)
    if _without_zeros(stored) != _without_zeros(kept):
        days = f"{to_day(first)}" if last - first == 1 else f"{to_day(first)} to {to_day(last - 1)}"
        found = f"a period for which assignments are needed; some of {days} are purged"
        raise InvalidError(field, found, allowed)


def _without_zeros(sums: PeriodSums) -> Mapping[UsageKey, list[int]]:
    return {key: value for key, value in sums.items() if any(value)}


def _add_stored(
    connection: Connection, sums: PeriodSums, days: tuple[int, int], keys: Sequence[UUID] | None
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
    sums: PeriodSums,
    period: Period,
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
    _add_spans(sums, connection, _spans(times, since, until))
    # What borrowed VMs took is in these sums, and moves from there to sums of its own.
    borrowed_from = MicrosecondsOf(borrowed_times.c.since)
    borrowed_until = MicrosecondsOf(borrowed_times.c.until)
    borrowed: PeriodSums = defaultdict(lambda: [0, 0])
    spans = _spans(times, greatest(since, borrowed_from), least(borrowed_until, until))
    _add_spans(borrowed, connection, spans.where(borrowed_times.c.vm_id == times.c.vm_id))
    for key, amounts in _without_zeros(borrowed).items():
        of_borrowed = replace(key, resource=BORROWED + key.resource)
        for column, amount in enumerate(amounts):
            sums[key][column] -= amount
            sums[of_borrowed][column] += amount


def _spans(times: Any, since: ColumnElement[int], until: ColumnElement[int]) -> Select[Any]:
    """Return a query for how long assignments held and were charged within a time."""
    return select(
        times.c.id,
        times.c.tenant_id,
        times.c.vm_type_id,
        times.c.label,
        overlap(times.c.held_from, times.c.held_until, since, until).label("held"),
        overlap(times.c.charged_from, charged_until(times), since, until).label("charged"),
    )


def _add_spans(sums: PeriodSums, connection: Connection, query: Select[Any]) -> None:
    """Add the amounts of assignments times these spans."""
    spans = query.subquery()
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


def overlap(
    start: ColumnElement[int],
    end: ColumnElement[int],
    since: ColumnElement[int],
    until: ColumnElement[int],
) -> ColumnElement[int]:
    """Return the length of the part of a time that lies in a period; 0 without a start."""
    first, last = greatest(since, start), least(until, end)
    return case((last > first, last - first), else_=literal(0, BigInteger))


def _began_before(period: Period) -> ColumnElement[bool]:
    return assignments.c.created_at < to_time(period.until)


def _add_rows(sums: PeriodSums, rows: Sequence[Row[Any]]) -> None:
    for row in rows:
        found = sums[UsageKey(row.tenant_id, row.vm_type_id, row.label, row.resource)]
        found[0] += int(row.held_s) * SECOND + int(row.held_us)
        found[1] += int(row.charged_s) * SECOND + int(row.charged_us)
