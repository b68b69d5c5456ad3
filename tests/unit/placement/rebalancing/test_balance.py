"""Balancing levels the load of hosts, by moves that are worth what they carry."""

import dataclasses

import numpy as np
import pytest

from placement import ParameterError
from placement.fuga.strategies import skewness
from placement.rebalancing.balance import BALANCE_OBJECTIVE, balance
from placement.rebalancing.check import check_plan
from placement.rebalancing.local_search.host_costs import LoadImbalance
from placement.rebalancing.local_search.objective import MoveObjective
from placement.rebalancing.model import (
    Mobility,
    MoveReason,
    RebalanceLimits,
    RunningGroup,
    RunningSpread,
)
from tests.unit.placement.rebalancing.builders import a_running

FREE = MoveObjective(price_per_gib=0.0, least_gain=1e-9)


def loads(running):
    return (1 - running.room / running.snapshot.capacity).round(9).tolist()


def test_vms_of_a_full_host_go_to_an_empty_one_until_both_are_alike():
    running = a_running(host=[0, 0, 0, 0], capacity=[(4, 4096)] * 2)

    plan = balance(running)

    assert [(move.source, move.destination, move.why) for move in plan.moves] == [
        (0, 1, MoveReason.BALANCES)
    ] * 2
    assert loads(running.after_moves(plan.moves)) == [[0.5, 0.5], [0.5, 0.5]]
    # Each host was half of its CPU and memory away from the load of the pool.
    assert plan.details["potential"] == pytest.approx([-1.0, 0.0])
    # (1/2)^2 - (1/4)^2 less on either host, for each of two resources, then the rest.
    assert plan.details["gains"] == pytest.approx([0.75, 0.25])
    assert plan.details["outcome"] == "settled"


def test_a_larger_host_gets_so_much_more_that_its_load_is_the_same():
    running = a_running(host=[0] * 8, capacity=[(8, 8192), (24, 24576)])

    plan = balance(running)

    assert loads(running.after_moves(plan.moves)) == [[0.25, 0.25], [0.25, 0.25]]


def test_hosts_that_are_alike_already_give_no_useful_move():
    running = a_running(host=[0, 1, 2])

    plan = balance(running)

    assert not plan.moves
    assert plan.details["outcome"] == "no_useful_move"
    assert not plan.cut


def test_a_vm_that_would_only_change_places_with_a_hole_stays():
    """Without a least gain it could go to and fro for ever."""
    running = a_running(host=[0], capacity=[(4, 4096)] * 2)

    plan = balance(running, FREE)

    assert not plan.moves


def test_what_a_move_carries_must_be_worth_it():
    running = a_running(host=[0, 0, 0, 0], capacity=[(4, 4096)] * 2)

    # The first move gains 0.75, the second 0.25, and each carries 1 GiB.
    plans = [
        balance(running, dataclasses.replace(FREE, price_per_gib=price))
        for price in (0.2, 0.3, 0.8)
    ]

    assert [len(plan.moves) for plan in plans] == [2, 1, 0]


def test_a_cold_move_carries_nothing_and_costs_the_least_gain_only():
    running = a_running(host=[0, 0], capacity=[(4, 4096)] * 2, mobility=[Mobility.COLD] * 2)

    plan = balance(running, MoveObjective(price_per_gib=100.0, least_gain=0.1))

    assert [(move.live, move.transfer_mib) for move in plan.moves] == [(False, 0)]


@pytest.mark.parametrize(("gib", "points"), [(1, 2), (16, 7)])
def test_the_default_price_asks_for_a_difference_that_grows_with_the_vm(gib, points):
    """As the comment of `BALANCE_OBJECTIVE` says, on hosts of 256 GiB and as many CPUs."""

    def plan(difference):
        # The VM, and what else is committed, so that the full host is so many points ahead.
        vms = [(gib, gib * 1024)]
        ahead = round(256 * difference) - gib
        return balance(
            a_running(
                host=[0],
                capacity=[(256, 256 * 1024)] * 2,
                demand=vms,
                other=[(100 + ahead, (100 + ahead) * 1024), (100, 100 * 1024)],
            ),
            skewness=0.0,
        )

    assert plan((points + 0.5) / 100).moves
    assert not plan((points - 0.5) / 100).moves


