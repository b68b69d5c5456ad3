"""A host that is down and proven to be off: what it held is free, and decided again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, delete, insert, select, update

from registry.ground.bulk import chunks
from registry.ground.claims import ASSIGNMENTS, FENCES, is_claimed
from registry.ground.locks import lock_vms_on
from registry.ground.schema import assignments, host_fences, tenants, unreleased, vms
from registry.journal.events import assignment_row, event_row, record
from registry.ledger.power import drop_power
from registry.ledger.progress import recompute
from registry.lifecycle import (
    ASSIGNMENT_TRANSITIONS,
    FENCE_TRANSITIONS,
    VM_OBSERVED_TRANSITIONS,
    AssignmentEvent,
    AssignmentState,
    FenceEvent,
    FenceState,
    VmDesired,
    VmObserved,
    VmObservedEvent,
    next_state,
)
from registry.networks.addresses import free_addresses
from registry.records.hosts import Fence

#: To be fenced, or being so.
OPEN: Final = (FenceState.ASKED.value, FenceState.RUNNING.value)


def fence_row(connection: Connection, host_id: UUID) -> Row[Any] | None:
    """Return the fencing of a host, whose row the caller has locked; None: nothing is asked."""
    query = select(host_fences).where(host_fences.c.host_id == host_id)
    return connection.execute(query.with_for_update()).one_or_none()


def fences_of(connection: Connection, host_ids: Collection[UUID]) -> dict[UUID, Fence]:
    """Return what is known of the fencing of these hosts, where anything is."""
    found = {}
    for some in chunks(sorted(host_ids)):
        for row in connection.execute(select(host_fences).where(host_fences.c.host_id.in_(some))):
            found[row.host_id] = Fence(
                state=FenceState(row.state),
                asked_by=row.asked_by,
                asked_at=row.asked_at,
                attempts=row.attempts,
                last_error=row.last_error,
                again_at=row.again_at,
                fenced_at=row.fenced_at,
            )
    return found


def is_being_fenced(row: Row[Any] | None, now: datetime) -> bool:
    """Tell whether a worker may be running the command at this moment."""
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
    """Take one step of a host's fencing; ``values`` are further columns of its row."""
    before = FenceState(row.state) if row is not None else FenceState.IDLE
    after = next_state(FENCE_TRANSITIONS, before, event)
    here = host_fences.c.host_id == host_id
    if after == FenceState.IDLE:
        connection.execute(delete(host_fences).where(here))
    elif row is None:
        asked = {"asked_by": actor, "asked_at": now, "epoch": epoch}
        new = {"host_id": host_id, "state": after.value} | asked | values
        connection.execute(insert(host_fences).values(**new))
    else:
        FENCES.write(connection, host_id, state=after.value, **values)
    history = event_row(
        now,
        actor,
        "host_fence",
        "host",
        host_id,
        change=(before, after),
        event=event,
        reason=reason,
        data={"name": host_name} | ({} if epoch is None else {"epoch": epoch}),
    )
    record(connection, [history])
    return after


def release_all(
    connection: Connection, host_id: UUID, host_name: str, *, now: datetime, actor: str
) -> int:
    """Release whatever a host holds, which is proven to be off; return how many VMs that were.

    Who still works on one of them holds a claim that is gone: it can neither
    write that its domain started nor let it run.
    """
    lock_vms_on(connection, host_id)
    rows = connection.execute(
        select(
            assignments.c.id,
            assignments.c.state,
            assignments.c.vm_id,
            vms.c.request_id,
            vms.c.observed,
            vms.c.desired,
            tenants.c.name.label("tenant"),
        )
        .select_from(assignments)
        .join(vms, vms.c.id == assignments.c.vm_id)
        .join(tenants, tenants.c.id == vms.c.tenant_id)
        .where(assignments.c.host_id == host_id, unreleased)
        .order_by(assignments.c.id)
        .with_for_update(of=assignments, key_share=True)
    ).all()
    reason = f"host {host_name} is off: what its VMs had on their disks is lost"
    history: list[dict[str, Any]] = []
    observed: defaultdict[VmObserved, list[UUID]] = defaultdict(list)
    for row in rows:
        before, event = AssignmentState(row.state), AssignmentEvent.FENCED
        history.append(
            assignment_row(
                now,
                actor,
                row.id,
                vm_id=row.vm_id,
                tenant=row.tenant,
                change=(before, next_state(ASSIGNMENT_TRANSITIONS, before, event)),
                event=event,
                reason=reason,
                host=host_name,
            )
        )
        was = VmObserved(row.observed)
        absent = next_state(VM_OBSERVED_TRANSITIONS, was, VmObservedEvent.PROVEN_ABSENT)
        if absent != was:
            observed[absent].append(row.vm_id)
            history.append(
                event_row(
                    now,
                    actor,
                    "vm_observed",
                    "vm",
                    row.vm_id,
                    tenant=row.tenant,
                    change=(was, absent),
                    event=VmObservedEvent.PROVEN_ABSENT,
                    reason=reason,
                    data={"host": host_name, "assignment": str(row.id)},
                )
            )
    for some in chunks([row.id for row in rows]):
        released = {"state": AssignmentState.RELEASED.value, "released_at": now, **ASSIGNMENTS.none}
        connection.execute(update(assignments).where(assignments.c.id.in_(some)).values(**released))
    for state, keys in observed.items():
        for some in chunks(keys):
            connection.execute(update(vms).where(vms.c.id.in_(some)).values(observed=state.value))
    gone = [row.vm_id for row in rows if row.desired == VmDesired.DELETED.value]
    for some in chunks(gone):
        connection.execute(update(vms).where(vms.c.id.in_(some)).values(deleted_at=now))
    free_addresses(connection, gone)
    record(connection, history)
    drop_power(connection, [row.vm_id for row in rows], now=now, actor=actor)
    recompute(connection, {row.request_id for row in rows}, now=now, actor=actor, reason=reason)
    return len(rows)
