"""What was charged in parts of a month, of many tenants at once: for the measuring of budgets.

`registry.usage.usage.read_lines` has the same sums, with a query for each part and many more, and
is what tests compare with. Here each assignment and each row of daily sums is read once, and the
database adds up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    String,
    and_,
    case,
    cast,
    func,
    literal,
    literal_column,
    select,
    union_all,
)

from registry.catalogue.resources import VMS
from registry.db.bulk import chunks, is_any_of
from registry.db.dialect import turn_off_jit
from registry.db.schema import (
    assignment_resources,
    assignments,
    borrowed_times,
    daily_usage,
    unreleased,
    vms,
)
from registry.usage.borrowed_times import BORROWED
from registry.usage.daily_usage import to_day
from registry.usage.holding_times import (
    IS_RELEASED,
    IS_UNSUMMED,
    SECOND,
    MicrosecondsOf,
    charged_until,
    greatest,
    holding_times,
    least,
    to_time,
)
from registry.usage.period_sums import Period, overlap

#: Tenant, VM type and resource, and unit microseconds in each part.
ChargedRow = tuple[UUID, UUID, str, Sequence[int]]
#: A statement has these keys three times; SQLite takes 32,766 parameters.
_TENANTS_AT_ONCE: Final = 8_000
_ZERO: Final = literal(0, BigInteger)


def has_sums_since(connection: Connection, day: int, keys: Collection[UUID]) -> bool:
    """Return whether daily sums of a day or of a later one have any usage of tenants."""
    for some in chunks(sorted(keys)):
        of_them = is_any_of(connection, daily_usage.c.tenant_id, some)
        query: Select[Any] = select(literal_column("1")).where(
            of_them, daily_usage.c.day >= to_day(day)
        )
        if connection.execute(query.limit(1)).first() is not None:
            return True
    return False


def read_charged(
    connection: Connection, parts: Sequence[Period], keys: Collection[UUID]
) -> Sequence[ChargedRow]:
    """Return what tenants were charged in parts that follow each other without a gap.

    The rows of the same tenant, VM type and resource are to be added up.

    Parameters
    ----------
    parts : sequence of Period
        Each begins at midnight, where the one before ends, or on the last day. The daily sums
        have nothing of that day (`has_sums_since`).
    keys : collection of UUID
        Tenants. All go by their keys, too: an index of `daily_usage` begins with them, and none
        with the days.
    """
    turn_off_jit(connection)
    found: list[ChargedRow] = []
    for some in chunks(sorted(keys), _TENANTS_AT_ONCE):
        found += _rows(connection, _all_sums(connection, parts, some))
        for tenant_id, vm_type_id, resource, sums in _borrowed_rows(connection, parts, some):
            found += (
                (tenant_id, vm_type_id, BORROWED + resource, sums),
                (tenant_id, vm_type_id, resource, [-each for each in sums]),
            )
    return found


def _rows(connection: Connection, query: Select[Any]) -> Iterator[ChargedRow]:
    for tenant_id, vm_type_id, resource, *sums in connection.execute(query):
        pairs = zip(sums[::2], sums[1::2], strict=True)
        yield tenant_id, vm_type_id, resource, [s * SECOND + us for s, us in pairs]


def _all_sums(connection: Connection, parts: Sequence[Period], keys: Sequence[UUID]) -> Select[Any]:
    """Return a query for the sums of assignments and of days together."""
    times = _times(connection, parts, keys)
    lengths = [_length(part, times.c.charged_from, charged_until(times)) for part in parts]
    both = union_all(*_of_assignments(times, lengths), _of_days(connection, parts, keys)).subquery()
    names = [column.name for column in both.c][3:]
    sums = [_sum(both.c[name]).label(name) for name in names]
    groups = (both.c.tenant_id, both.c.vm_type_id, both.c.resource)
    return select(*groups, *sums).group_by(*groups)


def _borrowed_rows(
    connection: Connection, parts: Sequence[Period], keys: Sequence[UUID]
) -> Iterator[ChargedRow]:
    """Yield the part of the sums of assignments that is of borrowed VMs."""
    if connection.execute(select(borrowed_times.c.id).limit(1)).first() is None:
        return
    times = _times(connection, parts, keys)
    lent = select(
        times,
        MicrosecondsOf(borrowed_times.c.since).label("lent_from"),
        MicrosecondsOf(borrowed_times.c.until).label("lent_until"),
    ).join(borrowed_times, borrowed_times.c.vm_id == times.c.vm_id)
    spans = lent.cte("lent").prefix_with("MATERIALIZED", dialect="postgresql")
    begin = greatest(spans.c.lent_from, spans.c.charged_from)
    end = least(spans.c.lent_until, charged_until(spans))
    lengths = [_length(part, begin, end) for part in parts]
    for query in _of_assignments(spans, lengths):
        yield from _rows(connection, query)


def _times(connection: Connection, parts: Sequence[Period], keys: Sequence[UUID]) -> Any:
    """Return the times of the assignments that are not in the daily sums, each read once."""
    since, until = parts[0].since, parts[-1].until
    # What is not released holds until the end of the last part.
    query = holding_times(literal(until, BigInteger)).where(
        assignments.c.created_at < to_time(until),
        is_any_of(connection, assignments.c.tenant_id, keys),
    )
    live = query.where(unreleased, vms.c.deleted_at.is_(None))
    ended = query.where(IS_RELEASED, IS_UNSUMMED, assignments.c.released_at > to_time(since))
    return union_all(live, ended).cte("times").prefix_with("MATERIALIZED", dialect="postgresql")


def _of_assignments(times: Any, lengths: Sequence[ColumnElement[int]]) -> list[Select[Any]]:
    """Return queries for amounts times lengths, of resources and of the VMs themselves."""
    columns = [length.label(f"length_{at}") for at, length in enumerate(lengths)]
    each = select(times.c.id, times.c.tenant_id, times.c.vm_type_id, *columns)
    spans = each.cte().prefix_with("MATERIALIZED", dialect="postgresql")
    amount = assignment_resources.c.amount
    of_resources = _sums(spans, len(lengths), assignment_resources.c.resource, amount).join(
        assignment_resources, assignment_resources.c.assignment_id == spans.c.id
    )
    of_vms = _sums(spans, len(lengths), cast(literal(VMS), String), literal(1, BigInteger))
    return [of_resources, of_vms]


def _sums(
    spans: Any, number: int, resource: ColumnElement[str], amount: ColumnElement[int]
) -> Select[Any]:
    """Return a query for sums; seconds and microseconds are apart, as 64 bits hold both so."""
    sums = []
    for at in range(number):
        length = spans.c[f"length_{at}"]
        sums.append(_sum(amount * (length // SECOND)).label(f"s_{at}"))
        sums.append(_sum(amount * (length % SECOND)).label(f"us_{at}"))
    groups = (spans.c.tenant_id, spans.c.vm_type_id, resource.label("resource"))
    return select(*groups, *sums).select_from(spans).group_by(*groups[:2], "resource")


def _of_days(connection: Connection, parts: Sequence[Period], keys: Sequence[UUID]) -> Select[Any]:
    """Return a query for the stored sums of the whole days of each part."""
    day, sums = daily_usage.c.day, []
    days = [part.whole_days for part in parts]
    for at, (first, last) in enumerate(days):
        inside = and_(day >= to_day(first), day < to_day(last))
        for name, unit in (("charged_s", "s"), ("charged_us", "us")):
            column = case((inside, daily_usage.c[name]), else_=_ZERO)
            sums.append((_sum(column) if first < last else _ZERO).label(f"{unit}_{at}"))
    groups = (daily_usage.c.tenant_id, daily_usage.c.vm_type_id, daily_usage.c.resource)
    query = select(*groups, *sums).group_by(*groups)
    return query.where(
        is_any_of(connection, daily_usage.c.tenant_id, keys),
        day >= to_day(days[0][0]),
        day < to_day(max(last for _, last in days)),
    )


def _length(part: Period, begin: ColumnElement[int], end: ColumnElement[int]) -> ColumnElement[int]:
    since, until = literal(part.since, BigInteger), literal(part.until, BigInteger)
    return overlap(begin, end, since, until)


def _sum(column: ColumnElement[int]) -> ColumnElement[int]:
    """Return a sum as an integer: PostgreSQL would return decimals."""
    return cast(func.sum(column), BigInteger)
