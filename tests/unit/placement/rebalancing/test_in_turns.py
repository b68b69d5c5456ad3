"""Hosts that are emptied in turns: VMs go ahead of no later turn if there is room elsewhere."""

from __future__ import annotations

import dataclasses

from placement.rebalancing.check import check_plan
from placement.rebalancing.evacuate import evacuate
from placement.rebalancing.evacuate_in_turns import evacuate_in_turns
from placement.rebalancing.model import RunningState
from tests.unit.placement.rebalancing.builders import a_running


def four_hosts(vms: int) -> RunningState:
    """Four hosts for four VMs each, with VMs in turn."""
    return a_running(host=[at % 4 for at in range(vms)], capacity=[(4, 8192)] * 4)


def test_vms_move_once_but_for_those_of_the_first_turn() -> None:
    running = four_hosts(8)

    plans = list(evacuate_in_turns(running, [[0], [1], [2], [3]]))

    moved = [move.vm for plan in plans for move in plan.moves]
    assert all(not plan.stays for plan in plans)
    # The two of the first turn find room only where a later turn empties them once more.
    assert len(moved) <= 8 + 2
    # What each plan alone would do: VMs go ahead of the turns.
    alone = running
    times = 0
    for host in range(4):
        plan = evacuate(alone, [host])
        times += len(plan.moves)
        alone = alone.after_moves(plan.moves)
    assert times >= len(moved)


def test_each_turn_is_planned_after_those_before_it_and_can_be_carried_out() -> None:
    running = four_hosts(8)

    for plan in evacuate_in_turns(running, [[0, 1], [2, 3]]):
        check_plan(running, plan)
        running = running.after_moves(plan.moves)
        assert not len(running.vms_on(plan.closed))


def test_later_hosts_take_vms_where_there_is_no_other_room() -> None:
    running = a_running(host=[0, 0, 1], capacity=[(4, 8192)] * 2)

    first, second = evacuate_in_turns(running, [[0], [1]])

    assert [move.destination for move in first.moves] == [1, 1]
    assert [move.destination for move in second.moves] == [0, 0, 0]


def test_what_has_no_place_is_named_with_its_turn() -> None:
    running = a_running(host=[0, 0, 1, 1, 1], capacity=[(4, 8192)] * 2)
    closed = dataclasses.replace(running, receives=running.receives & [True, False])

    first, second = evacuate_in_turns(closed, [[0], [1]])

    assert [each.vm for each in first.stays] == [0, 1]
    assert len(second.stays) == 1
