"""Power changes that tenants request: stop, start or reboot one VM, or all VMs of a request."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, and_, update

from registry.audit.changes import VM_DESIRED
from registry.audit.events import record_events
from registry.db.bulk import chunks
from registry.db.locks import lock_vms
from registry.db.names import check_int
from registry.db.schema import vms
from registry.errors import ConflictError
from registry.ledger.power import MAX_TIMEOUT_S, power_query, write_power_action
from registry.ledger.request_progress import recompute_states
from registry.lifecycle import AssignmentState, PowerEvent, VmDesired, VmDesiredEvent, VmObserved

_POWER_EVENT_OF: Final[Mapping[VmDesiredEvent, PowerEvent]] = MappingProxyType(
    {
        VmDesiredEvent.STOP: PowerEvent.STOP,
        VmDesiredEvent.START: PowerEvent.START,
        VmDesiredEvent.REBOOT: PowerEvent.REBOOT,
    }
)
#: Assignment states with a domain, now or soon.
_BUILT: Final = (AssignmentState.ACTIVE.value,)
_BUILDING: Final = (AssignmentState.RESERVED.value, AssignmentState.CREATING.value)


def request_power_change(
    connection: Connection,
    vm_id: UUID,
    event: VmDesiredEvent,
    *,
    timeout_s: int,
    now: datetime,
    actor: str,
) -> None:
    """Request a power change of one VM.

    It raises `ConflictError` if the VM is deleted, or if it does not run and is to be rebooted.
    """
    lock_vms(connection, vms.c.id == vm_id)
    row = connection.execute(power_query(vms.c.id == vm_id)).one()
    if row.desired == VmDesired.DELETED.value:
        raise ConflictError(f"VM {row.name} is deleted")
    if event == VmDesiredEvent.REBOOT and not _can_reboot(row):
        why = (
            "it is stopped: start it"
            if row.desired == VmDesired.STOPPED.value
            else "it does not run yet"
        )
        raise ConflictError(f"VM {row.name} cannot be rebooted: {why}")
    _store_power_changes(connection, [row], event, timeout_s=timeout_s, now=now, actor=actor)


def request_power_changes(
    connection: Connection,
    request_id: UUID,
    event: VmDesiredEvent,
    *,
    timeout_s: int,
    now: datetime,
    actor: str,
) -> None:
    """Request a power change of every VM of a request whose state allows it."""
    which = and_(vms.c.request_id == request_id, vms.c.desired != VmDesired.DELETED.value)
    lock_vms(connection, which)
    rows = connection.execute(power_query(which)).all()
    if event == VmDesiredEvent.REBOOT:
        running = [row for row in rows if _can_reboot(row)]
        if not running:
            stopped = any(row.desired == VmDesired.STOPPED.value for row in rows)
            why = "those that were built are stopped: start it" if stopped else "none runs yet"
            raise ConflictError(f"no VM of this request can be rebooted: {why}")
        rows = running
    _store_power_changes(connection, rows, event, timeout_s=timeout_s, now=now, actor=actor)


def _can_reboot(row: Row[Any]) -> bool:
    """Return whether a VM can be rebooted: it should run, and a domain of it exists."""
    return (
        row.desired == VmDesired.RUNNING.value
        and row.assignment_state in _BUILT
        and row.observed != VmObserved.ABSENT.value
    )


def _store_power_changes(
    connection: Connection,
    rows: Collection[Row[Any]],
    event: VmDesiredEvent,
    *,
    timeout_s: int,
    now: datetime,
    actor: str,
) -> None:
    """Store the requested power changes of VMs for workers, with the VMs' desired states."""
    check_int("timeout_s", timeout_s, 0, MAX_TIMEOUT_S)
    history: list[dict[str, Any]] = []
    changed: dict[VmDesired, list[UUID]] = {}
    for row in rows:
        step = VM_DESIRED.step(row.desired, event)
        if step.moved:
            changed.setdefault(step.after, []).append(row.id)
            history.append(step.row(now, actor, row.id, tenant=row.tenant))
        if _needs_worker(row, event):
            action = _POWER_EVENT_OF[event]
            history.append(
                write_power_action(
                    connection, row, action, timeout_s=timeout_s, now=now, actor=actor
                )
            )
    for desired, keys in changed.items():
        for some in chunks(keys):
            connection.execute(update(vms).where(vms.c.id.in_(some)).values(desired=desired.value))
    record_events(connection, history)
    recompute_states(connection, {row.request_id for row in rows}, now=now, actor=actor)


def _needs_worker(row: Row[Any], event: VmDesiredEvent) -> bool:
    """Return whether a power change needs a worker: the VM has or will have a domain."""
    if row.assignment_state in _BUILT:
        return True
    if row.assignment_state in _BUILDING:
        return row.state is not None or event == VmDesiredEvent.STOP
    return False
