"""Rounds of FUGA: what its steps leave to each other."""

from __future__ import annotations

import numpy as np
import pytest

from placement import Allocation, Budget, policy_by_name
from tests.builders import a_snapshot


def test_a_search_that_takes_all_it_is_given_leaves_enough_to_play():
    """Three ranking resources and a dozen kinds: no budget of this size finds the best."""
    rng = np.random.default_rng(1)
    demand = np.stack([rng.integers(3, 17, 12), rng.integers(5, 60, 12), rng.integers(1, 9, 12)], 1)
    snapshot = a_snapshot(
        resources=("a", "b", "c"),
        capacity=[(97 + host, 391 + 7 * host, 1000) for host in range(8)],
        demand=demand.tolist(),
        count=20,
    )
    policy = policy_by_name("fuga", {"ranking": ["a", "b", "c"]})

    allocation = policy.place(snapshot, np.random.default_rng(0), Budget(3_000))

    assert any(cut.startswith("combinations") for cut in allocation.details["cuts"])
    assert sum(game["vms"] for game in allocation.details["games"]) > 0


def test_the_quota_of_a_gang_counts_what_began_it():
    """Of seven cores three and a half are fair for each; two of the gang's are placed before."""
    snapshot = a_snapshot(
        resources=("vcpus", "memory_gib"),
        capacity=[(7, 7)],
        demand=[(1, 1), (1, 1)],
        count=[9, 9],
        min_count=[1, 2],
    )

    details = policy_by_name("fuga", {}).place(snapshot, np.random.default_rng(0), Budget()).details

    assert sum(count for _, _, count in details["gangs"]) == 2
    assert details["games"][0]["handed_out"] == {"0": 3, "1": 1}


def test_given_strategies_are_scored_by_what_is_free():
    snapshot = a_snapshot(
        resources=("vcpus", "memory_gib"),
        capacity=[(8, 8)],
        free=[(4, 4)],
        demand=[(1, 1)],
        count=9,
    )
    parameters = {"strategies": {0: [[4], [2]]}, "quota": False}

    allocation = policy_by_name("fuga", parameters).place(
        snapshot, np.random.default_rng(0), Budget()
    )

    weighed = allocation.details["weighed"]["0"]
    assert [each["minimum_utilization"] for each in weighed] == pytest.approx([1.0, 0.5])


def _single_resource_round(**parameters: bool) -> Allocation:
    """Two hosts of 8 vCPUs, 8 GiB and 4 GPUs; GPUs alone rank."""
    snapshot = a_snapshot(
        resources=("vcpus", "memory_gib", "gpus"),
        capacity=[(8, 8, 4)] * 2,
        demand=[(3, 1, 2), (3, 3, 1), (4, 3, 1)],
        count=[2, 1, 2],
    )
    policy = policy_by_name("fuga", {"ranking": ["gpus"], **parameters})
    return policy.place(snapshot, np.random.default_rng(0), Budget())


def test_where_a_single_resource_ranks_the_fuller_of_game_and_filling_is_taken():
    game = _single_resource_round(compare_filling=False)
    better = _single_resource_round()

    comparison = better.details["comparisons"][0]
    assert comparison["chosen"] == "filling"
    assert comparison["amounts"] == {"game": 5, "filling": 6}
    gpus = np.array([2, 1, 1])
    assert gpus[game.placed[:, 0]] @ game.placed[:, 2] == 5
    assert gpus[better.placed[:, 0]] @ better.placed[:, 2] == 6
    assert "comparisons" not in game.details
    assert not better.details["games"]


def test_rounds_that_two_resources_rank_are_not_compared():
    allocation = policy_by_name("fuga", {}).place(
        a_snapshot(count=4), np.random.default_rng(0), Budget()
    )

    assert allocation.details["games"]
    assert "comparisons" not in allocation.details


def test_vms_of_a_round_go_to_hosts_in_use_and_leave_the_empty_one():
    """The empty host's shape matches better: by itself the game would take it."""
    snapshot = a_snapshot(
        resources=("vcpus", "memory_gib"),
        capacity=[(8, 8), (8, 8)],
        free=[(4, 6), (8, 8)],
        demand=[(1, 1)],
        count=4,
    )

    def hosts(**parameters: float) -> set[int]:
        policy = policy_by_name("fuga", parameters)
        return set(policy.place(snapshot, np.random.default_rng(0), Budget()).placed[:, 1].tolist())

    assert hosts() == {0}
    assert 1 in hosts(kept_empty=0)


def test_filling_takes_an_empty_host_where_no_other_has_room():
    snapshot = a_snapshot(
        resources=("vcpus", "memory_gib"),
        capacity=[(8, 8), (8, 8)],
        free=[(4, 6), (8, 8)],
        demand=[(5, 5), (1, 1)],
        count=[1, 4],
    )
    allocation = policy_by_name("fuga", {}).place(snapshot, np.random.default_rng(0), Budget())

    assert {tuple(row) for row in allocation.placed.tolist()} == {(0, 1, 1), (1, 0, 4)}
