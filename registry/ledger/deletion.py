"""Deletion of VMs, and its consequences for their assignments."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, select

from registry.audit.changes import VM_DESIRED
from registry.audit.events import record_events
from registry.db.locks import lock_vms
from registry.db.schema import assignments, tenants, unreleased, vms
from registry.ledger.power import delete_power_changes
from registry.ledger.release import AssignmentRelease, lock_assignments, write_releases
from registry.ledger.request_progress import recompute_states
from registry.ledger.shared_disks import delete_kept_disks
from registry.ledger.volume_changes import unbind_volumes
from registry.lifecycle import AssignmentEvent, RequestEvent, VmDesired, VmDesiredEvent
from registry.networks.addresses import free_addresses


def delete_vms(
    connection: Connection,
    which: ColumnElement[bool],
    *,
    now: datetime,
    actor: str,
    request_event: RequestEvent | None = None,
    reason: str = "deleted",
) -> int:
    """Mark VMs as deleted and apply the event to their assignments; return the number of VMs.

    A reserved assignment is released at once: no worker claimed it, so there is no domain. All
    others keep their capacity until their domain is proven absent. VMs that were deleted before
    are skipped. ``request_event`` ends their requests, whatever the states of their VMs.
    """
    left = and_(which, vms.c.desired != VmDesired.DELETED.value)
    lock_vms(connection, left)
    held = lock_assignments(connection, left)
    place = select(assignments.c.id).where(assignments.c.vm_id == vms.c.id, unreleased)
    nowhere = connection.execute(
        select(
            vms.c.id.label("vm_id"), vms.c.desired, vms.c.request_id, tenants.c.name.label("tenant")
        )
        .join(tenants, tenants.c.id == vms.c.tenant_id)
        .where(left, ~place.exists())
    ).all()
    # A VM that moves has two assignments and is deleted once.
    rows = list({row.vm_id: row for row in (*held, *nowhere)}.values())
    if not rows:
        return 0
    rows.sort(key=lambda row: row.vm_id)
    history: list[dict[str, Any]] = []
    changes: dict[UUID, dict[str, Any]] = {}
    for row in rows:
        step = VM_DESIRED.step(row.desired, VmDesiredEvent.DELETE)
        changes[row.vm_id] = {"desired": step.after.value}
        history.append(step.row(now, actor, row.vm_id, tenant=row.tenant))
    for row in nowhere:
        changes[row.vm_id]["deleted_at"] = now
    free_addresses(connection, [row.vm_id for row in nowhere])
    history += unbind_volumes(connection, [row.vm_id for row in nowhere], now=now, actor=actor)
    endings = [AssignmentRelease(row, AssignmentEvent.DELETE_REQUESTED) for row in held]
    history += write_releases(connection, endings, now=now, actor=actor, changed=changes)
    record_events(connection, history)
    delete_power_changes(connection, list(changes), now=now, actor=actor)
    delete_kept_disks(connection, list(changes))
    recompute_states(
        connection,
        {row.request_id for row in rows},
        now=now,
        actor=actor,
        reason=reason,
        event=request_event,
    )
    return len(rows)
