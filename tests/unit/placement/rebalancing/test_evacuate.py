"""Where VMs of hosts that are emptied go, and who goes first where not all fit."""

from __future__ import annotations

import numpy as np
import pytest

from placement.rebalancing.check import check_plan
from placement.rebalancing.evacuate import evacuate
from placement.rebalancing.model import (
    MissingRoom,
    Mobility,
    RebalanceLimits,
    RebalanceObstacle,
    RunningGroup,
    RunningSpread,
    StayReason,
)
from tests.unit.placement.rebalancing.builders import a_running


def test_each_vm_chooses_its_own_host_by_the_potential() -> None:
    # Host 1 lacks cores in use and host 2 lacks memory in use: each VM evens one out.
    running = a_running(
        host=[0, 0, 1, 2],
        capacity=[(8, 8192)] * 3,
        demand=[(3, 1024), (1, 3072)],
        kind=[0, 1, 1, 0],
    )

    plan = evacuate(running, [0])

    assert {move.vm: move.destination for move in plan.moves} == {0: 1, 1: 2}
    assert plan.measures_after.potential > plan.measures_before.potential


def test_where_not_all_fit_the_tenant_left_with_least_goes_first() -> None:
    # Tenant 0 has two VMs elsewhere, tenant 1 has none but that which leaves.
    running = a_running(host=[0, 0, 1, 1], capacity=[(4, 8192), (3, 8192)], tenant=[0, 1, 0, 0])

    plan = evacuate(running, [0])

    assert [move.vm for move in plan.moves] == [1]
    assert [(each.vm, each.why) for each in plan.stays] == [(0, StayReason.NO_ROOM)]


def test_a_heavier_weight_is_in_greater_need() -> None:
    running = a_running(
        host=[0, 0, 1, 1], capacity=[(4, 8192), (3, 8192)], tenant=[0, 1, 0, 1], weight=(4.0, 1.0)
    )

    assert [move.vm for move in evacuate(running, [0]).moves] == [0]


def test_what_would_have_to_be_free_is_told_of_the_host_that_lacks_least() -> None:
    running = a_running(
        host=[0, 1, 2],
        capacity=[(4, 8192)] * 3,
        demand=[(2, 4096), (3, 2048), (3, 8192)],
        kind=[0, 1, 2],
    )

    plan = evacuate(running, [0])

    assert plan.moves == ()
    assert plan.stays[0].why is StayReason.NO_ROOM
    assert plan.stays[0].missing == MissingRoom(host=1, amounts=(1, 0))


def test_who_cannot_move_is_named_with_its_obstacle() -> None:
    running = a_running(host=[0, 0], mobility=[Mobility.NEVER, Mobility.COLD])

    plan = evacuate(running, [0])

    assert [(move.vm, move.live) for move in plan.moves] == [(1, False)]
    assert [(each.vm, each.obstacle) for each in plan.stays] == [(0, RebalanceObstacle.LABEL)]


@pytest.mark.parametrize(
    ("groups", "spreads", "why"),
    [
        ([RunningGroup(apart=True, hard=True, vms=(0, 1))], [], StayReason.ANTI_AFFINITY),
        ([], [RunningSpread(maximum=1, vms=(0, 1))], StayReason.ZONE_FULL),
        ([RunningGroup(apart=True, hard=False, vms=(0, 1))], [], None),
    ],
)
def test_a_rule_that_leaves_no_host_is_named(
    groups: list[RunningGroup], spreads: list[RunningSpread], why: StayReason | None
) -> None:
    running = a_running(
        host=[0, 1],
        capacity=[(4, 8192)] * 2,
        groups=groups,
        spreads=spreads,
        zones=[0, 1] if spreads else [],
    )

    plan = evacuate(running, [0])

    assert [each.why for each in plan.stays] == ([why] if why else [])


def test_a_soft_group_keeps_apart_as_long_as_there_is_room() -> None:
    soft = RunningGroup(apart=True, hard=False, vms=(0, 1))
    # Host 1 is what utility would choose: host 2 holds nothing.
    running = a_running(host=[0, 1], demand=[(2, 4096)], groups=[soft])

    assert [move.destination for move in evacuate(running, [0]).moves] == [2]


def test_more_than_may_move_at_once_stays_together() -> None:
    group = RunningGroup(apart=False, hard=True, vms=(0, 1, 2))
    running = a_running(host=[0, 0, 0], groups=[group])

    assert {each.why for each in evacuate(running, [0]).stays} == {StayReason.LIMITS}
    whole = evacuate(running, [0], limits=RebalanceLimits(per_source=3, per_destination=3))
    assert len({(move.wave, move.destination) for move in whole.moves}) == 1
    assert len(whole.moves) == 3


def test_hosts_are_emptied_in_as_few_waves_as_limits_allow() -> None:
    running = a_running(host=[0] * 6 + [1] * 6, capacity=[(8, 8192)] * 6, demand=[(1, 1024)])

    plan = evacuate(
        running, [0, 1], limits=RebalanceLimits(per_source=2, per_destination=4, at_once=4)
    )

    check_plan(running, plan)
    assert [len(wave) for wave in plan.waves] == [4, 4, 4]


def test_nothing_that_runs_needs_no_plan() -> None:
    plan = evacuate(a_running(host=[]), [0])

    assert (plan.moves, plan.stays) == ((), ())
    assert plan.measures_before == plan.measures_after


def test_amounts_of_thousands_of_billions_are_counted_to_the_unit() -> None:
    huge = 10**14
    running = a_running(
        host=[0], capacity=[(4, huge), (4, huge - 1), (4, huge)], demand=[(1, huge)]
    )

    assert [move.destination for move in evacuate(running, [0]).moves] == [2]
    assert np.array_equal(running.room[0], (3, 0))
