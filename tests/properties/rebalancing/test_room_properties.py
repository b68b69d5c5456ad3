"""What holds of room that is made, beside all that could be done on tiny clusters."""

from __future__ import annotations

import itertools
import json

import numpy as np
from hypothesis import given, note
from hypothesis import strategies as st

from placement.model.snapshot import Reason
from placement.rebalancing.check import check_plan
from placement.rebalancing.model import (
    Mobility,
    MovePlan,
    MoveReason,
    RebalanceLimits,
    RunningGroup,
    RunningState,
)
from placement.rebalancing.room import plan_room
from tests.properties.rebalancing.running_clusters import limits, runnings
from tests.unit.placement.rebalancing.builders import a_running


@st.composite
def rooms(draw: st.DrawFn) -> tuple[RunningState, MovePlan]:
    running = draw(runnings(waiting=True))
    plan = plan_room(running, 0, limits=draw(limits))
    note(json.dumps([running.document(), plan.document()]))
    return running, plan


@given(rooms())
def test_room_is_there_after_the_moves_and_every_state_is_feasible(
    case: tuple[RunningState, MovePlan],
) -> None:
    running, plan = case

    check_plan(running, plan)
    admitted = sum(count for _, _, count in plan.admitted)
    waits = sum(each.count for each in plan.still_waits)
    assert admitted + waits == int(running.snapshot.count[0])
    assert admitted == 0 or admitted >= int(running.snapshot.min_count[0])
    assert plan.admitted or not plan.moves


