"""Xu, Yu, "A Game Theory Approach to Fair and Efficient Resource Allocation in
Cloud Computing", the worked example of two hosts.
"""

from __future__ import annotations

import numpy as np
import pytest

from placement import Budget, check_allocation, policy_by_name
from placement.fairness.targets import fair_targets
from placement.fuga.game import Game
from placement.fuga.players import find_players
from placement.fuga.service_order import ServiceOrder, fairness_of
from placement.fuga.strategies import GivenStrategies, TopCombinations, given_strategies_by_kind
from placement.model.vm_kinds import vm_kinds
from tests.builders import a_snapshot

D, E, F = (2, 0, 0), (1, 2, 0), (1, 0, 1)
A, B, C = (1, 2, 0), (1, 0, 1), (0, 0, 2)
RESOURCES = ("cpu", "memory", "disk")


def the_paper_s_example():
    return a_snapshot(
        capacity=[(4, 8, 40), (4, 6, 50)],
        demand=[(2, 4, 20), (1, 1, 10), (2, 2, 10)],
        count=10,
        resources=RESOURCES,
    )


def solve(**changes):
    snapshot = the_paper_s_example()
    policy = policy_by_name(
        "fuga",
        {
            "alpha": 2,
            "ranking": list(RESOURCES),
            "equilibrium": "exact",
            "quota": False,
            "fallback": False,
            "strategies": {0: [D, E, F], 1: [A, B, C]},
            **changes,
        },
    )
    allocation = policy.place(snapshot, np.random.default_rng(0), Budget())
    check_allocation(snapshot, allocation)
    return allocation


def the_game():
    snapshot = the_paper_s_example()
    kinds = vm_kinds(snapshot)
    ranking = np.arange(3)
    serving = ServiceOrder(
        snapshot,
        kinds,
        targets=fair_targets(snapshot),
        offered=snapshot.count,
        given=np.zeros(3, dtype=np.int64),
        held=snapshot.held,
        alpha=2.0,
    )
    given = given_strategies_by_kind(snapshot, kinds, snapshot.free, {0: (D, E, F), 1: (A, B, C)})
    search = TopCombinations(kinds.demand, ranking, 5, np.random.default_rng(0), Budget())
    players = find_players(snapshot, kinds, snapshot.free, snapshot.free, ranking)
    source = GivenStrategies(given, search, kinds.demand, ranking)
    return Game.of(players, serving, source, kinds.demand, ranking)


def test_case_20_host_2_acts_first():
    assert solve().details["order"] == [1, 0]


def test_case_20_the_fair_share_of_everybody_is_d_star():
    snapshot = the_paper_s_example()
    shares = fair_targets(snapshot)[:, None] * snapshot.demand / snapshot.pool

    assert shares.max(axis=1) == pytest.approx([1 / 2.875] * 3)


@pytest.mark.parametrize(("host_2", "host_1"), [(A, F), (B, E), (C, E)])
def test_case_20_host_1_answers_each_strategy_of_host_2(host_2, host_1):
    game = the_game()

    answer = game.best_response(1, game.strategies(1), np.array(host_2))

    assert tuple(answer.counts) == host_1


def test_case_20_users_receive_at_b_e_what_the_paper_says():
    tasks = np.array(B) + np.array(E)

    assert (tasks[:, None] * the_paper_s_example().demand).tolist() == [
        [4, 8, 40],
        [2, 2, 20],
        [2, 2, 10],
    ]


def test_case_21_utilities_at_b_e():
    game = the_game()
    answer = game.best_response(1, game.strategies(1), np.array(B))
    leader = game.best_response(0, game.strategies(0), np.array(E))

    assert answer.utilities[1] == pytest.approx(-1.238, abs=5e-4)
    assert leader.utilities[1] == pytest.approx(-1.392, abs=5e-4)


def test_case_21_the_equilibrium_is_a_f():
    allocation = solve()

    assert allocation.details["strategies"] == {"1": list(A), "0": list(F)}
    assert allocation.placed.tolist() == [[0, 0, 1], [0, 1, 1], [1, 1, 2], [2, 0, 1]]


def test_case_21_two_players_of_algorithm_1_end_there_too():
    assert solve(equilibrium="sequential").details["strategies"] == {"1": list(A), "0": list(F)}


def test_utilities_of_the_answer_are_fairness_less_skewness():
    snapshot = the_paper_s_example()
    details = solve().details
    tasks = np.array(A) + np.array(F)
    fairness = fairness_of(snapshot, tasks, fair_targets(snapshot), 2.0)

    u = np.array([4, 6, 30]) / np.array([4, 8, 40])  # f on host 1
    skew = np.sqrt(((u / u.mean() - 1) ** 2).sum())

    assert details["utilities"]["0"] == pytest.approx(fairness - skew)
