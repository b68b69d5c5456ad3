"""Rounds of FUGA: what its steps leave to each other."""

from __future__ import annotations

import numpy as np
import pytest

from placement import Budget, policy_by_name
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
