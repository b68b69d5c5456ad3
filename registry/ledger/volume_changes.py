"""Changes of volumes that neither a call nor a worker makes: their VM, disk or host is gone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, and_, select, update

from registry.audit.changes import VOLUME
from registry.audit.events import record_events
from registry.db.bulk import chunks, is_any_of
from registry.db.row_leases import VOLUMES
from registry.db.schema import tenants, volumes
from registry.lifecycle import WITH_VM, WITHOUT_FILE, VolumeEvent, VolumeState


def release_volumes(
    connection: Connection, assignment_ids: Collection[UUID], *, now: datetime, actor: str
) -> list[dict[str, Any]]:
    """Take volumes from assignments that are released; return the event rows.

    The volumes keep their files, and what they hold on their hosts.
    """
    history: list[dict[str, Any]] = []
    for some in chunks(sorted(assignment_ids)):
        which = is_any_of(connection, volumes.c.assignment_id, some)
        history += [
            _write_event(connection, row, VolumeEvent.VM_GONE, now=now, actor=actor)
            for row in _lock_volumes(connection, which)
        ]
    return history


def attach_again(
    connection: Connection, volume_ids: Collection[UUID], *, now: datetime, actor: str
) -> None:
    """Have workers attach volumes again whose VMs have lost the disk."""
    for some in chunks(sorted(volume_ids)):
        which = is_any_of(connection, volumes.c.id, some)
        attached = volumes.c.state == VolumeState.ATTACHED.value
        record_events(
            connection,
            [
                _write_event(connection, row, VolumeEvent.DISK_GONE, now=now, actor=actor)
                for row in _lock_volumes(connection, and_(which, attached))
            ],
        )


def lose_volumes(connection: Connection, host_id: UUID, *, now: datetime, actor: str) -> int:
    """Record that the files of a host's volumes, which no VM has, are lost; return their number."""
    rows = _lock_volumes(connection, volumes.c.host_id == host_id)
    record_events(
        connection,
        [_write_event(connection, row, VolumeEvent.LOST, now=now, actor=actor) for row in rows],
    )
    return len(rows)


def _lock_volumes(connection: Connection, which: ColumnElement[bool]) -> Sequence[Row[Any]]:
    """Lock and return the volumes that meet a condition, with the names of their tenants."""
    query = (
        select(volumes, tenants.c.name.label("tenant"))
        .join(tenants, tenants.c.id == volumes.c.tenant_id)
        .where(which)
        .order_by(volumes.c.id)
        .with_for_update(of=volumes, key_share=True)
    )
    return connection.execute(query).all()


def _write_event(
    connection: Connection, row: Row[Any], event: VolumeEvent, *, now: datetime, actor: str
) -> dict[str, Any]:
    """Change the state of a locked volume by an event; return the row of the history."""
    step = VOLUME.step(row.state, event)
    values: dict[str, Any] = {**VOLUMES.none, "due_at": now, "sent_at": None, "attempts": 0}
    if step.after not in WITH_VM:
        values |= {"vm_id": None, "assignment_id": None, "detach_until": None}
    if step.after in WITHOUT_FILE:
        values["host_id"] = None
    if step.after == VolumeState.REMOVED:
        values["removed_at"] = now
    connection.execute(
        update(volumes).where(volumes.c.id == row.id).values(state=step.after.value, **values)
    )
    data = {"name": row.name}
    if row.vm_id is not None:
        data["vm"] = str(row.vm_id)
    return step.row(now, actor, row.id, tenant=row.tenant, data=data)
