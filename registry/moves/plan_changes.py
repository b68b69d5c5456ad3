"""The reasons of a plan's moves, which may cease, and the plan's gain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, select, update

from registry.audit.changes import HOST_ADMIN
from registry.db.bulk import chunks, is_any_of
from registry.db.packed_json import unpack_json
from registry.db.schema import events, hosts, moves, plan_moves, plans
from registry.lifecycle import HostAdmin, MoveState
from registry.records.moves import Plan, PlanKind

_NOT_MOVED = (MoveState.FAILED.value, MoveState.CANCELLED.value)


def reopened_hosts(connection: Connection, plan: Plan) -> Mapping[str, str]:
    """Return the hosts of a plan that were reopened since its creation, each with the actor.

    Hosts that were never closed do not count.
    """
    if plan.kind is not PlanKind.EVACUATE:
        return {}
    found: dict[str, str] = {}
    for some in chunks(sorted(plan.arguments["hosts"])):
        named = {
            str(row.id): row.name
            for row in connection.execute(
                select(hosts.c.id, hosts.c.name).where(
                    is_any_of(connection, hosts.c.name, some),
                    hosts.c.admin == HostAdmin.ACTIVE.value,
                )
            )
        }
        query = (
            select(events.c.subject_id, events.c.actor)
            .where(
                is_any_of(connection, events.c.subject_id, sorted(named)),
                events.c.kind == HOST_ADMIN.kind,
                events.c.to_state == HostAdmin.ACTIVE.value,
                events.c.at >= plan.requested_at,
            )
            .order_by(events.c.id)
        )
        found |= {named[row.subject_id]: row.actor for row in connection.execute(query)}
    return found


def refuse_moves_from(
    connection: Connection, plan_id: UUID, reasons: Mapping[str, str], *, actor: str
) -> None:
    """Refuse a plan's moves from these hosts that have not begun, each with a reason."""
    for name, reason in reasons.items():
        host_id = select(hosts.c.id).where(hosts.c.name == name).scalar_subquery()
        of_host = (plan_moves.c.plan_id == plan_id, plan_moves.c.from_host_id == host_id)
        connection.execute(
            update(plan_moves)
            .where(*of_host, plan_moves.c.move_id.is_(None), plan_moves.c.refused.is_(None))
            .values(refused=reason)
        )
        connection.execute(
            update(moves)
            .where(
                moves.c.id.in_(select(plan_moves.c.move_id).where(*of_host)),
                moves.c.state == MoveState.PENDING.value,
            )
            .values(cancelled_by=actor, sent_at=None)
        )


def gain_values(connection: Connection, plan_id: UUID, *, ended: bool) -> dict[str, Any]:
    """Return the columns with a plan's gain from the moves that count; {} without such an aim.

    Moves that were refused, failed or cancelled gain nothing. Once the plan has ``ended``,
    moves that never began gain nothing either.
    """
    row = connection.execute(
        select(plans.c.gain, plans.c.packed_plan).where(plans.c.id == plan_id)
    ).one()
    if row.gain is None or row.packed_plan is None:
        return {}
    gains = unpack_json(row.packed_plan)["details"]["gains"]
    query = (
        select(plan_moves.c.position, plan_moves.c.refused, moves.c.state)
        .outerjoin(moves, moves.c.id == plan_moves.c.move_id)
        .where(plan_moves.c.plan_id == plan_id)
        .order_by(plan_moves.c.position)
    )
    left = [
        float(gains[each.position])
        for each in connection.execute(query)
        if each.refused is None
        and each.state not in _NOT_MOVED
        and not (ended and each.state is None)
    ]
    return {"gain": sum(left)}
