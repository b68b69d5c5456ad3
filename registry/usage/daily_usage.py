"""Sums of usage per tenant, day, VM type and resource, from assignments that are over.

Each released assignment is added once, a day after its release, and marked. So the usage of a
period is the stored sums of its days and the assignments that are not marked, whatever is purged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import date, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import BigInteger, ColumnElement, Connection, Row, literal, select, update
from sqlalchemy.dialects import postgresql, sqlite

from registry.catalogue.resources import VMS
from registry.db.bulk import chunks, is_any_of
from registry.db.locks import take_advisory_lock
from registry.db.schema import assignment_resources, assignments, borrowed_times, daily_usage
from registry.usage.borrowed_times import BORROWED
from registry.usage.holding_times import (
    IS_RELEASED,
    IS_UNSUMMED,
    SECOND,
    charged_until,
    holding_times,
    to_microseconds,
)

DAY: Final = 86_400 * SECOND
SUMS: Final = "daily_usage"  #: the key under which `take_advisory_lock` serializes additions
_EPOCH: Final = date(1970, 1, 1)
#: Tenant, day, VM type and resource.
_Key = tuple[UUID, int, UUID, str]


def to_day(number: int) -> date:
    """Return the day with this number, counted from 1970-01-01."""
    return _EPOCH + timedelta(days=number)


def to_number(day: date) -> int:
    """Return the number of a day, counted from 1970-01-01."""
    return (day - _EPOCH).days


def next_month(day: date) -> date:
    """Return the first day of the month after that of a day."""
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def add_to_sums(
    connection: Connection, which: ColumnElement[bool], *, max_rows: int | None = None
) -> int:
    """Add released assignments that meet a condition to the sums; return their number.

    Assignments that are in the sums already are left out.
    """
    take_advisory_lock(connection, SUMS)
    times = (
        # Released assignments have an end: no time of now is used.
        holding_times(literal(0, BigInteger))
        .where(IS_RELEASED, IS_UNSUMMED, which)
        .order_by(assignments.c.released_at)
        .limit(max_rows)
        .subquery()
    )
    rows = connection.execute(select(times, charged_until(times).label("charged_until"))).all()
    sums: defaultdict[_Key, list[int]] = defaultdict(lambda: [0, 0])
    for some in chunks(rows):
        amounts = _amounts(connection, [row.id for row in some])
        _add_rows(sums, some, amounts, _borrowed(connection, [row.vm_id for row in some]))
    _upsert(connection, sums)
    for some in chunks([row.id for row in rows]):
        mine = is_any_of(connection, assignments.c.id, some)
        connection.execute(update(assignments).where(mine).values(in_daily_usage=True))
    return len(rows)


def _amounts(connection: Connection, keys: Sequence[UUID]) -> dict[UUID, dict[str, int]]:
    found: dict[UUID, dict[str, int]] = {key: {VMS: 1} for key in keys}
    query = select(assignment_resources).where(
        is_any_of(connection, assignment_resources.c.assignment_id, keys)
    )
    for row in connection.execute(query):
        found[row.assignment_id][row.resource] = row.amount
    return found


def _borrowed(
    connection: Connection, vm_keys: Collection[UUID]
) -> defaultdict[UUID, list[tuple[int, int | None]]]:
    """Return the times in which VMs were borrowed, in microseconds since 1970."""
    found: defaultdict[UUID, list[tuple[int, int | None]]] = defaultdict(list)
    query = select(borrowed_times).where(
        is_any_of(connection, borrowed_times.c.vm_id, sorted(set(vm_keys)))
    )
    for row in connection.execute(query):
        until = None if row.until is None else to_microseconds(row.until)
        found[row.vm_id].append((to_microseconds(row.since), until))
    return found


def _add_rows(
    sums: defaultdict[_Key, list[int]],
    rows: Collection[Row[Any]],
    amounts: dict[UUID, dict[str, int]],
    borrowed: defaultdict[UUID, list[tuple[int, int | None]]],
) -> None:
    for row in rows:
        # Held and charged times differ by little, and are both cut at midnight.
        spans = [(row.held_from, row.held_until)]
        if row.charged_from is not None:
            spans.append((row.charged_from, row.charged_until))
        for column, (start, end) in enumerate(spans):
            for day, length in _days(start, end):
                for resource, amount in amounts[row.id].items():
                    key = (row.tenant_id, day, row.vm_type_id, resource)
                    sums[key][column] += amount * length
            # What a borrowed VM took moves to sums of its own.
            for since, until in borrowed[row.vm_id]:
                begin = max(start, since)
                for day, length in _days(begin, end if until is None else min(end, until)):
                    for resource, amount in amounts[row.id].items():
                        of_all = (row.tenant_id, day, row.vm_type_id, resource)
                        of_borrowed = (*of_all[:3], BORROWED + resource)
                        sums[of_all][column] -= amount * length
                        sums[of_borrowed][column] += amount * length


def _days(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield each day of a time with the microseconds of the time on that day."""
    while start < end:
        midnight = (start // DAY + 1) * DAY
        yield start // DAY, min(end, midnight) - start
        start = midnight


def _upsert(connection: Connection, sums: dict[_Key, list[int]]) -> None:
    make = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    insert = make(daily_usage)
    added = {
        name: daily_usage.c[name] + insert.excluded[name]
        for name in ("held_s", "held_us", "charged_s", "charged_us")
    }
    upsert = insert.on_conflict_do_update(
        index_elements=list(daily_usage.primary_key.columns), set_=added
    )
    rows = [
        {
            "tenant_id": tenant_id,
            "day": to_day(day),
            "vm_type_id": vm_type_id,
            "resource": resource,
            "held_s": held // SECOND,
            "held_us": held % SECOND,
            "charged_s": charged // SECOND,
            "charged_us": charged % SECOND,
        }
        for (tenant_id, day, vm_type_id, resource), (held, charged) in sums.items()
    ]
    for some in chunks(rows):
        connection.execute(upsert, list(some))