def test_vms_that_rest_or_never_move_stay():
    running = a_running(
        host=[0, 0, 0, 0],
        capacity=[(4, 4096)] * 2,
        rests=[True, False, False, False],
        mobility=[Mobility.LIVE, Mobility.NEVER, Mobility.NEVER, Mobility.LIVE],
    )

    plan = balance(running)

    assert [move.vm for move in plan.moves] == [3]


def test_a_host_that_drains_gives_and_does_not_take():
    running = a_running(host=[0, 0, 0, 0], capacity=[(4, 4096)] * 3, receives=[False, False, True])

    plan = balance(running)

    assert {move.destination for move in plan.moves} == {2}


def test_vms_that_keep_apart_are_never_on_one_host():
    apart = RunningGroup(apart=True, hard=True, vms=(0, 4))
    running = a_running(
        host=[0, 0, 0, 0, 1], capacity=[(8, 8192)] * 2, kind=[0, 1, 1, 1, 0],
        demand=[(2, 2048), (1, 1024)], groups=[apart],
    )  # fmt: skip

    plan = balance(running)

    check_plan(running, plan)
    assert 0 not in [move.vm for move in plan.moves]
    assert plan.moves


@pytest.mark.parametrize("apart", [True, False])
def test_not_even_a_soft_rule_is_broken_for_a_better_balance(apart):
    group = RunningGroup(apart=apart, hard=False, vms=(0, 1) if not apart else (0, 2))
    running = a_running(host=[0, 0, 1], capacity=[(4, 4096), (100, 102400)], groups=[group])

    plan = balance(running, FREE)

    kept = {0, 1} if not apart else {0}
    assert not kept & {move.vm for move in plan.moves}
    assert balance(dataclasses.replace(running, groups=()), FREE).moves


def test_a_zone_that_has_its_part_of_a_spread_takes_no_more():
    spread = RunningSpread(maximum=1, vms=(0, 1))
    running = a_running(
        host=[0, 1, 0, 0], capacity=[(4, 4096)] * 3, spreads=[spread], zones=[0, 1, 1]
    )

    plan = balance(running)

    check_plan(running, plan)
    assert plan.moves
    assert 0 not in {move.vm for move in plan.moves}


def test_a_zone_that_a_vm_left_is_open_to_the_next():
    """The first move takes a VM of the spread from zone 1; only then may another go there."""
    running = a_running(
        host=[0, 0, 1],
        capacity=[(8, 8192), (2, 2048), (32, 32768)],
        demand=[(4, 4096), (2, 2048)],
        kind=[0, 0, 1],
        spreads=[RunningSpread(maximum=1, vms=(1, 2), others=(0, 0, 0))],
        zones=[0, 1, 2],
    )

    plan = balance(running, FREE)

    check_plan(running, plan)
    assert len(plan.moves) >= 2


def test_moves_that_touch_no_host_in_common_go_in_one_wave():
    running = a_running(host=[0, 0, 1, 1], capacity=[(4, 4096)] * 4)

    plan = balance(running)

    assert [move.wave for move in plan.moves] == [0, 0]
    assert len({move.destination for move in plan.moves}) == 2


def test_no_more_moves_go_on_at_once_than_may():
    running = a_running(host=[0] * 8, capacity=[(8, 8192)] * 4)

    plan = balance(running, limits=RebalanceLimits(per_source=1, per_destination=1, at_once=1))

    check_plan(running, plan)
    assert [move.wave for move in plan.moves] == list(range(6))


def test_the_measures_tell_that_fairness_stands_still_while_vms_move():
    running = a_running(host=[0, 0, 0, 0], capacity=[(4, 4096)] * 2, tenant=[0, 0, 0, 1])

    plan = balance(running)

    assert plan.measures_before.hosts_in_use == 1
    assert plan.measures_after.hosts_in_use == 2
    assert plan.measures_after.moved_gib == 2.0
    assert plan.measures_before.fairness_distance == plan.measures_after.fairness_distance


def test_a_budget_without_work_plans_nothing_and_says_so():
    running = a_running(host=[0, 0, 0, 0], capacity=[(4, 4096)] * 2)

    plan = balance(running, budget_units=1)

    assert (plan.moves, plan.cut, plan.details["outcome"]) == ((), True, "work")


