"""What becomes of VMs that wait on a host for an image that does not get there."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, or_, select, update

from registry.ground.locks import lock_vms_on
from registry.ground.schema import assignments, request_images, tenants, unreleased, vms
from registry.journal.events import assignment_row, record
from registry.ledger.avoidance import avoid
from registry.ledger.progress import recompute
from registry.lifecycle import (
    ASSIGNMENT_TRANSITIONS,
    AssignmentEvent,
    AssignmentState,
    next_state,
)


def give_up_builds(
    connection: Connection,
    host_id: UUID,
    image_id: UUID,
    *,
    reason: str,
    now: datetime,
    actor: str,
) -> None:
    """End the builds on a host that wait for an image, whose host is locked.

    What nobody ever claimed has no domain and is released. What somebody claimed
    before the image went missing may have one: it is quarantined like any build
    that failed. What is claimed now ends by itself.
    """
    lock_vms_on(connection, host_id)
    rows = connection.execute(
        select(
            assignments.c.id,
            assignments.c.vm_id,
            assignments.c.state,
            vms.c.request_id,
            tenants.c.name.label("tenant"),
        )
        .select_from(assignments)
        .join(vms, vms.c.id == assignments.c.vm_id)
        .join(tenants, tenants.c.id == vms.c.tenant_id)
        .join(request_images, request_images.c.request_id == vms.c.request_id)
        .where(
            assignments.c.host_id == host_id,
            unreleased,
            request_images.c.image_id == image_id,
            assignments.c.state.in_(
                [AssignmentState.RESERVED.value, AssignmentState.CREATING.value]
            ),
            or_(assignments.c.claim_until.is_(None), assignments.c.claim_until <= now),
        )
        .order_by(assignments.c.id)
        .with_for_update(of=assignments, key_share=True)
    ).all()
    history: list[dict[str, Any]] = []
    for row in rows:
        before = AssignmentState(row.state)
        reserved = before == AssignmentState.RESERVED
        event = AssignmentEvent.WITHDRAWN if reserved else AssignmentEvent.FAILED
        after = next_state(ASSIGNMENT_TRANSITIONS, before, event)
        connection.execute(
            update(assignments)
            .where(assignments.c.id == row.id)
            .values(
                state=after.value,
                released_at=now if reserved else None,
                last_error=reason,
                sent_at=None,
            )
        )
        connection.execute(update(vms).where(vms.c.id == row.vm_id).values(last_error=reason))
        history.append(
            assignment_row(
                now,
                actor,
                row.id,
                vm_id=row.vm_id,
                tenant=row.tenant,
                change=(before, after),
                event=event,
                reason=reason,
            )
        )
    record(connection, history)
    concerned = sorted({row.request_id for row in rows})
    for request_id in concerned:
        avoid(connection, request_id, host_id, now)
    recompute(connection, concerned, now=now, actor=actor, reason=reason)
