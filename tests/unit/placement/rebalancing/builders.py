"""Clusters with VMs that run, with defaults, so that a test shows only what matters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement import Snapshot
from placement.rebalancing.measures import measure_moves
from placement.rebalancing.model import (
    OBSTACLES,
    Mobility,
    MovePlan,
    MoveReason,
    RebalanceLimits,
    RebalanceMove,
    RebalanceObstacle,
    RunningGroup,
    RunningSpread,
    RunningState,
)
from tests.builders import a_snapshot


def a_running(
    *,
    host: Sequence[int],
    capacity: Sequence[Sequence[int]] = ((4, 8192),) * 3,
    demand: Sequence[Sequence[int]] = ((1, 1024),),
    kind: Sequence[int] | None = None,
    eligible: Sequence[Sequence[bool]] | None = None,
    host_class: Sequence[int] | None = None,
    tenant: Sequence[int] | None = None,
    mobility: Sequence[Mobility] | None = None,
    rests: Sequence[bool] | None = None,
    receives: Sequence[bool] | None = None,
    other: Sequence[Sequence[int]] | None = None,
    groups: Sequence[RunningGroup] = (),
    spreads: Sequence[RunningSpread] = (),
    zones: Sequence[int] = (),
    weight: Sequence[float] = (1.0, 1.0),
    waiting: Snapshot | None = None,
    requests: Sequence[Sequence[int]] = (),
    count: Sequence[int] = (),
    min_count: Sequence[int] | None = None,
    requests_eligible: Sequence[Sequence[bool]] | None = None,
) -> RunningState:
    """Return a cluster; ``other`` (H, R) is committed beside the VMs; tenant 0 waits."""
    hosts = np.array(capacity, dtype=np.int64)
    kinds = np.array(demand, dtype=np.int64)
    where = np.array(host, dtype=np.int64)
    of_kind = np.zeros(len(where), dtype=np.int64) if kind is None else np.array(kind, np.int64)
    tenants = np.zeros(len(where), np.int64) if tenant is None else np.array(tenant, np.int64)
    committed = np.zeros_like(hosts) if other is None else np.array(other, dtype=np.int64)
    np.add.at(committed, where, kinds[of_kind])
    held = np.zeros((len(weight), hosts.shape[1]), dtype=np.int64)
    np.add.at(held, tenants, kinds[of_kind])
    room = hosts - committed
    classes = [0] * len(hosts) if host_class is None else list(host_class)
    snapshot = a_snapshot(
        capacity=hosts.tolist(),
        free=np.maximum(room, 0).tolist(),
        demand=requests,
        count=count,
        min_count=min_count,
        tenant=[0] * len(requests),
        weight=weight,
        held=held.tolist(),
        host_class=classes,
        eligible=requests_eligible
        if requests_eligible is not None
        else np.ones((len(requests), max(classes) + 1), dtype=np.bool_).tolist() or None,
        resources=("vcpus", "memory_mib", "disk_gib")[: hosts.shape[1]],
    )
    moves = [Mobility.LIVE] * len(where) if mobility is None else list(mobility)
    carried = kinds[of_kind, 1] if hosts.shape[1] > 1 else np.ones(len(where), dtype=np.int64)
    return RunningState(
        snapshot=snapshot,
        kind=of_kind,
        host=where,
        tenant=tenants,
        transfer_mib=np.where(np.array(moves, np.int64) == Mobility.LIVE, carried, 0),
        mobility=np.array(moves, dtype=np.int64),
        obstacle=np.array(
            [
                OBSTACLES.index(RebalanceObstacle.LABEL) if m == Mobility.NEVER else -1
                for m in moves
            ],
            dtype=np.int64,
        ),
        rests=np.zeros(len(where), np.bool_) if rests is None else np.array(rests, np.bool_),
        demand=kinds,
        eligible=np.ones((len(kinds), max(classes) + 1), np.bool_)
        if eligible is None
        else np.array(eligible, dtype=np.bool_),
        receives=np.ones(len(hosts), np.bool_)
        if receives is None
        else np.array(receives, np.bool_),
        over=np.maximum(-room, 0),
        groups=tuple(groups),
        spreads=tuple(spreads),
        zones=np.array(zones, dtype=np.int64),
    )


def a_move(
    running: RunningState,
    vm: int,
    destination: int,
    *,
    wave: int = 0,
    why: MoveReason = MoveReason.EVACUATES,
) -> RebalanceMove:
    """Return a move of a VM from where it is, as it can be moved."""
    return RebalanceMove(
        vm=vm,
        source=int(running.host[vm]),
        destination=destination,
        wave=wave,
        why=why,
        live=bool(running.mobility[vm] == Mobility.LIVE),
        transfer_mib=int(running.transfer_mib[vm]),
    )


def a_plan(
    running: RunningState,
    *moves: RebalanceMove,
    limits: RebalanceLimits | None = None,
    closed: Sequence[int] = (),
    admitted: Sequence[tuple[int, int, int]] = (),
) -> MovePlan:
    """Return a plan of some moves, with its measures."""
    return MovePlan(
        policy="evacuate",
        parameters={"hosts": [0]},
        seed=0,
        limits=limits or RebalanceLimits(),
        moves=moves,
        measures=measure_moves(running, moves),
        closed=tuple(closed),
        admitted=tuple(admitted),
    )
