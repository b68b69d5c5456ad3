"""Rows of console sessions: their states, and how they end.

A session's row is the workers' message, claimed by lease. Its epoch rises with every claim, so a
worker that lost its claim neither types nor reports output. Input is stored until a worker takes
it, which deletes it: input is lost with a worker that dies, as it must not be typed twice. Output
is stored until it is read; the oldest unread output is dropped, and remains in the log on the
host.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, select

from registry.audit.changes import CONSOLE
from registry.db.row_leases import CONSOLES
from registry.db.schema import (
    assignments,
    console_inputs,
    console_outputs,
    console_sessions,
    is_place,
    tenants,
    vms,
)
from registry.errors import ConflictError, NotFoundError
from registry.lifecycle import ConsoleEvent, ConsoleState

#: Seconds of silence after which a caller counts as gone.
SILENT_S: Final = 60
#: How long an ended session shows why it ended.
_KEPT_FOR: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSession:
    """A caller's hold on a VM's console."""

    id: UUID
    vm: UUID
    state: ConsoleState
    reason: str | None  #: why the session is over, or why it waits
    next_input: int  #: number of the next piece to be typed


def placed_vm_name(connection: Connection, vm_id: UUID) -> str:
    """Return the name of a VM that is on a host, or raise `ConflictError`."""
    row = connection.execute(
        select(vms.c.name, assignments.c.id)
        .select_from(vms)
        .outerjoin(assignments, and_(assignments.c.vm_id == vms.c.id, is_place))
        .where(vms.c.id == vm_id)
    ).one_or_none()
    if row is None:
        raise NotFoundError("VM", vm_id)
    if row.id is None:
        raise ConflictError(f"VM {row.name} is on no host, so it has no console")
    name: str = row.name
    return name


def end_silent_sessions(connection: Connection, *, now: datetime) -> None:
    """End console sessions of silent callers, and delete those that ended a while ago."""
    silent = connection.scalars(
        select(console_sessions.c.id)
        .where(
            console_sessions.c.heartbeat_at < now - timedelta(seconds=SILENT_S),
            console_sessions.c.state != ConsoleState.ENDED.value,
        )
        .order_by(console_sessions.c.id)
    ).all()
    for key in silent:
        row = lock_session(
            connection,
            console_sessions.c.id == key,
            console_sessions.c.heartbeat_at < now - timedelta(seconds=SILENT_S),
            console_sessions.c.state != ConsoleState.ENDED.value,
        )
        if row is not None:
            reason = f"no client or worker was heard from for {SILENT_S} s"
            end_session(connection, row, reason, actor="sweep", now=now)
    over = and_(
        console_sessions.c.heartbeat_at < now - _KEPT_FOR,
        console_sessions.c.state == ConsoleState.ENDED.value,
    )
    old = connection.scalars(select(console_sessions.c.id).where(over)).all()
    if old:
        connection.execute(delete(console_outputs).where(console_outputs.c.session_id.in_(old)))
        connection.execute(delete(console_sessions).where(console_sessions.c.id.in_(old)))


def lock_session(connection: Connection, *which: ColumnElement[bool]) -> Any:
    """Lock and return the row of the console session that meets the conditions, or None."""
    return connection.execute(
        select(console_sessions).where(*which).with_for_update()
    ).one_or_none()


def end_session(
    connection: Connection, row: Row[Any], reason: str, *, actor: str, now: datetime
) -> None:
    """End a console session and delete its input that no worker took."""
    change_session_state(
        connection, row, ConsoleEvent.ENDED, reason, actor=actor, now=now, **CONSOLES.none
    )
    connection.execute(delete(console_inputs).where(console_inputs.c.session_id == row.id))


def change_session_state(
    connection: Connection,
    row: Row[Any],
    event: ConsoleEvent,
    reason: str | None,
    *,
    actor: str,
    now: datetime,
    **values: Any,
) -> None:
    """Change a console session's state and record the event."""
    step = CONSOLE.step(row.state, event)
    CONSOLES.update_row(connection, row.id, state=step.after.value, reason=reason, **values)
    tenant, data = read_tenant_name(connection, row.vm_id), {"session": str(row.id)}
    step.record_event(connection, now, actor, row.vm_id, tenant=tenant, reason=reason, data=data)


def read_tenant_name(connection: Connection, vm_id: UUID) -> str:
    """Return the name of a VM's tenant."""
    name: str = connection.execute(
        select(tenants.c.name).join(vms, vms.c.tenant_id == tenants.c.id).where(vms.c.id == vm_id)
    ).scalar_one()
    return name


def to_session(row: Any) -> ConsoleSession:
    """Return the record of a console session from its row."""
    return ConsoleSession(
        id=row.id,
        vm=row.vm_id,
        state=ConsoleState(row.state),
        reason=row.reason,
        next_input=row.next_input,
    )
