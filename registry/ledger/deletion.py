"""Deleting VMs: what their tenant wants, and what that means for their assignments."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, select, update

from registry.ground.bulk import chunks
from registry.ground.locks import lock_assignments_of, lock_vms
from registry.ground.schema import assignments, tenants, unreleased, vms
from registry.journal.events import assignment_row, event_row, record
from registry.ledger.power import drop_power
from registry.ledger.progress import recompute
from registry.lifecycle import (
    ASSIGNMENT_TRANSITIONS,
    VM_DESIRED_TRANSITIONS,
    AssignmentEvent,
    AssignmentState,
    RequestEvent,
    VmDesired,
    VmDesiredEvent,
    next_state,
)
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
    """Mark VMs as deleted and send their assignments the event; return how many were marked.

    A reserved assignment is released at once: nobody claimed it, so there is
    no domain. All others keep their capacity until their domain is proven
    absent. VMs that were deleted before are left alone. ``request_event`` ends
    their requests, whatever their VMs say.
    """
    lock_vms(connection, and_(which, vms.c.desired != VmDesired.DELETED.value))
    lock_assignments_of(connection, which)
    rows = connection.execute(
        select(
            vms.c.id,
            vms.c.desired,
            vms.c.request_id,
            tenants.c.name.label("tenant"),
            assignments.c.id.label("assignment_id"),
            assignments.c.state,
        )
        .select_from(vms)
        .join(tenants, tenants.c.id == vms.c.tenant_id)
        .outerjoin(assignments, and_(assignments.c.vm_id == vms.c.id, unreleased))
        .where(which, vms.c.desired != VmDesired.DELETED.value)
        .order_by(vms.c.id)
    ).all()
    if not rows:
        return 0
    gone: defaultdict[datetime | None, list[UUID]] = defaultdict(list)
    changes: defaultdict[AssignmentState, list[UUID]] = defaultdict(list)
    history: list[dict[str, Any]] = []
    for row in rows:
        before = VmDesired(row.desired)
        after = next_state(VM_DESIRED_TRANSITIONS, before, VmDesiredEvent.DELETE)
        history.append(
            event_row(
                now,
                actor,
                "vm_desired",
                "vm",
                row.id,
                tenant=row.tenant,
                change=(before, after),
                event=VmDesiredEvent.DELETE,
            )
        )
        deleted_at: datetime | None = now
        if row.assignment_id is not None:
            held = AssignmentState(row.state)
            event = AssignmentEvent.DELETE_REQUESTED
            ends = next_state(ASSIGNMENT_TRANSITIONS, held, event)
            deleted_at = now if ends == AssignmentState.RELEASED else None
            if ends != held:
                changes[ends].append(row.assignment_id)
                history.append(
                    assignment_row(
                        now,
                        actor,
                        row.assignment_id,
                        vm_id=row.id,
                        tenant=row.tenant,
                        change=(held, ends),
                        event=event,
                    )
                )
        gone[deleted_at].append(row.id)
    for ended, keys in gone.items():
        for some in chunks(keys):
            connection.execute(
                update(vms)
                .where(vms.c.id.in_(some))
                .values(desired=VmDesired.DELETED.value, deleted_at=ended)
            )
        if ended is not None:
            free_addresses(connection, keys)
    for ends, keys in changes.items():
        released_at = now if ends == AssignmentState.RELEASED else None
        for some in chunks(keys):
            # Sent at once: the removal need not wait for the last sending to grow old.
            connection.execute(
                update(assignments)
                .where(assignments.c.id.in_(some))
                .values(state=ends.value, released_at=released_at, sent_at=None)
            )
    record(connection, history)
    drop_power(connection, [row.id for row in rows], now=now, actor=actor)
    recompute(
        connection,
        {row.request_id for row in rows},
        now=now,
        actor=actor,
        reason=reason,
        event=request_event,
    )
    return len(rows)
