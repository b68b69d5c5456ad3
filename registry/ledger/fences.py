"""Rows and steps of host fencing; see `registry.tasks.fencing`."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, delete, insert, select

from registry.audit.changes import FENCE
from registry.db.bulk import chunks
from registry.db.row_conversion import record_of
from registry.db.row_leases import FENCES, is_claimed
from registry.db.schema import host_fences
from registry.lifecycle import FenceEvent, FenceState
from registry.records.hosts import Fence

#: States in which a fence is pending or runs.
OPEN: Final = (FenceState.PENDING.value, FenceState.RUNNING.value)


def fence_row(connection: Connection, host_id: UUID) -> Row[Any] | None:
    """Return the fencing of a host, whose row is locked, or None if none is pending."""
    query = select(host_fences).where(host_fences.c.host_id == host_id)
    return connection.execute(query.with_for_update()).one_or_none()


def read_fences(connection: Connection, host_ids: Collection[UUID]) -> dict[UUID, Fence]:
    """Return the progress of these hosts' fencing, by host."""
    found = {}
    for some in chunks(sorted(host_ids)):
        for row in connection.execute(select(host_fences).where(host_fences.c.host_id.in_(some))):
            found[row.host_id] = record_of(Fence, row)
    return found


def is_being_fenced(row: Row[Any] | None, now: datetime) -> bool:
    """Return whether a worker may be running the fencing command of a host now."""
    return row is not None and row.state == FenceState.RUNNING.value and is_claimed(row, now)


def change_fence(
    connection: Connection,
    row: Row[Any] | None,
    event: FenceEvent,
    *,
    host_id: UUID,
    host_name: str,
    now: datetime,
    actor: str,
    reason: str | None = None,
    epoch: int | None = None,
    **values: Any,
) -> FenceState:
    """Apply an event to a host's fencing; ``values`` are further columns of its row."""
    step = FENCE.step(row.state if row is not None else FenceState.IDLE, event)
    after = step.after
    here = host_fences.c.host_id == host_id
    if after == FenceState.IDLE:
        connection.execute(delete(host_fences).where(here))
    elif row is None:
        new_values = {"requested_by": actor, "requested_at": now, "epoch": epoch}
        new = {"host_id": host_id, "state": after.value} | new_values | values
        connection.execute(insert(host_fences).values(**new))
    else:
        FENCES.update_row(connection, host_id, state=after.value, **values)
    data = {"name": host_name} | ({} if epoch is None else {"epoch": epoch})
    step.record_event(connection, now, actor, host_id, reason=reason, data=data)
    return after
