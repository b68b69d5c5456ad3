"""Power changes of VMs (stop, start, reboot), stored until a worker has made them.

A pending action is a row of `power_actions`, the workers' message. Inserting, changing or
deleting such a row needs the lock of its VM.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, select, update

from registry.audit.changes import POWER, VM_DESIRED
from registry.audit.events import record
from registry.db.bulk import chunks
from registry.db.locks import lock_vms
from registry.db.names import check_int
from registry.db.schema import assignments, is_place, power_actions, tenants, vms
from registry.errors import ConflictError
from registry.ledger.progress import recompute_states
from registry.lifecycle import (
    AssignmentState,
    PowerEvent,
    PowerState,
    VmDesired,
    VmDesiredEvent,
    VmObserved,
)

#: Seconds that a guest has to shut down.
SHUTDOWN_TIMEOUT_S: Final = 60
MAX_TIMEOUT_S: Final = 3600

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


def power_rows(which: ColumnElement[bool]) -> Any:
    """Return the query for VMs with their pending power change and unreleased assignment."""
    return (
        select(
            vms.c.id,
            vms.c.name,
            vms.c.desired,
            vms.c.observed,
            vms.c.request_id,
            tenants.c.name.label("tenant"),
            assignments.c.state.label("assignment_state"),
            power_actions.c.state,
            power_actions.c.timeout_s,
            power_actions.c.force_at,
        )
        .select_from(vms)
        .join(tenants, tenants.c.id == vms.c.tenant_id)
        .outerjoin(assignments, and_(assignments.c.vm_id == vms.c.id, is_place))
        .outerjoin(power_actions, power_actions.c.vm_id == vms.c.id)
        .where(which)
        .order_by(vms.c.id)
    )


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
    row = connection.execute(power_rows(vms.c.id == vm_id)).one()
    if row.desired == VmDesired.DELETED.value:
        raise ConflictError(f"VM {row.name} is deleted")
    if event == VmDesiredEvent.REBOOT and not _can_reboot(row):
        why = (
            "it is stopped: start it"
            if row.desired == VmDesired.STOPPED.value
            else "it does not run yet"
        )
        raise ConflictError(f"VM {row.name} cannot be rebooted: {why}")
    _apply_requests(connection, [row], event, timeout_s=timeout_s, now=now, actor=actor)


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
    rows = connection.execute(power_rows(which)).all()
    if event == VmDesiredEvent.REBOOT:
        running = [row for row in rows if _can_reboot(row)]
        if not running:
            stopped = any(row.desired == VmDesired.STOPPED.value for row in rows)
            why = "those that were built are stopped: start it" if stopped else "none runs yet"
            raise ConflictError(f"no VM of this request can be rebooted: {why}")
        rows = running
    _apply_requests(connection, rows, event, timeout_s=timeout_s, now=now, actor=actor)


def _can_reboot(row: Row[Any]) -> bool:
    return (
        row.desired == VmDesired.RUNNING.value
        and row.assignment_state in _BUILT
        and row.observed != VmObserved.ABSENT.value
    )


def _apply_requests(
    connection: Connection,
    rows: Collection[Row[Any]],
    event: VmDesiredEvent,
    *,
    timeout_s: int,
    now: datetime,
    actor: str,
) -> None:
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
                _write_action(connection, row, action, timeout_s=timeout_s, now=now, actor=actor)
            )
    for desired, keys in changed.items():
        for some in chunks(keys):
            connection.execute(update(vms).where(vms.c.id.in_(some)).values(desired=desired.value))
    record(connection, history)
    recompute_states(connection, {row.request_id for row in rows}, now=now, actor=actor)


def _needs_worker(row: Row[Any], event: VmDesiredEvent) -> bool:
    """Return whether a worker must act: the VM has a domain, or a build under way will make one."""
    if row.assignment_state in _BUILT:
        return True
    if row.assignment_state in _BUILDING:
        return row.state is not None or event == VmDesiredEvent.STOP
    return False


def _write_action(
    connection: Connection,
    row: Row[Any],
    event: PowerEvent,
    *,
    timeout_s: int,
    now: datetime,
    actor: str,
) -> dict[str, Any]:
    """Insert or update a VM's power action; a shorter timeout than before counts from now on."""
    step = POWER.step(row.state if row.state is not None else PowerState.IDLE, event)
    after = step.after
    values: dict[str, Any] = {"state": after.value, "timeout_s": timeout_s, "due_at": now}
    if row.state is None:
        connection.execute(
            insert(power_actions).values(
                vm_id=row.id, requested_by=actor, requested_at=now, **values
            )
        )
    else:
        if event == PowerEvent.START:
            values["timeout_s"] = row.timeout_s
        elif row.force_at is not None:
            values["force_at"] = min(row.force_at, now + timedelta(seconds=timeout_s))
        if after in (PowerState.STOPPING, PowerState.STARTING, PowerState.REBOOTING):
            values |= {"force_at": None, "signalled_at": None}
        connection.execute(
            update(power_actions)
            .where(power_actions.c.vm_id == row.id)
            .values(attempts=0, sent_at=None, **values)
        )
    return step.row(now, actor, row.id, tenant=row.tenant)


def restore_desired_power(
    connection: Connection, keys: Collection[UUID], desired: VmDesired, *, now: datetime
) -> None:
    """Request the desired power state of VMs that were observed in another."""
    which = and_(
        vms.c.id.in_(list(keys)), vms.c.desired == desired.value, power_actions.c.vm_id.is_(None)
    )
    event = PowerEvent.START if desired == VmDesired.RUNNING else PowerEvent.STOP
    rows = connection.execute(power_rows(which)).all()
    history = [
        _write_action(
            connection, row, event, timeout_s=SHUTDOWN_TIMEOUT_S, now=now, actor="monitor"
        )
        for row in rows
    ]
    record(connection, history)


def drop_power(
    connection: Connection, keys: Collection[UUID], *, now: datetime, actor: str
) -> None:
    """Delete the pending power changes of VMs that are deleted or have lost their place."""
    history: list[dict[str, Any]] = []
    for some in chunks(sorted(keys)):
        which = and_(vms.c.id.in_(some), power_actions.c.vm_id.is_not(None))
        rows = connection.execute(power_rows(which)).all()
        for row in rows:
            dropped = POWER.step(row.state, PowerEvent.DROPPED)
            history.append(dropped.row(now, actor, row.id, tenant=row.tenant))
        if rows:
            gone = [row.id for row in rows]
            connection.execute(delete(power_actions).where(power_actions.c.vm_id.in_(gone)))
    record(connection, history)
