"""Running VMs, their hosts and what keeps them from moving: the inputs of plans."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, Select, and_, case, func, or_, select

from registry.catalogue.resources import resource_names
from registry.db.ids import CLOCKS_APART, lowest_uuid7
from registry.db.schema import (
    assignment_resources,
    assignments,
    hosts,
    is_place,
    moves,
    plan_moves,
    plans,
    power_actions,
    unreleased,
    vms,
    volumes,
)
from registry.lifecycle import AssignmentState, HostHealth, MoveState, VmDesired, VmObserved
from registry.moves.obstacles import MOVES_LABEL
from registry.moves.stored_plans import GOES_ON
from registry.records.cluster import ClusterView
from registry.records.moves import MoveObstacle, RunningView, RunningVm
from registry.rounds.cluster_view import running_requests, view_cluster
from registry.rounds.group_views import vm_group_views

#: Seconds after a move or a refusal within which a VM is moved only out of need.
REST_S: Final = 3600.0
#: Age of a plan after which its refusals no longer count.
_LONGEST: Final = timedelta(days=1)
#: Values used for each VM; reading them from the enums would take a tenth of the time.
_RUNNING: Final = VmObserved.RUNNING.value
_SETTLED: Final = (_RUNNING, VmObserved.STOPPED.value)
#: Refusals of hosts or of the register center, which would be repeated.
_RESTS: Final = (MoveState.MOVED.value, MoveState.FAILED.value)
_ACTIVE: Final = AssignmentState.ACTIVE.value
_DELETED: Final = VmDesired.DELETED.value
_UP: Final = HostHealth.UP.value


def view_running(
    connection: Connection, *, rest_s: float = REST_S, cluster: ClusterView | None = None
) -> RunningView:
    """Return the cluster and each VM that has a place, as planners of moves see them."""
    if cluster is None:
        cluster = view_cluster(connection)
    axis = resource_names(connection)
    requests = running_requests(connection, axis, cluster.now, [host.id for host in cluster.hosts])
    known = {each.id for each in requests}
    waiting = [each.id for each in cluster.requests]
    return RunningView(
        cluster=cluster,
        requests=requests,
        vm_groups=vm_group_views(connection, sorted({*known, *waiting})),
        vms=tuple(
            each
            for each in _running_vms(connection, axis, cluster.now, rest_s)
            if each.request_id in known
        ),
    )


def _running_vms(
    connection: Connection, axis: Sequence[str], now: datetime, rest_s: float
) -> list[RunningVm]:
    """Return each VM that has a place, with its amounts and what keeps it from moving."""
    held = _held_amounts(connection, axis)
    moving_states = (AssignmentState.ARRIVING.value, AssignmentState.LEAVING.value)
    moving = set(
        connection.scalars(
            select(assignments.c.vm_id).where(unreleased, assignments.c.state.in_(moving_states))
        )
    )
    switched = set(connection.scalars(select(power_actions.c.vm_id)))
    lately = moves.c.ended_at > now - timedelta(seconds=rest_s)
    ended = select(moves.c.vm_id).where(moves.c.state.in_(_RESTS), lately)
    since = now - timedelta(seconds=rest_s)
    # By the key, as there are years of plans.
    late = and_(
        plans.c.id > lowest_uuid7(since - _LONGEST - CLOCKS_APART), plans.c.ended_at > since
    )
    refused = (
        select(plan_moves.c.vm_id)
        .join(plans, plans.c.id == plan_moves.c.plan_id)
        .where(plan_moves.c.refused.is_not(None), or_(GOES_ON, late))
    )
    rest = {*connection.scalars(ended), *connection.scalars(refused)}
    with_volumes = set(
        connection.scalars(select(volumes.c.vm_id).where(volumes.c.vm_id.is_not(None)))
    )
    query: Select[Any] = (
        select(
            vms.c.id,
            vms.c.request_id,
            vms.c.desired,
            vms.c.observed,
            # Reading all labels of all VMs would take longer than everything else.
            vms.c.labels[MOVES_LABEL].as_string().label("may_move"),
            assignments.c.id.label("assignment_id"),
            assignments.c.host_id,
            assignments.c.state,
            hosts.c.health,
        )
        .join(assignments, assignments.c.vm_id == vms.c.id)
        .join(hosts, hosts.c.id == assignments.c.host_id)
        .where(is_place, unreleased)
        .order_by(vms.c.id)
    )
    nothing = (0,) * len(axis)
    return [
        RunningVm(
            id=row.id,
            request_id=row.request_id,
            host_id=row.host_id,
            amounts=held.get(row.assignment_id, nothing),
            runs=row.observed == _RUNNING,
            obstacle=_rebalance_obstacle(
                row,
                moving=row.id in moving,
                switched=row.id in switched,
                has_volumes=row.id in with_volumes,
            ),
            rests=row.id in rest,
        )
        for row in connection.execute(query).all()
    ]


def _held_amounts(connection: Connection, axis: Sequence[str]) -> dict[UUID, tuple[int, ...]]:
    """Return the amounts that placed VMs hold, by assignment.

    There may be a million places. The database aggregates the rows of each into one, which takes
    far less time than reading the rows.
    """
    resource, amount = assignment_resources.c.resource, assignment_resources.c.amount
    amounts = [func.max(case((resource == name, amount), else_=0)) for name in axis]
    query = (
        select(assignments.c.id, *amounts)
        .join(assignment_resources, assignment_resources.c.assignment_id == assignments.c.id)
        .where(is_place, unreleased)
        .group_by(assignments.c.id)
    )
    return {key: tuple(values) for key, *values in connection.execute(query).all()}


def _rebalance_obstacle(
    row: Row[Any], *, moving: bool, switched: bool, has_volumes: bool
) -> str | None:
    """Return why a plan may not move a VM, as `placement.rebalancing` names it, or None."""
    wanted = row.may_move
    runs = row.observed == _RUNNING
    if moving:
        return "moving"
    settled = row.state == _ACTIVE and row.observed in _SETTLED
    if not settled or switched or row.desired == _DELETED:
        return "unsettled"
    if row.health != _UP:
        return "host_silent"
    if has_volumes:
        return MoveObstacle.LOCAL_VOLUME.value
    return "label" if wanted == "never" or (wanted == "cold" and runs) else None
