"""Room that open plans free for requests, as a round sees it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, select

from registry.db.schema import assignment_resources, assignments, is_place, plan_moves, unreleased
from registry.records.cluster import FreedView


def freed_views(
    connection: Connection, axis: Sequence[str], plans_: Sequence[Any]
) -> tuple[FreedView, ...]:
    """Return the room that plans of moves free for requests, from the plans' rows."""
    return tuple(
        FreedView(
            plan_id=row.id,
            request_id=UUID(row.arguments["request"]),
            hosts=tuple(UUID(each["host_id"]) for each in row.admitted["hosts"]),
            coming=_amounts_to_come(connection, axis, plan_moves.c.plan_id == row.id),
        )
        for row in plans_
    )


def _amounts_to_come(
    connection: Connection, axis: Sequence[str], of_plan: ColumnElement[bool]
) -> tuple[tuple[UUID, tuple[int, ...]], ...]:
    """Return the amounts of VMs at the destinations of a plan's moves that are not created yet."""
    query = (
        select(
            plan_moves.c.position,
            plan_moves.c.to_host_id,
            assignment_resources.c.resource,
            assignment_resources.c.amount,
        )
        .select_from(plan_moves)
        .join(assignments, assignments.c.vm_id == plan_moves.c.vm_id)
        .join(assignment_resources, assignment_resources.c.assignment_id == assignments.c.id)
        .where(
            of_plan,
            plan_moves.c.move_id.is_(None),
            plan_moves.c.refused.is_(None),
            is_place,
            unreleased,
        )
        .order_by(plan_moves.c.position)
    )
    hosts: dict[int, UUID] = {}
    held: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for row in connection.execute(query):
        hosts[row.position] = row.to_host_id
        held[row.position][row.resource] = row.amount
    return tuple(
        (host, tuple(held[position].get(name, 0) for name in axis))
        for position, host in hosts.items()
    )
