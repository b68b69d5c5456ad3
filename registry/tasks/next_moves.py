"""Moves that wait for a worker, and those that begin when another has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Select, and_, literal_column, or_, select, update

from registry.db.schema import assignments, hosts, moves, power_actions, slot_loop, vms
from registry.images.host_copies import lacks_image
from registry.lifecycle import (
    OPEN_MOVES,
    OUT_OF_REACH,
    AssignmentState,
    HostAdmin,
    MoveState,
    SlotLoopState,
    VmDesired,
)
from registry.records.moves import MoveLimits

#: Moves between hosts that have room, of which those are chosen that have room together.
_MAX_CANDIDATES: Final = 64


def waiting_moves() -> Select[Any]:
    """Return the query for moves that may begin, or that a worker has to end.

    A move may begin when both hosts are within reach, its image is on the destination, no power
    change of the VM is pending, and the slot loop is not paused. None of this is required of a
    move that a worker must end: its worker died, its plan was cancelled, its VM was deleted, one
    of its hosts was fenced, or the destination takes no VMs any more.
    """
    # Looked up for each move: a join may begin with all VMs that ever were.
    end = hosts.alias()
    out_of_reach = select(end.c.id).where(
        end.c.id.in_([moves.c.from_host_id, moves.c.to_host_id]), end.c.health.in_(OUT_OF_REACH)
    )
    its_vm = select(vms.c.id).where(vms.c.id == moves.c.vm_id)
    lacks = its_vm.where(lacks_image(moves.c.to_host_id, vms.c.request_id))
    powered = select(power_actions.c.vm_id).where(power_actions.c.vm_id == moves.c.vm_id)
    paused = select(slot_loop.c.id).where(slot_loop.c.state == SlotLoopState.PAUSED.value)
    held_up = (out_of_reach, lacks, powered, paused)
    stands, comes = (
        select(assignments.c.id).where(
            assignments.c.id == end_of_move, assignments.c.state == literal_column(f"'{state}'")
        )
        for end_of_move, state in (
            (moves.c.from_id, AssignmentState.ACTIVE),
            (moves.c.to_id, AssignmentState.ARRIVING),
        )
    )
    closed = select(end.c.id).where(
        end.c.id == moves.c.to_host_id, end.c.admin != literal_column(f"'{HostAdmin.ACTIVE}'")
    )
    is_open = moves.c.state.in_([literal_column(f"'{state}'") for state in OPEN_MOVES])
    return (
        select(moves)
        .where(
            is_open,
            or_(
                and_(*(~each.correlate(moves).exists() for each in held_up)),
                moves.c.state == MoveState.MOVING.value,
                moves.c.cancelled_by.is_not(None),
                closed.correlate(moves).exists(),
                its_vm.where(vms.c.desired == VmDesired.DELETED.value).correlate(moves).exists(),
                ~stands.correlate(moves).exists(),
                ~comes.correlate(moves).exists(),
            ),
        )
        .order_by(moves.c.state == MoveState.PENDING.value)
    )


def mark_next_moves_sent(
    connection: Connection, limits: MoveLimits, *, now: datetime
) -> Sequence[UUID]:
    """Mark the waiting moves that can begin now as sent, and return them.

    Moves sent only a moment ago are included: a worker drops the message of a move without room,
    and the sweep would send the next one only after a while. The end of a move calls this function.
    """
    under_way = connection.execute(
        select(moves.c.from_host_id, moves.c.to_host_id).where(
            moves.c.state == MoveState.MOVING.value, moves.c.lease_until > now
        )
    ).all()
    busy = Counter(host_id for ends in under_way for host_id in ends)
    full = [host_id for host_id, count in busy.items() if count >= limits.per_host]
    waiting = connection.execute(
        waiting_moves()
        .with_only_columns(moves.c.id, moves.c.from_host_id, moves.c.to_host_id)
        .where(
            moves.c.state == MoveState.PENDING.value,
            moves.c.from_host_id.not_in(full),
            moves.c.to_host_id.not_in(full),
        )
        .order_by(moves.c.sent_at.nulls_first(), moves.c.id)
        .limit(_MAX_CANDIDATES)
        .with_for_update(of=moves, skip_locked=True, key_share=True)
    ).all()
    found: list[UUID] = []
    for move in waiting:
        ends = (move.from_host_id, move.to_host_id)
        if len(under_way) + len(found) >= limits.everywhere:
            break
        if all(busy[host_id] < limits.per_host for host_id in ends):
            busy.update(ends)
            found.append(move.id)
    if found:
        connection.execute(update(moves).where(moves.c.id.in_(found)).values(sent_at=now))
    return found
