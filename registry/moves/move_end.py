"""The end of a move and of both its assignments, in one transaction.

Ending a move needs the locks of both hosts and of the VM.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, Select, select

from registry.audit.changes import MOVE
from registry.audit.events import record_events
from registry.db.locks import lock_hosts, lock_vms
from registry.db.row_leases import MOVES
from registry.db.schema import assignments, hosts, moves, tenants, vms
from registry.ledger.host_backoff import record_host_backoff
from registry.ledger.release import AssignmentRelease, end_assignments, lock_assignments
from registry.lifecycle import AssignmentEvent, AssignmentState, MoveEvent, MoveState
from registry.requests.rules import lock_groups_of

_FROM, _TO = hosts.alias("from_host"), hosts.alias("to_host")
MOVE_ROWS: Select[Any] = (
    select(
        moves,
        vms.c.name.label("vm_name"),
        vms.c.request_id,
        tenants.c.name.label("tenant"),
        _FROM.c.name.label("from_host"),
        _TO.c.name.label("to_host"),
    )
    .select_from(moves)
    .join(vms, vms.c.id == moves.c.vm_id)
    .join(tenants, tenants.c.id == vms.c.tenant_id)
    .join(_FROM, _FROM.c.id == moves.c.from_host_id)
    .join(_TO, _TO.c.id == moves.c.to_host_id)
)


def lock_move(
    connection: Connection, move_id: UUID, *, with_groups: bool = False
) -> Row[Any] | None:
    """Lock both hosts of a move, its VM and its row; return the row or None.

    With ``with_groups`` also lock the VM's groups if the move has not begun.
    """
    fixed = select(
        moves.c.vm_id, moves.c.from_host_id, moves.c.to_host_id, moves.c.state, vms.c.request_id
    ).join(vms, vms.c.id == moves.c.vm_id)
    found = connection.execute(fixed.where(moves.c.id == move_id)).one_or_none()
    if found is None:
        return None
    lock_hosts(connection, found.from_host_id, found.to_host_id)
    if with_groups and found.state == MoveState.PENDING.value:  # it never becomes pending again
        lock_groups_of(connection, [found.request_id])
    lock_vms(connection, vms.c.id == found.vm_id)
    query = MOVE_ROWS.where(moves.c.id == move_id).with_for_update(of=moves, key_share=True)
    return connection.execute(query).one_or_none()


def complete_arrival(connection: Connection, move: Row[Any], *, now: datetime, actor: str) -> None:
    """Make the destination of an arrived move the place of its VM; have the source cleaned up."""
    ends = {row.id: row for row in lock_assignments(connection, _is_assignment_of_move(move))}
    if move.from_id in ends:  # else its host has been fenced and its assignments are released
        left = AssignmentRelease(
            ends[move.from_id], AssignmentEvent.LEFT, f"it is on host {move.to_host}"
        )
        end_assignments(connection, [left], now=now, actor=actor)
    came = AssignmentRelease(
        ends[move.to_id], AssignmentEvent.ARRIVED, f"from host {move.from_host}"
    )
    end_assignments(connection, [came], now=now, actor=actor, activated_at=now)


def end_without_arrival(
    connection: Connection, move: Row[Any], reason: str, *, now: datetime, actor: str
) -> None:
    """Have the destination of a failed move cleaned up, and its room freed afterwards.

    A move that was never claimed left nothing there. If the source is gone too, the VM waits for a
    new place.
    """
    rows = lock_assignments(connection, assignments.c.id == move.to_id)
    if not any(row.state == AssignmentState.ARRIVING.value for row in rows):
        return  # its host was fenced
    untouched = move.state == MoveState.PENDING.value
    event = AssignmentEvent.WITHDRAWN if untouched else AssignmentEvent.NOT_ARRIVED
    endings = [AssignmentRelease(row, event, reason) for row in rows]
    end_assignments(connection, endings, now=now, actor=actor, reason=reason)


def close_move(
    connection: Connection,
    move: Row[Any],
    event: MoveEvent,
    *,
    reason: str | None,
    now: datetime,
    actor: str,
    **values: Any,
) -> None:
    """End a move's row. Its request avoids for a while a destination at which it failed."""
    step = MOVE.step(move.state, event)
    values |= {"state": step.after.value, "ended_at": now, "last_error": reason, **MOVES.none}
    MOVES.update_row(connection, move.id, **values)
    if event == MoveEvent.FAILED:
        record_host_backoff(connection, move.request_id, move.to_host_id, now)
    detail = {"vm": str(move.vm_id), "from": move.from_host, "to": move.to_host}
    if "downtime_ms" in values:
        detail["downtime_ms"] = values["downtime_ms"]
    record_events(
        connection, [step.row(now, actor, move.id, tenant=move.tenant, reason=reason, data=detail)]
    )


def _is_assignment_of_move(move: Row[Any]) -> Any:
    """Return the condition for the two assignments of a move: at its source and destination."""
    return assignments.c.id.in_([move.from_id, move.to_id])
