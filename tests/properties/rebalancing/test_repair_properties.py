"""Properties of repair plans and of the order of moves."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

import numpy as np
from hypothesis import given, note
from hypothesis import strategies as st

from placement.rebalancing.check import check_plan
from placement.rebalancing.model import (
    Mobility,
    MovePlan,
    MoveReason,
    RebalanceLimits,
    RunningGroup,
    RunningState,
    StayReason,
)
from placement.rebalancing.repair import repair
from placement.rebalancing.units import UnitBuilder
from placement.rebalancing.waves import UnitDestination, order_in_waves
from tests.properties.rebalancing.running_clusters import limits, runnings
from tests.unit.placement.rebalancing.builders import a_plan, a_running


@st.composite
def repairs(draw: st.DrawFn) -> tuple[RunningState, MovePlan]:
    running = draw(runnings(over=True))
    plan = repair(running, limits=draw(limits))
    note(json.dumps([running.document(), plan.document()]))
    return running, plan


@given(repairs())
def test_every_state_of_a_repair_is_feasible(case: tuple[RunningState, MovePlan]) -> None:
    running, plan = case

    check_plan(running, plan)


@given(repairs())
def test_what_is_broken_afterwards_is_named(case: tuple[RunningState, MovePlan]) -> None:
    running, plan = case
    after = running.after_moves(plan.moves)
    stays = {each.vm for each in plan.stays}

    for host in np.flatnonzero(after.over.any(axis=1)).tolist():
        lacks = after.over[host] > 0
        there = [vm for vm in after.vms_on([host]) if after.demand[after.kind[vm]][lacks].any()]
        assert stays & set(there) or not there
    for vms, number in too_many(after):
        assert len(stays & vms) >= number


def too_many(running: RunningState) -> Iterator[tuple[set[int], int]]:
    """Yield VMs that break a hard rule together, and how many of them would have to leave.

    But for groups that are to be together. It shares nothing with the planner.
    """
    for vm in range(len(running)):
        of_host = running.snapshot.host_class[running.host[vm]]
        if not running.eligible[running.kind[vm], of_host]:
            yield {vm}, 1
    for group in running.groups:
        for host in range(len(running.receives)):
            there = {vm for vm in group.vms if running.host[vm] == host}
            if group.hard and group.apart and there:
                yield there, len(there) - (host not in group.hosts)
    for spread in running.spreads:
        for zone in {int(running.zones[running.host[vm]]) for vm in spread.vms}:
            there = {vm for vm in spread.vms if running.zones[running.host[vm]] == zone}
            others = spread.others[zone] if spread.others and zone >= 0 else 0
            yield there, len(there) - (max(0, spread.maximum - others) if zone >= 0 else 0)


@given(repairs())
def test_nothing_that_is_well_where_it_is_moves(case: tuple[RunningState, MovePlan]) -> None:
    running, plan = case
    together = {vm for g in running.groups if g.hard and not g.apart for vm in g.vms}
    ill = together.union(*(vms for vms, number in too_many(running) if number > 0))

    for move in plan.moves:
        if move.why is MoveReason.REPAIRS_CAPACITY:
            assert running.over[move.source].any()
        else:
            assert move.vm in ill


@given(repairs())
def test_repair_is_decided_again_bit_for_bit(case: tuple[RunningState, MovePlan]) -> None:
    running, plan = case

    assert repair(running, limits=plan.limits) == plan


@given(runnings(rules=False))
def test_a_cluster_without_fault_needs_no_repair(running: RunningState) -> None:
    well = dataclasses.replace(running, eligible=np.ones_like(running.eligible))

    assert repair(well).moves == ()
    assert repair(well).stays == ()


@given(runnings(rules=False), limits, st.randoms(use_true_random=False))
def test_vms_that_change_places_find_an_order_or_stay(
    running: RunningState, most: RebalanceLimits, random: object
) -> None:
    """Hosts of VMs are shuffled: where the shuffled cluster is feasible, an order is asked for."""
    movable = np.flatnonzero(running.movable).tolist()
    places = [int(running.host[vm]) for vm in movable]
    random.shuffle(places)  # type: ignore[attr-defined]
    units, _ = UnitBuilder(running, most).units_of(movable)
    wanted = [
        UnitDestination(unit=unit, destination=place, why=MoveReason.BALANCES)
        for unit, place in zip(units, places, strict=True)
        if place != running.host[unit.vms[0]]
        and running.receives[place]
        and unit.eligible[running.snapshot.host_class[place]]
    ]
    relaxed = dataclasses.replace(running, rests=np.zeros_like(running.rests))

    order = order_in_waves(relaxed, wanted, most)

    check_plan(relaxed, a_plan(relaxed, *order.moves, limits=most))
    final = {move.vm: move.destination for move in order.moves}
    left = {vm for each in order.left for vm in each.unit.vms}
    for each in wanted:
        (vm,) = each.unit.vms
        assert (vm in left) != (final.get(vm) == each.destination)


def test_two_full_hosts_exchange_vms_by_a_third() -> None:
    running = a_running(host=[0, 1], capacity=[(1, 1024), (1, 1024), (1, 1024)])
    units, _ = UnitBuilder(running, RebalanceLimits()).units_of([0, 1])
    wanted = [
        UnitDestination(unit=units[0], destination=1, why=MoveReason.BALANCES),
        UnitDestination(unit=units[1], destination=0, why=MoveReason.BALANCES),
    ]

    order = order_in_waves(running, wanted, RebalanceLimits())

    assert [(m.vm, m.source, m.destination, m.why) for m in order.moves] == [
        (0, 0, 2, MoveReason.DETOUR),
        (1, 1, 0, MoveReason.BALANCES),
        (0, 2, 1, MoveReason.BALANCES),
    ]
    assert order.left == ()
    check_plan(running, a_plan(running, *order.moves))


def test_without_a_third_host_a_cycle_stays() -> None:
    running = a_running(host=[0, 1], capacity=[(1, 1024), (1, 1024)])
    units, _ = UnitBuilder(running, RebalanceLimits()).units_of([0, 1])
    wanted = [
        UnitDestination(unit=units[0], destination=1, why=MoveReason.BALANCES),
        UnitDestination(unit=units[1], destination=0, why=MoveReason.BALANCES),
    ]

    order = order_in_waves(running, wanted, RebalanceLimits())

    assert order.moves == ()
    assert list(order.left) == wanted


def test_one_vm_leaves_a_host_that_shrank_if_one_is_enough() -> None:
    running = a_running(
        host=[0, 0, 0],
        capacity=[(4, 6144), (8, 8192)],
        demand=[(1, 1024), (1, 2048), (2, 4096)],
        kind=[0, 1, 2],
    )

    plan = repair(running)

    assert [(move.vm, move.destination, move.why) for move in plan.moves] == [
        (0, 1, MoveReason.REPAIRS_CAPACITY)
    ]


def test_a_vm_beside_one_of_its_group_that_does_not_run_yet_moves_away() -> None:
    apart = RunningGroup(apart=True, hard=True, vms=(0,), hosts=(0,))

    plan = repair(a_running(host=[0], groups=[apart]))

    assert [(move.vm, move.source, move.why) for move in plan.moves] == [
        (0, 0, MoveReason.REPAIRS_RULE)
    ]


def test_who_cannot_move_from_a_host_that_shrank_is_named() -> None:
    running = a_running(host=[0, 0], capacity=[(1, 8192), (8, 8192)], mobility=[Mobility.NEVER] * 2)

    plan = repair(running)

    assert plan.moves == ()
    assert [(each.vm, each.why) for each in plan.stays] == [
        (0, StayReason.OBSTACLE),
        (1, StayReason.OBSTACLE),
    ]