def test_what_carries_less_still_goes_when_the_gibibytes_are_nearly_spent():
    running = a_running(
        host=[0, 0, 0], capacity=[(8, 8192)] * 3, demand=[(3, 3072), (1, 1024)], kind=[0, 0, 1]
    )

    plan = balance(running, dataclasses.replace(FREE, most_gib=4.0))

    assert sorted(move.transfer_mib for move in plan.moves) == [1024, 3072]


def test_a_resource_that_a_host_lacks_does_not_count_there():
    term = LoadImbalance(ranking=np.array([0, 1]), target=np.array([0.5, 0.5]))

    cost = term.cost(np.array([[2, 0], [2, 2]]), np.array([[4, 0], [4, 8]]))

    np.testing.assert_allclose(cost, [0.0, 0.0625])


def test_with_its_weight_the_term_is_the_skewness_of_fuga_beside_the_level():
    rng = np.random.default_rng(1)
    capacity = rng.integers(1, 100, (50, 2))
    used = rng.integers(0, 100, (50, 2))
    ranking, target = np.array([0, 1]), np.array([0.3, 0.4])
    of = {weight: LoadImbalance(ranking=ranking, target=target, skewness=weight)
          for weight in (0.0, 0.5)}  # fmt: skip

    found = of[0.5].cost(used, capacity) - of[0.0].cost(used, capacity)

    np.testing.assert_allclose(found, 0.5 * skewness(used, capacity))


def test_skewness_alone_does_not_see_that_one_host_carries_everything():
    """Why level is a term of its own: both hosts have skewness 0 before and after."""
    running = a_running(host=[0, 0, 0, 0], capacity=[(4, 4096)] * 2)

    plan = balance(running)

    assert plan.measures_before.potential == pytest.approx(plan.measures_after.potential)
    assert len(plan.moves) == 2


def test_other_resources_can_be_named():
    running = a_running(
        host=[0, 0], capacity=[(4, 4096, 10)] * 2, demand=[(0, 0, 4)], other=[(0, 0, 0), (0, 0, 2)]
    )

    named = balance(running, dataclasses.replace(FREE, ranking=("disk_gib",)))

    assert not balance(running, FREE).moves
    assert len(named.moves) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"price_per_gib": -1.0},
        {"least_gain": 0.0},
        {"least_gain": float("nan")},
        {"most_moves": -1},
        {"most_gib": -1.0},
        {"ranking": []},
        {"unknown": 1},
    ],
)
def test_parameters_beyond_their_bounds_are_named(given):
    with pytest.raises(ParameterError, match=next(iter(given))):
        BALANCE_OBJECTIVE.with_given(given)


@pytest.mark.parametrize("given", [{"skewness": -0.1}, {"reconsiderations": -1}])
def test_parameters_of_balancing_beyond_their_bounds_are_named(given):
    with pytest.raises(ParameterError, match=next(iter(given))):
        balance(a_running(host=[0]), **given)


def test_a_ranking_resource_that_is_not_there_is_named():
    with pytest.raises(ParameterError, match="gpus"):
        balance(a_running(host=[0]), dataclasses.replace(FREE, ranking=("gpus",)))


def test_given_parameters_come_back_from_their_document():
    given = BALANCE_OBJECTIVE.with_given({"most_gib": 12, "ranking": ["memory_mib"]})

    assert BALANCE_OBJECTIVE.with_given(given.document()) == given


def test_a_cluster_without_vms_gives_no_useful_move():
    plan = balance(a_running(host=[]))

    assert plan.details["outcome"] == "no_useful_move"


def test_a_zone_that_opens_is_weighed_anew_though_its_hosts_did_not_change():
    """VM 0 could gain most, but on host 2 alone, in the zone that VM 1 is yet to leave."""
    running = a_running(
        host=[0, 1],
        capacity=[(2, 2048), (4, 4096), (6, 6144), (8, 8192)],
        demand=[(2, 2048), (2, 2048)],
        kind=[0, 1],
        eligible=[[True, False], [True, True]],
        host_class=[0, 1, 0, 1],
        spreads=[RunningSpread(maximum=1, vms=(0, 1))],
        zones=[0, 1, 1, 2],
    )

    plan = balance(running, FREE, reconsiderations=0)

    check_plan(running, plan)
    assert [(move.vm, move.destination) for move in plan.moves] == [(1, 3), (0, 2)]
