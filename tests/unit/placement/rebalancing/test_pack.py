"""Packing empties hosts, each wholly or not at all."""

import dataclasses

import pytest

from placement.rebalancing.check import check_plan
from placement.rebalancing.model import Mobility, MoveReason, RunningGroup
from placement.rebalancing.pack import PACK_OBJECTIVE, pack
from tests.unit.placement.rebalancing.builders import a_running


def test_vms_that_fit_on_fewer_hosts_leave_the_others_empty():
    running = a_running(host=[0, 1, 2, 2], capacity=[(4, 4096)] * 3)

    plan = pack(running)

    check_plan(running, plan)
    assert {(move.vm, move.destination, move.why) for move in plan.moves} == {
        (0, 2, MoveReason.PACKS),
        (1, 2, MoveReason.PACKS),
    }
    assert (plan.measures_before.hosts_in_use, plan.measures_after.hosts_in_use) == (3, 1)
    # Two hosts in use less; 1 - (1/4)^2 twice and 1 - (1/2)^2 before, 1 - 1 afterwards.
    assert plan.details["potential"] == pytest.approx([-2.625, 0.0])


def test_a_host_that_cannot_be_emptied_wholly_is_left_as_it_is():
    running = a_running(host=[0, 0, 1, 1, 1], capacity=[(4, 4096)] * 2)

    plan = pack(running)

    assert not plan.moves
    assert plan.details["outcome"] == "no_useful_move"


@pytest.mark.parametrize("stays", [{"rests": True}, {"mobility": Mobility.NEVER}])
def test_a_host_with_a_vm_that_stays_is_left_as_it_is(stays):
    each = {
        name: [value, *([False if name == "rests" else Mobility.LIVE] * 2)]
        for name, value in stays.items()
    }
    running = a_running(host=[0, 0, 1], capacity=[(4, 4096)] * 2, **each)

    plan = pack(running)

    assert [(move.vm, move.destination) for move in plan.moves] == [(2, 0)]


def test_a_host_on_which_something_else_is_committed_is_left_as_it_is():
    running = a_running(host=[0, 1, 1], capacity=[(4, 4096)] * 2, other=[(1, 0), (0, 0)])

    plan = pack(running)

    assert {(move.vm, move.destination) for move in plan.moves} == {(1, 0), (2, 0)}


def test_a_host_whose_vms_carry_more_than_it_is_worth_stays_in_use():
    running = a_running(host=[0, 1], capacity=[(4, 4096)] * 2)

    # 1 host less, and (1/4)^2 twice before, (1/2)^2 afterwards: 1.125 for 1 GiB.
    dear = [
        pack(running, dataclasses.replace(PACK_OBJECTIVE, price_per_gib=price))
        for price in (1.1, 1.2)
    ]

    assert [len(plan.moves) for plan in dear] == [1, 0]


def test_a_bound_that_not_all_vms_of_a_host_keep_moves_none_of_them():
    running = a_running(host=[0, 0, 1, 1, 1], capacity=[(8, 8192)] * 2)

    plan = pack(running, dataclasses.replace(PACK_OBJECTIVE, most_moves=1))

    assert (plan.moves, plan.cut, plan.details["outcome"]) == ((), True, "moves")


def test_vms_that_keep_together_keep_their_host_in_use():
    together = RunningGroup(apart=False, hard=True, vms=(0, 1))
    running = a_running(host=[0, 0, 1], capacity=[(4, 4096)] * 2, groups=[together])

    plan = pack(running)

    assert [(move.vm, move.destination) for move in plan.moves] == [(2, 0)]


def test_a_step_that_fails_leaves_no_trace_for_the_next():
    """Host 0's larger VM finds a place, its other none: then host 1 must find the same room."""
    apart = RunningGroup(apart=True, hard=True, vms=(1, 3))
    running = a_running(
        host=[0, 0, 1, 2],
        capacity=[(4, 4096), (4, 4096), (3, 3072)],
        demand=[(2, 2048), (1, 1024)],
        kind=[0, 1, 0, 1],
        groups=[apart, RunningGroup(apart=True, hard=True, vms=(1, 2))],
    )

    plan = pack(running)

    check_plan(running, plan)
    assert len({move.source for move in plan.moves}) == 1
    assert plan.measures_after.hosts_in_use == 2


def test_a_budget_without_work_plans_nothing_and_says_so():
    running = a_running(host=[0, 1], capacity=[(4, 4096)] * 2)

    assert pack(running, budget_units=1).details["outcome"] == "work"
    assert pack(running, budget_units=3).details["outcome"] == "work"
    assert pack(running, budget_units=100).moves


def test_a_host_that_could_not_be_emptied_takes_what_another_gives():
    running = a_running(
        host=[0, 1, 1],
        capacity=[(8, 8192), (4, 4096)],
        demand=[(3, 1024), (1, 1024)],
        kind=[0, 1, 1],
    )

    plan = pack(running)

    assert {(move.vm, move.destination) for move in plan.moves} == {(1, 0), (2, 0)}


def test_a_vm_that_came_back_from_a_failed_step_closes_its_own_host_alone():
    """VM 0 finds a place on host 1, VM 1 none. Then VM 3, kept apart from 0, goes there."""
    running = a_running(
        host=[0, 0, 1, 2],
        capacity=[(3, 8192), (4, 8192), (4, 8192)],
        demand=[(2, 512), (1, 256), (1, 2048)],
        kind=[0, 1, 2, 2],
        mobility=[Mobility.LIVE, Mobility.LIVE, Mobility.NEVER, Mobility.LIVE],
        eligible=[[True, True], [True, False], [True, True]],
        host_class=[0, 1, 1],
        groups=[RunningGroup(apart=True, hard=True, vms=(0, 3))],
    )

    plan = pack(running)

    assert [(move.vm, move.destination) for move in plan.moves] == [(3, 1)]
