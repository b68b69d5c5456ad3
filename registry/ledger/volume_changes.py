"""Changes of volumes: what follows from each state, and what follows from the end of others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, and_, select, update

from registry.audit.changes import VOLUME
from registry.audit.events import event_row, record_events
from registry.db.bulk import chunks, is_any_of, update_rows
from registry.db.row_leases import VOLUMES
from registry.db.schema import assignments, tenants, volumes
from registry.lifecycle import CHANGING_VOLUMES, WITH_VM, WITHOUT_FILE, VolumeEvent, VolumeState
from registry.records.volumes import DETACH_TIMEOUT_S

#: A VM that has had its volume once starts without it elsewhere: the volume is not bound to it.
_UNBOUND: Final = (VolumeState.ATTACHED, VolumeState.REMOVED)
_UNBINDING: Final = (VolumeEvent.DETACH_REQUESTED, VolumeEvent.ATTACH_FAILED)


def release_volumes(
    connection: Connection, assignment_ids: Collection[UUID], *, now: datetime, actor: str
) -> list[dict[str, Any]]:
    """Take volumes from assignments that are released; return the event rows.

    The volumes keep their files, and what they hold on their hosts. Workers make files for active
    assignments alone: of another one, a volume without a file holds nothing from now on.
    """
    history: list[dict[str, Any]] = []
    for some in chunks(sorted(assignment_ids)):
        which = is_any_of(connection, volumes.c.assignment_id, some)
        rows = _lock_volumes(connection, which)
        if not rows:
            continue
        never_active = set(
            connection.scalars(
                select(assignments.c.id).where(
                    is_any_of(connection, assignments.c.id, some),
                    assignments.c.activated_at.is_(None),
                )
            )
        )
        for row in rows:
            unmade = row.state == VolumeState.CREATING and row.assignment_id in never_active
            event = VolumeEvent.NOT_BUILT if unmade else VolumeEvent.VM_GONE
            history.append(
                change_volume(connection, row, event, now=now, actor=actor, last_error=None)[1]
            )
    return history


def unbind_volumes(
    connection: Connection, vm_ids: Collection[UUID], *, now: datetime, actor: str
) -> list[dict[str, Any]]:
    """Give back the volumes that requests brought for VMs which are gone; return the event rows.

    Volumes that a request created, and whose files were never made, end with their VMs unless they
    are protected.
    """
    history: list[dict[str, Any]] = []
    for some in chunks(sorted(vm_ids)):
        which = is_any_of(connection, volumes.c.bound_vm_id, some)
        for row in _lock_volumes(connection, which):
            unmade = row.created_by_request and row.state == VolumeState.UNPLACED
            if unmade and not row.protected:
                event = VolumeEvent.REMOVE_REQUESTED
                history.append(change_volume(connection, row, event, now=now, actor=actor)[1])
            else:
                history.append(unbind_volume(connection, row, now=now, actor=actor))
    return history


def unbind_volume(
    connection: Connection, row: Row[Any], *, now: datetime, actor: str
) -> dict[str, Any]:
    """Give back a locked volume that a request brought; return the row of the history."""
    connection.execute(update(volumes).where(volumes.c.id == row.id).values(bound_vm_id=None))
    return event_row(
        now,
        actor,
        "volume_unbound",
        "volume",
        row.id,
        tenant=row.tenant,
        data={"name": row.name, "vm": str(row.bound_vm_id)},
    )


def attach_bound_volumes(
    connection: Connection,
    places: Mapping[UUID, tuple[UUID, UUID, str]],
    *,
    now: datetime,
    actor: str,
) -> None:
    """Have workers attach the volumes that requests brought for VMs which a round placed.

    Volumes without a file are placed with their VMs, and hold their size there.

    Parameters
    ----------
    places : mapping
        The assignment of each VM, its host and the host's name; all of them are locked.
    """
    found: list[tuple[Row[Any], Mapping[str, Any]]] = []
    history: list[dict[str, Any]] = []
    for some in chunks(sorted(places)):
        for row in _lock_volumes(connection, is_any_of(connection, volumes.c.bound_vm_id, some)):
            assignment_id, host_id, host = places[row.bound_vm_id]
            values = {"vm_id": row.bound_vm_id, "assignment_id": assignment_id, "host_id": host_id}
            _, changed, event = plan_change(
                row,
                VolumeEvent.ATTACH_REQUESTED,
                now=now,
                actor=actor,
                data={"vm": str(row.bound_vm_id), "host": host},
                last_error=None,
                **values,
            )
            found.append((row, changed))
            history.append(event)
    # In the order of the hosts, whose inventories the ledger's triggers lock.
    found.sort(key=lambda each: (each[1]["host_id"], each[0].id))
    update_rows(connection, volumes, [{"id": row.id, **changed} for row, changed in found])
    record_events(connection, history)


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

    The changed columns are those of `plan_change`.
    """
    after, changed, history = plan_change(
        row, event, now=now, actor=actor, reason=reason, data=data, keep_claim=keep_claim, **values
    )
    connection.execute(update(volumes).where(volumes.c.id == row.id).values(changed))
    return after, history


def plan_change(
    row: Row[Any],
    event: VolumeEvent,
    *,
    now: datetime,
    actor: str,
    reason: str | None = None,
    data: Mapping[str, Any] | None = None,
    keep_claim: bool = False,
    **values: Any,
) -> tuple[VolumeState, dict[str, Any], dict[str, Any]]:
    """Return the new state of a locked volume, its changed columns, and the row of the history.

    The columns are those that follow from the state, and ``values``. The claim of a worker ends,
    unless it is kept for what the new state requires.
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
    if after in _UNBOUND or event in _UNBINDING:
        values["bound_vm_id"] = None
    known = {"name": row.name} if row.vm_id is None else {"name": row.name, "vm": str(row.vm_id)}
    history = step.row(
        now, actor, row.id, tenant=row.tenant, reason=reason, data={**known, **(data or {})}
    )
    return after, {"state": after.value, **values}, history