@given(rooms())
def test_who_fits_moves_nobody(case: tuple[RunningState, MovePlan]) -> None:
    running, plan = case
    snapshot = running.snapshot
    ruled = any(0 in g.requests for g in running.groups) or any(
        s.request == 0 for s in running.spreads
    )
    open_to = snapshot.eligible[0][snapshot.host_class] & running.receives
    fits = (running.room[open_to] // snapshot.demand[0]).min(axis=1, initial=99)
    if not ruled and np.maximum(fits, 0).sum() >= snapshot.count[0]:
        assert plan.moves == ()
        assert plan.still_waits == ()


@given(rooms())
def test_room_is_made_again_bit_for_bit(case: tuple[RunningState, MovePlan]) -> None:
    running, plan = case

    assert plan_room(running, 0, limits=plan.limits) == plan


def least_carried(running: RunningState) -> int | None:
    """Return the least MiB whose move lets one VM in, nobody moving for another's sake."""
    snapshot, room = running.snapshot, running.room
    best: int | None = None
    for host in range(len(room)):
        if not (snapshot.capacity[host] >= snapshot.demand[0]).all():
            continue
        there = [vm for vm in running.vms_on([host]).tolist() if running.movable[vm]]
        for size in range(len(there) + 1):
            for chosen in itertools.combinations(there, size):
                freed = running.demand[running.kind[list(chosen)]].sum(axis=0)
                cost = int(running.transfer_mib[list(chosen)].sum())
                if (room[host] + freed < snapshot.demand[0]).any():
                    continue
                if (best is None or cost < best) and _find_places(running, host, chosen):
                    best = cost
    return best


def _find_places(running: RunningState, host: int, vms: tuple[int, ...]) -> bool:
    others = [each for each in range(len(running.room)) if each != host]
    for hosts in itertools.product(others, repeat=len(vms)):
        room = running.room.copy()
        for vm, to in zip(vms, hosts, strict=True):
            room[to] -= running.demand[running.kind[vm]]
        if (room >= 0).all():
            return True
    return False


def a_fragmented_cluster(seed: int) -> RunningState:
    """Return a small cluster where the free room would hold a VM, but no host does."""
    rng = np.random.default_rng(seed)
    hosts = int(rng.integers(2, 5))
    capacity = np.array([(8, 16)] * hosts)
    kinds = rng.integers(1, 6, (4, 2)) * (1, 2)
    host, kind, room = [], [], capacity.copy()
    for at in range(hosts):
        for _ in range(8):
            of_kind = int(rng.integers(0, 4))
            if (room[at] - kinds[of_kind] >= (1, 1)).all():
                room[at] -= kinds[of_kind]
                host.append(at)
                kind.append(of_kind)
    wanted = np.minimum(room.max(axis=0) + rng.integers(0, 3, 2), room.sum(axis=0))
    return a_running(
        host=host,
        kind=kind,
        capacity=capacity.tolist(),
        demand=kinds.tolist(),
        requests=[np.maximum(wanted, 1).tolist()],
        count=[1],
        mobility=[Mobility.NEVER if rng.random() < 0.15 else Mobility.LIVE for _ in host],
    )


def test_one_vm_is_let_in_for_the_fewest_gibibytes() -> None:
    possible = dear = missed = moved = 0
    for seed in range(300):
        running = a_fragmented_cluster(seed)
        least = least_carried(running)
        plan = plan_room(running, 0)
        check_plan(running, plan)
        if least is None:
            assert plan.moves == ()
            continue
        possible += 1
        moved += least > 0
        if not plan.admitted:
            missed += 1
        else:
            carried = sum(move.transfer_mib for move in plan.moves)
            assert carried >= least
            dear += carried > least

    assert moved >= 60
    assert missed == 0
    assert dear == 0


def test_the_smallest_vm_that_is_enough_makes_room() -> None:
    running = a_running(
        host=[0, 0, 1],
        demand=[(2, 2048), (1, 1024), (3, 1024)],
        kind=[0, 1, 2],
        capacity=[(4, 8192)] * 2,
        requests=[(2, 1024)],
        count=[1],
    )

    plan = plan_room(running, 0)

    assert [(m.vm, m.source, m.destination, m.why) for m in plan.moves] == [
        (1, 0, 1, MoveReason.MAKES_ROOM)
    ]
    assert plan.admitted == ((0, 0, 1),)


def test_what_frees_cores_and_memory_at_once_is_reckoned_once() -> None:
    # Host 0 lacks 2 cores and 1000 MiB, and two VMs that carry 1000 MiB have both. Reckoned
    # for each resource and added up these would seem dearer than any other way: the one VM
    # there that is enough (1100), or those of hosts 1 and 2, which lack cores alone.
    running = a_running(
        host=[0, 0, 0, 1, 2],
        kind=[0, 0, 1, 2, 3],
        demand=[(1, 500), (2, 1100), (2, 1500), (2, 1600)],
        capacity=[(6, 6000), (4, 8192), (4, 8192), (3, 2048)],
        requests=[(4, 4900)],
        count=[1],
    )

    plan = plan_room(running, 0)

    assert [(m.vm, m.source, m.transfer_mib) for m in plan.moves] == [(0, 0, 500), (1, 0, 500)]
    assert plan.admitted == ((0, 0, 1),)


def test_a_gang_that_does_not_become_whole_moves_nobody() -> None:
    running = a_running(
        host=[0, 1], capacity=[(4, 8192)] * 2, requests=[(4, 1024)], count=[2], min_count=[2]
    )

    plan = plan_room(running, 0)

    assert plan.moves == ()
    assert plan.admitted == ()
    assert [(each.count, each.reason) for each in plan.still_waits] == [(2, Reason.GANG_NOT_WHOLE)]


def test_a_gang_that_keeps_apart_is_let_in_whole() -> None:
    apart = RunningGroup(apart=True, hard=True, vms=(), requests=(0,))
    running = a_running(
        host=[0, 0, 1, 2],
        capacity=[(4, 8192)] * 4,
        requests=[(4, 1024)],
        count=[2],
        min_count=[2],
        groups=[apart],
    )

    plan = plan_room(running, 0, limits=RebalanceLimits(per_source=1))

    check_plan(running, plan)
    # One host is empty already, and of the others one holds a single small VM.
    assert [count for _, _, count in plan.admitted] == [1, 1]
    assert len(plan.moves) == 1


def test_what_is_larger_than_every_host_finds_no_room() -> None:
    running = a_running(host=[0], requests=[(9, 1024)], count=[1])

    plan = plan_room(running, 0)

    assert [each.reason for each in plan.still_waits] == [Reason.NO_HOST_LARGE_ENOUGH]


def test_what_no_host_may_take_says_so() -> None:
    running = a_running(host=[0], receives=[False] * 3, requests=[(2, 1024)], count=[1])

    plan = plan_room(running, 0)

    assert [each.reason for each in plan.still_waits] == [Reason.NO_ELIGIBLE_HOST]
