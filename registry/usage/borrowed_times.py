"""From when to when each VM was borrowed, and what part of usage that is.

A VM of an elastic request can become borrowed and ordinary again. A time without an end lasts as
long as the VM holds anything. Usage of borrowed VMs has names of its own: `borrowed:vcpus` is what
they took of `vcpus`, which then has the rest.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, delete, func, insert, select, update

from registry.db.bulk import chunks, is_any_of
from registry.db.ids import uuid7
from registry.db.schema import assignments, borrowed_times

#: What the name of a resource begins with in usage and prices of borrowed VMs.
BORROWED: Final = "borrowed:"


def begin_to_borrow(connection: Connection, keys: Collection[UUID], now: datetime) -> None:
    """Record that VMs are borrowed from now on.

    Their times do not overlap, even if the clock went back by a little.
    """
    for some in chunks(sorted(keys)):
        before = (
            select(borrowed_times.c.vm_id, func.max(borrowed_times.c.until).label("until"))
            .where(is_any_of(connection, borrowed_times.c.vm_id, some))
            .group_by(borrowed_times.c.vm_id)
        )
        ends = {row.vm_id: row.until for row in connection.execute(before)}
        rows = [
            {"id": uuid7(), "vm_id": key, "since": max(now, ends.get(key) or now)} for key in some
        ]
        connection.execute(insert(borrowed_times), rows)


def end_to_borrow(connection: Connection, keys: Collection[UUID], now: datetime) -> None:
    """Record that VMs are ordinary ones from now on."""
    for some in chunks(sorted(keys)):
        of_vms = is_any_of(connection, borrowed_times.c.vm_id, some)
        are_open = borrowed_times.c.until.is_(None)
        connection.execute(update(borrowed_times).where(of_vms, are_open).values(until=now))


def forget_borrowed_times(connection: Connection, keys: Collection[UUID]) -> None:
    """Delete the times of those VMs that have no assignment any more: sums have what they held."""
    has_any = select(assignments.c.id).where(assignments.c.vm_id == borrowed_times.c.vm_id).exists()
    for some in chunks(sorted(set(keys))):
        of_vms = is_any_of(connection, borrowed_times.c.vm_id, some)
        connection.execute(delete(borrowed_times).where(of_vms, ~has_any))
