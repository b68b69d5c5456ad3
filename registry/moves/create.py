"""Creation of moves: their checks, and the arriving assignment that holds room.

The arriving assignment holds capacity from the moment that the move is requested, under the
ledger's triggers, as an assignment of a round does.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, insert, select, update

from registry.audit.events import event_row, record_events
from registry.db.ids import uuid7
from registry.db.locks import lock_hosts, lock_vms
from registry.db.schema import assignment_resources, assignments, hosts, moves, vms
from registry.errors import ConflictError, MoveRefusedError, NotFoundError
from registry.images.host_copies import request_copies
from registry.lifecycle import AssignmentState, HostAdmin, MoveState, VmObserved
from registry.moves.obstacles import HERE, assignment_amounts, move_obstacles
from registry.records.moves import MoveObstacle
from registry.requests.rules import lock_groups_of


def create_move(
    connection: Connection,
    vm_id: UUID,
    host: str,
    *,
    reason: str,
    only_cold: bool,
    from_host: UUID | None = None,
    following: Collection[UUID] = (),
    now: datetime,
    actor: str,
) -> UUID:
    """Create a move of a VM with room held on the destination; return the move's id.

    VMs ``following`` it to the destination may be of a group that must keep together. With
    ``from_host`` it moves only from that host, as the reason of the move applies to no other.

    Raises
    ------
    NotFoundError
        If there is no such VM or host.
    MoveRefusedError
        If there is an obstacle.
    ConflictError
        If the VM is not on ``from_host``.
    """
    before = connection.execute(HERE.where(vms.c.id == vm_id)).one_or_none()
    there = connection.scalars(
        select(hosts.c.id).where(hosts.c.name == host, hosts.c.admin != HostAdmin.RETIRED.value)
    ).one_or_none()
    if before is None:
        raise NotFoundError("vm", vm_id)
    if there is None:
        raise NotFoundError("host", host)
    lock_hosts(connection, *{there, before.host_id or there})
    lock_groups_of(connection, [before.request_id])
    lock_vms(connection, vms.c.id == vm_id)
    vm = connection.execute(HERE.where(vms.c.id == vm_id)).one()
    if vm.host_id != before.host_id:
        raise MoveRefusedError(vm.name, MoveObstacle.MOVES_ALREADY, "it is moving: ask again")
    if from_host is not None and vm.host_id is not None and vm.host_id != from_host:
        raise ConflictError(_elsewhere_message(connection, vm, from_host))
    for obstacle, detail in move_obstacles(
        connection, vm, there, only_cold=only_cold, following=following
    ):
        raise MoveRefusedError(vm.name, obstacle.value, detail)
    return _insert_move(connection, vm, there, host, reason=reason, now=now, actor=actor)


def _elsewhere_message(connection: Connection, vm: Row[Any], from_host: UUID) -> str:
    """Return the text that a VM cannot move as it is no longer on the host of its plan."""
    query = select(hosts.c.id, hosts.c.name).where(hosts.c.id.in_([vm.host_id, from_host]))
    names = {row.id: row.name for row in connection.execute(query)}
    return (
        f"VM {vm.name} cannot move: it is on host {names[vm.host_id]} by now, not on host"
        f" {names[from_host]}, from where it was to move"
    )


def _have_same_pool_label(connection: Connection, here: UUID, there: UUID) -> bool:
    """Return whether two hosts have the same label of a shared pool; the move verifies it."""
    pools = connection.scalars(select(hosts.c.shared_pool).where(hosts.c.id.in_([here, there])))
    named = set(pools)
    return len(named) == 1 and None not in named


def _insert_move(
    connection: Connection,
    vm: Row[Any],
    there: UUID,
    host: str,
    *,
    reason: str,
    now: datetime,
    actor: str,
) -> UUID:
    """Insert a move with the assignment that holds room on its destination; return its id."""
    arriving, move_id = uuid7(), uuid7()
    here = connection.scalars(select(hosts.c.name).where(hosts.c.id == vm.host_id)).one()
    request_copies(connection, [(vm, there)], now=now, actor=actor)
    generation = vm.generation + 1
    connection.execute(
        insert(assignments).values(
            id=arriving,
            vm_id=vm.id,
            host_id=there,
            tenant_id=vm.tenant_id,
            round=vm.round,
            generation=generation,
            disk_generation=vm.disk_generation,
            disk_of=vm.disk_of if _have_same_pool_label(connection, vm.host_id, there) else None,
            state=AssignmentState.ARRIVING.value,
            created_at=now,
        )
    )
    held = [
        {"assignment_id": arriving, "resource": resource, "host_id": there, "amount": amount}
        for resource, amount in sorted(assignment_amounts(connection, vm.assignment_id).items())
    ]
    connection.execute(insert(assignment_resources), held)
    connection.execute(update(vms).where(vms.c.id == vm.id).values(generation=generation))
    runs = vm.observed == VmObserved.RUNNING.value
    connection.execute(
        insert(moves).values(
            id=move_id,
            vm_id=vm.id,
            from_id=vm.assignment_id,
            to_id=arriving,
            from_host_id=vm.host_id,
            to_host_id=there,
            state=MoveState.PENDING.value,
            kind="live" if runs else "cold",
            reason=reason,
            requested_by=actor,
            requested_at=now,
        )
    )
    detail = {"vm": str(vm.id), "from": here, "to": host, "move": str(move_id)}
    assignment_data = {"vm": str(vm.id), "host": host, "round": vm.round}
    history = [
        event_row(
            now,
            actor,
            "assignment_state",
            "assignment",
            arriving,
            tenant=vm.tenant,
            change=(None, AssignmentState.ARRIVING),
            data=assignment_data,
        ),
        event_row(
            now,
            actor,
            "move_state",
            "move",
            move_id,
            tenant=vm.tenant,
            change=(None, MoveState.PENDING),
            reason=reason,
            data=detail,
        ),
    ]
    record_events(connection, history)
    return move_id
