"""Changes of volumes: what follows from each state, and what follows from the end of others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, and_, select, update

from registry.audit.changes import VOLUME
from registry.audit.events import record_events
from registry.db.bulk import chunks, is_any_of
from registry.db.row_leases import VOLUMES
from registry.db.schema import tenants, volumes
from registry.lifecycle import CHANGING_VOLUMES, WITH_VM, WITHOUT_FILE, VolumeEvent, VolumeState
from registry.records.volumes import DETACH_TIMEOUT_S


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
            change_volume(
                connection, row, VolumeEvent.VM_GONE, now=now, actor=actor, last_error=None
            )[1]
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
                change_volume(connection, row, VolumeEvent.DISK_GONE, now=now, actor=actor)[1]
                for row in _lock_volumes(connection, and_(which, attached))
            ],
        )


def lose_volumes(connection: Connection, host_id: UUID, *, now: datetime, actor: str) -> int:
    """Record that the files of a host's volumes, which no VM has, are lost; return their number."""
    rows = _lock_volumes(connection, volumes.c.host_id == host_id)
    record_events(
        connection,
        [change_volume(connection, row, VolumeEvent.LOST, now=now, actor=actor)[1] for row in rows],
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


def change_volume(
    connection: Connection,
    row: Row[Any],
    event: VolumeEvent,
    *,
    now: datetime,
    actor: str,
    reason: str | None = None,
    data: Mapping[str, Any] | None = None,
    keep_claim: bool = False,
    **values: Any,
) -> tuple[VolumeState, dict[str, Any]]:
    """Change the state of a locked volume; return the new state, and the row of the history.

    Columns that follow from the state are written as well; ``values`` are further ones. The claim
    of a worker ends, unless it is kept for what the new state requires.
    """
    step = VOLUME.step(row.state, event)
    after = step.after
    values |= {"changed_at": now, "due_at": now, "sent_at": None, "attempts": 0}
    if not (keep_claim and after in CHANGING_VOLUMES):
        values |= VOLUMES.none
    until = now + timedelta(seconds=DETACH_TIMEOUT_S)
    values["detach_until"] = until if after == VolumeState.DETACHING else None
    if after not in WITH_VM:
        values |= {"vm_id": None, "assignment_id": None}
    if after in WITHOUT_FILE:
        values["host_id"] = None
    if after == VolumeState.REMOVED:
        values["removed_at"] = now
    connection.execute(
        update(volumes).where(volumes.c.id == row.id).values(state=after.value, **values)
    )
    known = {"name": row.name} if row.vm_id is None else {"name": row.name, "vm": str(row.vm_id)}
    return after, step.row(
        now, actor, row.id, tenant=row.tenant, reason=reason, data={**known, **(data or {})}
    )
