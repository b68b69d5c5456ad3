"""Waves of a known order: what a move needs must be over before its wave begins."""

from placement.rebalancing.local_search.group_constraints import GroupConstraints
from placement.rebalancing.local_search.wave_schedule import schedule_waves
from placement.rebalancing.model import MoveReason, RebalanceLimits, RunningGroup
from tests.unit.placement.rebalancing.builders import a_move, a_running

MANY = RebalanceLimits(per_source=9, per_destination=9, at_once=9)


def waves_of(running, *moves, limits=MANY):
    made = [a_move(running, vm, host, why=MoveReason.BALANCES) for vm, host in moves]
    return [
        (m.vm, m.wave) for m in schedule_waves(running, GroupConstraints(running), made, limits)
    ]


def test_a_vm_arrives_only_after_the_one_whose_room_it_needs():
    running = a_running(host=[0, 1], capacity=[(1, 1024), (1, 1024), (1, 1024)])

    assert waves_of(running, (1, 2), (0, 1)) == [(1, 0), (0, 1)]


def test_where_there_is_room_for_both_they_go_at_once():
    running = a_running(host=[0, 1], capacity=[(2, 2048)] * 3)

    assert waves_of(running, (1, 2), (0, 1)) == [(1, 0), (0, 0)]


def test_a_vm_arrives_only_after_the_one_that_it_keeps_apart_from_has_left():
    apart = RunningGroup(apart=True, hard=True, vms=(0, 1))
    running = a_running(host=[0, 1], capacity=[(2, 2048)] * 3, groups=[apart])

    assert waves_of(running, (1, 2), (0, 1)) == [(1, 0), (0, 1)]


def test_a_host_sees_its_moves_in_their_order():
    """The second could go at once, were it not for the first, which waits for its wave."""
    running = a_running(host=[0, 0, 1, 1], capacity=[(4, 4096)] * 4)
    one = RebalanceLimits(per_source=9, per_destination=1, at_once=9)

    found = waves_of(running, (2, 2), (0, 2), (1, 3), limits=one)

    assert found == [(2, 0), (0, 1), (1, 1)]


def test_a_full_wave_is_passed_over():
    running = a_running(host=[0, 1, 2], capacity=[(4, 4096)] * 6)
    pairs = RebalanceLimits(per_source=1, per_destination=1, at_once=2)

    found = waves_of(running, (0, 3), (1, 4), (2, 5), limits=pairs)

    assert found == [(0, 0), (1, 0), (2, 1)]
