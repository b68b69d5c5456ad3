"""Checks whether the destination of a move changed between its request and its beginning.

When the move was requested, the host accepted VMs, had room and was allowed. The rules of new
moves and of rounds are applied again before it begins.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, Select, select

from registry.db.schema import assignment_resources, hosts, inventories, plan_moves, vms
from registry.lifecycle import HostAdmin
from registry.moves.obstacles import rule_obstacles
from registry.moves.stored_plans import vms_following


def destination_refusal(connection: Connection, move: Row[Any]) -> str | None:
    """Return why the destination would now refuse a move that has not begun, or None.

    Its hosts and its VM's groups are locked: what this finds holds until the move has begun.
    """
    admin = connection.scalar(select(hosts.c.admin).where(hosts.c.id == move.to_host_id))
    if admin != HostAdmin.ACTIVE.value:
        return f"host {move.to_host} is {admin}"
    resource = _exceeded_resource(connection, move)
    if resource is not None:
        return f"host {move.to_host} offers less {resource} than it holds by now"
    wanted: Select[Any] = select(vms.c.id, vms.c.request_id).where(vms.c.id == move.vm_id)
    vm = connection.execute(wanted).one()
    against = rule_obstacles(
        connection,
        vm,
        move.to_host_id,
        # The VM does not conflict with its own room there.
        leaving={move.from_host_id, move.to_host_id},
        following=_vms_following(connection, move),
    )
    return next((detail for _, detail in against), None)


def _exceeded_resource(connection: Connection, move: Row[Any]) -> str | None:
    """Return a resource whose committed amount exceeds the destination's capacity, or None."""
    short = (
        select(inventories.c.resource)
        .join(assignment_resources, assignment_resources.c.resource == inventories.c.resource)
        .where(
            inventories.c.host_id == move.to_host_id,
            assignment_resources.c.assignment_id == move.to_id,
            assignment_resources.c.amount > 0,
            inventories.c.committed > inventories.c.capacity,
        )
        .order_by(inventories.c.resource)
        .limit(1)
    )
    resource: str | None = connection.scalar(short)
    return resource


def _vms_following(connection: Connection, move: Row[Any]) -> Collection[UUID]:
    """Return the other VMs that the move's plan will still bring to the same destination."""
    query = select(plan_moves.c.plan_id, plan_moves.c.position)
    plan = connection.execute(query.where(plan_moves.c.move_id == move.id)).one_or_none()
    if plan is None:
        return ()
    return vms_following(connection, move.vm_id, plan.plan_id, plan.position)
