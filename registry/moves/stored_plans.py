"""Stored plans and their moves, as every reader of them needs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, case, func, or_, select

from registry.db.row_conversion import record_of
from registry.db.schema import assignments, hosts, moves, plan_moves, plans, tenants, vms
from registry.errors import NotFoundError
from registry.lifecycle import OPEN_MOVES, OUT_OF_REACH, AssignmentState, MoveState, PlanState
from registry.moves.plan_effects import effect_text
from registry.records.moves import Plan, PlanMove

#: The condition that a plan is open: pending or approved.
GOES_ON: Final = plans.c.state.in_([PlanState.PENDING.value, PlanState.APPROVED.value])
_FROM, _TO = hosts.alias("from_host"), hosts.alias("to_host")
_OPEN: Final = [state.value for state in OPEN_MOVES]
#: The condition that a planned move is over: its move ended, or it was refused.
_IS_OVER: Final = plan_moves.c.refused.is_not(None) | (
    moves.c.state.is_not(None) & moves.c.state.not_in(_OPEN)
)
_HAS_FAILED: Final = plan_moves.c.refused.is_not(None) | moves.c.state.in_(
    [MoveState.FAILED.value, MoveState.CANCELLED.value]
)

_HAS_MOVED: Final = moves.c.state == MoveState.MOVED.value

#: The remains on the source are removed once the host answers; the plan does not wait for that.
_LEAVES: Final = and_(
    func.coalesce(assignments.c.state, "") == AssignmentState.LEAVING.value,
    _FROM.c.health.not_in(OUT_OF_REACH),
    _FROM.c.pool_silent_since.is_(None),
)


def get_plan(connection: Connection, key: UUID) -> Plan:
    """Return a plan of moves in a caller's transaction, or raise `NotFoundError`."""
    found = read_plans(connection, plans.c.id == key)
    if not found:
        raise NotFoundError("plan", key)
    return found[0]


def read_plans(connection: Connection, which: ColumnElement[bool]) -> list[Plan]:
    """Return the plans of moves that meet a condition, in no order."""
    counted = (
        select(
            plan_moves.c.plan_id,
            func.count().label("moves"),
            (func.max(plan_moves.c.wave) + 1).label("waves"),
            func.sum(case((_IS_OVER, 1), else_=0)).label("ended"),
            func.sum(case((_HAS_FAILED, 1), else_=0)).label("failed"),
            func.sum(plan_moves.c.transfer_mib).label("transfer_mib"),
            func.sum(case((_HAS_MOVED, plan_moves.c.transfer_mib), else_=0)).label("moved_mib"),
        )
        .outerjoin(moves, moves.c.id == plan_moves.c.move_id)
        .join(plans, plans.c.id == plan_moves.c.plan_id)
        .where(which)
        .group_by(plan_moves.c.plan_id)
    )
    tallies = {row.plan_id: row for row in connection.execute(counted)}
    columns = [column for column in plans.c if column.key not in {"inputs", "packed_plan"}]
    return [
        _to_plan(row, tallies.get(row.id))
        for row in connection.execute(select(*columns).where(which))
    ]


def read_plan_moves(connection: Connection, key: UUID) -> tuple[PlanMove, ...]:
    """Return the moves of a plan in order, with their outcomes."""
    query: Select[Any] = (
        select(
            plan_moves.c.position,
            plan_moves.c.wave,
            plan_moves.c.vm_id,
            vms.c.name.label("vm_name"),
            tenants.c.name.label("tenant"),
            _FROM.c.name.label("from_host"),
            _TO.c.name.label("to_host"),
            plan_moves.c.why,
            plan_moves.c.transfer_mib,
            plan_moves.c.move_id,
            moves.c.state,
            plan_moves.c.refused,
            _LEAVES.label("leaves"),
        )
        .select_from(plan_moves)
        .join(vms, vms.c.id == plan_moves.c.vm_id)
        .join(tenants, tenants.c.id == vms.c.tenant_id)
        .join(_FROM, _FROM.c.id == plan_moves.c.from_host_id)
        .join(_TO, _TO.c.id == plan_moves.c.to_host_id)
        .outerjoin(moves, moves.c.id == plan_moves.c.move_id)
        .outerjoin(assignments, assignments.c.id == moves.c.from_id)
        .where(plan_moves.c.plan_id == key)
        .order_by(plan_moves.c.position)
    )
    return tuple(record_of(PlanMove, row) for row in connection.execute(query))


def vms_following(
    connection: Connection, vm_id: UUID, plan_id: UUID, position: int
) -> Sequence[UUID]:
    """Return the other VMs that a plan will still bring to the destination of one of its moves."""
    there = (
        select(plan_moves.c.to_host_id)
        .where(plan_moves.c.plan_id == plan_id, plan_moves.c.position == position)
        .scalar_subquery()
    )
    query = (
        select(plan_moves.c.vm_id)
        .outerjoin(moves, moves.c.id == plan_moves.c.move_id)
        .where(
            plan_moves.c.plan_id == plan_id,
            plan_moves.c.to_host_id == there,
            plan_moves.c.vm_id != vm_id,
            plan_moves.c.refused.is_(None),
            or_(moves.c.state.is_(None), moves.c.state.in_(_OPEN)),
        )
    )
    return connection.scalars(query).all()


def _to_plan(row: Row[Any], tally: Row[Any] | None) -> Plan:
    """Return the record of a plan from its row and the counts of its moves."""
    moved_mib = 0
    if tally is not None:
        moved_mib = int(tally.transfer_mib if row.ended_at is None else tally.moved_mib)
    return record_of(
        Plan,
        row,
        not_moved=tuple(row.stays),
        moves=tally.moves if tally else 0,
        waves=tally.waves if tally else 0,
        ended=int(tally.ended) if tally else 0,
        failed=int(tally.failed) if tally else 0,
        moved_gib=moved_mib / 1024,
        effect=effect_text(row.kind, row.before, row.after),
    )
