"""Each rule of a plan, broken once."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from placement.errors import InfeasiblePlanError, RunningError, ShapeMismatchError
from placement.model.snapshot import Reason
from placement.rebalancing.check import check_plan
from placement.rebalancing.model import (
    MissingRoom,
    Mobility,
    MovePlan,
    MoveReason,
    RebalanceLimits,
    RebalanceMove,
    RebalanceObstacle,
    RunningGroup,
    RunningSpread,
    RunningState,
    StayingVm,
    StayReason,
    UnplacedVms,
)
from tests.unit.placement.rebalancing.builders import a_move, a_plan, a_running


def refused(running: RunningState, plan: MovePlan) -> str:
    with pytest.raises(InfeasiblePlanError) as caught:
        check_plan(running, plan)
    return caught.value.rule


def test_a_move_to_a_host_with_room_is_feasible() -> None:
    running = a_running(host=[0])

    check_plan(running, a_plan(running, a_move(running, 0, 1)))


def test_a_full_host_takes_nothing() -> None:
    running = a_running(host=[0, 1, 1, 1, 1])

    assert "host 1 has 0 vcpus free" in refused(running, a_plan(running, a_move(running, 0, 1)))


def test_a_source_holds_what_leaves_until_its_wave_is_over() -> None:
    running = a_running(host=[0, 0, 0, 0, 1, 1, 1, 1])
    leaves = a_move(running, 4, 2)
    at_once = a_plan(running, leaves, a_move(running, 0, 1))
    one_after_the_other = a_plan(running, leaves, a_move(running, 0, 1, wave=1))

    assert "host 1 has 0 vcpus free" in refused(running, at_once)
    check_plan(running, one_after_the_other)


def test_a_host_above_its_capacity_takes_nothing_but_lets_go() -> None:
    running = a_running(host=[0, 0, 1], capacity=[(1, 4096), (4, 8192)])

    assert running.over.tolist() == [[1, 0], [0, 0]]
    assert "host 0 has -1 vcpus free" in refused(running, a_plan(running, a_move(running, 2, 0)))
    check_plan(running, a_plan(running, a_move(running, 0, 1)))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"vm": 7}, "VM 7 does not exist"),
        ({"vm": -1}, "VM -1 does not exist"),
        ({"destination": 9}, "host 9 does not exist"),
        ({"source": 2}, "VM 0 is on host 0, not 2"),
        ({"destination": 0}, "where it is"),
        ({"wave": 1}, "out of order"),
        ({"live": False}, "cannot move cold"),
        ({"transfer_mib": 5}, "carries 1024 MiB"),
    ],
)
def test_a_move_names_what_is_there(change: dict[str, object], rule: str) -> None:
    running = a_running(host=[0])
    move = a_move(running, 0, 1)
    plan = dataclasses.replace(
        a_plan(running, move),
        moves=(dataclasses.replace(move, **change),),  # type: ignore[arg-type]
    )

    assert rule in refused(running, plan)


def test_a_vm_moves_once() -> None:
    running = a_running(host=[0])
    on = RebalanceMove(
        vm=0,
        source=1,
        destination=2,
        wave=1,
        why=MoveReason.EVACUATES,
        live=True,
        transfer_mib=1024,
    )

    assert "moves twice" in refused(running, a_plan(running, a_move(running, 0, 1), on))


def test_a_detour_goes_on_from_the_third_host() -> None:
    running = a_running(host=[0])
    detour = a_move(running, 0, 1, why=MoveReason.DETOUR)
    on = RebalanceMove(
        vm=0, source=1, destination=2, wave=1, why=MoveReason.BALANCES, live=True, transfer_mib=1024
    )

    check_plan(running, a_plan(running, detour, on))
    assert "goes nowhere from there" in refused(running, a_plan(running, detour))
    again = dataclasses.replace(on, why=MoveReason.DETOUR)
    assert "two detours" in refused(running, a_plan(running, detour, again))
    at_once = dataclasses.replace(on, wave=0)
    assert refused(running, a_plan(running, detour, at_once)) == "VM 0 is on host 0, not 1"


def test_what_may_not_move_does_not() -> None:
    running = a_running(host=[0], mobility=[Mobility.NEVER])

    assert refused(running, a_plan(running, a_move(running, 0, 1))) == "VM 0 may not move: label"


def test_what_moves_cold_does_not_move_live() -> None:
    running = a_running(host=[0], mobility=[Mobility.COLD])
    cold = a_move(running, 0, 1)

    check_plan(running, a_plan(running, cold))
    assert "cannot move live" in refused(
        running, a_plan(running, dataclasses.replace(cold, live=True))
    )


def test_what_moved_lately_moves_for_need_alone() -> None:
    running = a_running(host=[0], rests=[True])

    check_plan(running, a_plan(running, a_move(running, 0, 1, why=MoveReason.EVACUATES)))
    for why in (MoveReason.BALANCES, MoveReason.PACKS):
        assert "rests" in refused(running, a_plan(running, a_move(running, 0, 1, why=why)))


def test_a_host_that_drains_takes_nothing() -> None:
    running = a_running(host=[0], receives=[True, False, True])
    plan = a_plan(running, a_move(running, 0, 2))

    assert "host 1 takes no VMs" in refused(running, a_plan(running, a_move(running, 0, 1)))
    check_plan(running, plan)
    assert "host 2 takes no VMs" in refused(running, dataclasses.replace(plan, closed=(2,)))
    assert "host 2 takes no VMs" in refused(running.with_closed_hosts([2]), plan)


def test_a_vm_stays_among_the_hosts_that_it_may_use() -> None:
    running = a_running(host=[0], host_class=[0, 1, 0], eligible=[[True, False]])

    assert "may not use host 1" in refused(running, a_plan(running, a_move(running, 0, 1)))


@pytest.mark.parametrize(
    ("limits", "rule"),
    [
        (RebalanceLimits(per_source=1), "moves 2 VMs away from host 0"),
        (RebalanceLimits(per_destination=1), "moves 2 VMs to host 1"),
        (RebalanceLimits(at_once=1), "is 2 moves at once"),
    ],
)
def test_no_more_moves_go_on_at_once_than_may(limits: RebalanceLimits, rule: str) -> None:
    running = a_running(host=[0, 0])
    moves = a_move(running, 0, 1), a_move(running, 1, 1)

    assert rule in refused(running, a_plan(running, *moves, limits=limits))
    check_plan(running, a_plan(running, *moves))


def test_a_group_keeps_apart_from_whoever_arrives_and_whoever_leaves() -> None:
    group = RunningGroup(apart=True, hard=True, vms=(0, 1), hosts=(3,))
    running = a_running(host=[0, 1], capacity=[(4, 8192)] * 4, groups=[group])
    leaves = a_move(running, 1, 2)

    assert "keeps apart" in refused(running, a_plan(running, a_move(running, 0, 1)))
    assert "keeps apart" in refused(running, a_plan(running, leaves, a_move(running, 0, 1)))
    assert "keeps apart" in refused(running, a_plan(running, leaves, a_move(running, 0, 2)))
    assert "keeps apart" in refused(running, a_plan(running, a_move(running, 0, 3)))
    check_plan(running, a_plan(running, leaves, a_move(running, 0, 1, wave=1)))
    soft = dataclasses.replace(running, groups=(dataclasses.replace(group, hard=False),))
    check_plan(soft, a_plan(soft, a_move(soft, 0, 1)))


def test_a_group_that_keeps_together_moves_in_one_wave() -> None:
    group = RunningGroup(apart=False, hard=True, vms=(0, 1))
    running = a_running(host=[0, 0], groups=[group])
    first = a_move(running, 0, 1)

    assert "keeps together" in refused(running, a_plan(running, first))
    assert "after wave 0" in refused(running, a_plan(running, first, a_move(running, 1, 1, wave=1)))
    assert "keeps together" in refused(running, a_plan(running, first, a_move(running, 1, 2)))
    check_plan(running, a_plan(running, first, a_move(running, 1, 1)))


def test_a_group_that_is_not_together_may_gather_and_not_scatter() -> None:
    group = RunningGroup(apart=False, hard=True, vms=(0, 1, 2))
    running = a_running(host=[0, 1, 1], groups=[group])

    check_plan(running, a_plan(running, a_move(running, 0, 1)))
    check_plan(running, a_plan(running, a_move(running, 1, 0)))
    assert "keeps together" in refused(running, a_plan(running, a_move(running, 0, 2)))


def test_a_zone_takes_no_more_than_its_part() -> None:
    spread = RunningSpread(maximum=1, vms=(0, 1))
    running = a_running(
        host=[0, 1], capacity=[(4, 8192)] * 5, spreads=[spread], zones=[0, 1, 1, 2, -1]
    )
    leaves = a_move(running, 1, 3)

    assert "zone 1 may hold 1" in refused(running, a_plan(running, a_move(running, 0, 2)))
    assert "is in none" in refused(running, a_plan(running, a_move(running, 0, 4)))
    assert "zone 1 may hold 1" in refused(running, a_plan(running, leaves, a_move(running, 0, 2)))
    check_plan(running, a_plan(running, leaves, a_move(running, 0, 2, wave=1)))
    check_plan(running, a_plan(running, a_move(running, 1, 2)))
    filled = dataclasses.replace(running, spreads=(dataclasses.replace(spread, others=(0, 0, 1)),))
    assert "zone 2 may hold 1" in refused(filled, a_plan(filled, leaves))


def test_what_is_let_in_fits_once_all_is_moved() -> None:
    running = a_running(host=[0, 1, 2], requests=[(4, 1024)], count=[1])
    move = a_move(running, 0, 1, why=MoveReason.MAKES_ROOM)

    check_plan(running, a_plan(running, move, admitted=[(0, 0, 1)]))
    assert "lacks vcpus" in refused(running, a_plan(running, admitted=[(0, 0, 1)]))
    assert "2 VMs of request 0" in refused(
        running, a_plan(running, move, a_move(running, 2, 1), admitted=[(0, 0, 1), (0, 2, 1)])
    )


@pytest.mark.parametrize(
    ("apart", "admitted", "rule"),
    [
        (True, [(0, 0, 1)], "does not keep apart"),
        (True, [(0, 1, 2)], "does not keep apart"),
        (True, [(0, 1, 1), (0, 2, 1)], None),
        (False, [(0, 1, 1)], "does not keep together"),
        (False, [(0, 0, 2)], None),
    ],
)
def test_what_is_let_in_keeps_the_rules_of_its_group(
    apart: bool, admitted: list[tuple[int, int, int]], rule: str | None
) -> None:
    group = RunningGroup(apart=apart, hard=True, vms=(0,), requests=(0,))
    running = a_running(host=[0], requests=[(1, 1)], count=[2], groups=[group])
    plan = a_plan(running, admitted=admitted)

    if rule is None:
        check_plan(running, plan)
    else:
        assert rule in refused(running, plan)


def test_what_is_let_in_is_spread() -> None:
    spread = RunningSpread(maximum=1, vms=(0,), request=0)
    running = a_running(host=[0], requests=[(1, 1)], count=[1], spreads=[spread], zones=[0, 0, 1])

    assert "fills zone 0" in refused(running, a_plan(running, admitted=[(0, 1, 1)]))
    check_plan(running, a_plan(running, admitted=[(0, 2, 1)]))


def test_a_gang_is_let_in_whole() -> None:
    running = a_running(host=[], requests=[(1, 1)], count=[3], min_count=[3])

    assert "2 VMs of request 0" in refused(running, a_plan(running, admitted=[(0, 0, 2)]))


def test_who_stays_does_not_move_and_stands_once() -> None:
    running = a_running(host=[0, 0])
    plan = a_plan(running, a_move(running, 0, 1))
    stays = StayingVm(vm=0, why=StayReason.NO_ROOM)

    assert "moves and stays" in refused(running, dataclasses.replace(plan, stays=(stays,)))
    twice = (dataclasses.replace(stays, vm=1),) * 2
    assert "out of order" in refused(running, dataclasses.replace(plan, stays=twice))


def test_measures_are_one_more_than_moves() -> None:
    running = a_running(host=[0])
    plan = a_plan(running, a_move(running, 0, 1))

    assert "1 measures of 1 moves" in refused(
        running, dataclasses.replace(plan, measures=plan.measures[:1])
    )


def test_measures_follow_the_moves() -> None:
    running = a_running(host=[0, 0], demand=[(1, 1024), (1, 4096)], kind=[0, 1])

    plan = a_plan(running, a_move(running, 1, 1), a_move(running, 0, 1, wave=1))

    # Of host 0: u = (2/4, 5120/8192), relative to their mean 8/9 and 10/9.
    assert plan.measures_before.mean_skewness == pytest.approx(np.sqrt(2) / 9)
    assert [each.hosts_in_use for each in plan.measures] == [1, 2, 1]
    assert [each.moved_gib for each in plan.measures] == [0.0, 4.0, 5.0]
    assert plan.measures_after.potential == pytest.approx(plan.measures_before.potential)
    # Both hosts then: (1/4, 1/8) and (1/4, 1/2), each relative 4/3 and 2/3.
    assert plan.measures[1].potential - plan.measures_before.potential == pytest.approx(
        np.sqrt(2) / 9 - 2 * np.sqrt(2) / 3
    )


def test_a_plan_and_what_runs_are_read_back_as_they_were() -> None:
    running = a_running(
        host=[0, 1],
        mobility=[Mobility.COLD, Mobility.NEVER],
        groups=[RunningGroup(apart=True, hard=False, vms=(0, 1), hosts=(2,))],
        spreads=[RunningSpread(maximum=2, vms=(1,), others=(1, 0))],
        zones=[0, 1, -1],
    )
    plan = dataclasses.replace(
        a_plan(running, a_move(running, 0, 1)),
        stays=(
            StayingVm(vm=1, why=StayReason.OBSTACLE, obstacle=RebalanceObstacle.LABEL),
            StayingVm(vm=2, why=StayReason.NO_ROOM, missing=MissingRoom(host=1, amounts=(1, 0))),
        ),
        admitted=((0, 1, 2),),
        still_waits=(UnplacedVms(request=0, count=1, reason=Reason.QUOTA),),
    )

    assert MovePlan.from_document(json.loads(json.dumps(plan.document()))) == plan
    again = RunningState.from_document(json.loads(json.dumps(running.document())), running.snapshot)
    assert again.document() == running.document()


def test_stored_documents_keep_the_keys_of_earlier_versions() -> None:
    running, plan = a_running(host=[0]), a_plan(a_running(host=[0]), admitted=[(0, 1, 2)])

    stored, planned = running.document(), plan.document()

    assert stored["carried_mib"] == running.transfer_mib.tolist()
    assert planned["let_in"] == [[0, 1, 2]]
    assert not {"transfer_mib", "admitted"} & (stored.keys() | planned.keys())


def test_nothing_that_runs_is_read_back_as_nothing() -> None:
    running = a_running(host=[])

    again = RunningState.from_document(json.loads(json.dumps(running.document())), running.snapshot)

    assert len(again) == 0
    assert again.document() == running.document()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"host": np.array([0, 5])}, RunningError),
        ({"kind": np.array([0, 1])}, RunningError),
        ({"tenant": np.array([0, 2])}, RunningError),
        ({"host": np.array([0])}, ShapeMismatchError),
        ({"obstacle": np.array([0, -1])}, RunningError),
        ({"transfer_mib": np.array([0, -1])}, RunningError),
        ({"demand": np.array([[9, 9000]])}, RunningError),
        ({"over": np.array([[1, 0]] * 3)}, RunningError),
        ({"groups": (RunningGroup(apart=True, hard=True, vms=(2,)),)}, RunningError),
        ({"groups": (RunningGroup(apart=True, hard=True, vms=(0, 0)),)}, RunningError),
        ({"spreads": (RunningSpread(maximum=1, vms=(0,)),)}, ShapeMismatchError),
    ],
)
def test_what_does_not_go_together_is_refused(
    change: dict[str, object], error: type[Exception]
) -> None:
    running = a_running(host=[0, 1])

    with pytest.raises(error):
        dataclasses.replace(running, **change)  # type: ignore[arg-type]


def test_after_the_moves_their_vms_are_elsewhere_and_rest() -> None:
    running = a_running(host=[0, 0], capacity=[(1, 8192), (4, 8192)])

    after = running.after_moves([a_move(running, 0, 1)])

    assert after.host.tolist() == [1, 0]
    assert after.rests.tolist() == [True, False]
    assert after.over.tolist() == [[0, 0], [0, 0]]
    assert after.snapshot.free.tolist() == [[0, 7168], [3, 7168]]
