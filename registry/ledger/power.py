"""Power changes of VMs (stop, start, reboot), stored until a worker has made them.

A pending action is a row of `power_actions`, the workers' message. Inserting, changing or
deleting such a row needs the lock of its VM.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, select, update

from registry.audit.changes import POWER
from registry.audit.events import record_events
from registry.db.bulk import chunks
from registry.db.schema import assignments, is_place, power_actions, tenants, vms
from registry.lifecycle import PowerEvent, PowerState, VmDesired

#: Seconds that a guest has to shut down.
SHUTDOWN_TIMEOUT_S: Final = 60
MAX_TIMEOUT_S: Final = 3600


def power_query(which: ColumnElement[bool]) -> Any:
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


def write_power_action(
    connection: Connection,
    row: Row[Any],
    event: PowerEvent,
    *,
    timeout_s: int,
    now: datetime,
    actor: str,
) -> dict[str, Any]:
    """Insert or update a VM's pending power change; a shorter timeout counts from now on."""
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
    rows = connection.execute(power_query(which)).all()
    history = [
        write_power_action(
            connection, row, event, timeout_s=SHUTDOWN_TIMEOUT_S, now=now, actor="monitor"
        )
        for row in rows
    ]
    record_events(connection, history)


def delete_power_changes(
    connection: Connection, keys: Collection[UUID], *, now: datetime, actor: str
) -> None:
    """Delete the pending power changes of VMs that are deleted or have lost their place."""
    history: list[dict[str, Any]] = []
    for some in chunks(sorted(keys)):
        which = and_(vms.c.id.in_(some), power_actions.c.vm_id.is_not(None))
        rows = connection.execute(power_query(which)).all()
        for row in rows:
            dropped = POWER.step(row.state, PowerEvent.DROPPED)
            history.append(dropped.row(now, actor, row.id, tenant=row.tenant))
        if rows:
            gone = [row.id for row in rows]
            connection.execute(delete(power_actions).where(power_actions.c.vm_id.in_(gone)))
    record_events(connection, history)
