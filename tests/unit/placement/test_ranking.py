"""Which resources rank where nobody names them."""

from __future__ import annotations

import numpy as np
import pytest

from placement import Budget, ParameterError, policy_by_name
from placement.fuga.ranking_resources import ranking_resources
from tests.builders import a_snapshot


def short(*, capacity, demand, count, free=None):
    given = {} if free is None else {"free": free}
    snapshot = a_snapshot(
        resources=("cpu", "gib", "gpu"), capacity=capacity, demand=demand, count=count, **given
    )
    return ranking_resources(snapshot, "auto").tolist()


@pytest.mark.parametrize(
    ("demand", "count", "expected"),
    [
        ([(1, 1, 1)], [4], [2]),  # 4 of 4 GPUs, 4 of 100 cores
        ([(10, 10, 0)], [9], [0, 1]),
        ([(10, 9, 0)], [9], [0, 1]),
        ([(10, 7, 0)], [9], [0, 1]),  # of cores and memory both rank
        ([(10, 9, 1)], [4], [2]),
        ([(25, 9, 1)], [4], [0, 2]),
        ([(50, 1, 1)], [40], [0, 2]),  # both are asked for beyond what there is
        ([(1, 1, 1)], [0], [0, 1]),  # nothing is asked for
    ],
)
def test_what_is_needed_most_of_ranks(demand, count, expected):
    assert short(capacity=[(100, 100, 4)], demand=demand, count=count) == expected


def test_what_runs_counts():
    hosts = {"capacity": [(100, 100, 4)] * 2, "free": [(90, 90, 0), (90, 90, 1)]}

    assert short(**hosts, demand=[(1, 1, 0)], count=[5]) == [2]


def test_a_resource_that_no_host_has_never_ranks():
    assert short(capacity=[(8, 8, 0)], demand=[(1, 2, 1)], count=[4]) == [0, 1]


def test_names_rank_as_they_are_given():
    snapshot = a_snapshot(resources=("cpu", "gib", "gpu"), capacity=[(8, 8, 8)], demand=[(1, 1, 1)])

    assert ranking_resources(snapshot, ("gpu", "cpu")).tolist() == [2, 0]
    assert ranking_resources(snapshot, None).tolist() == [0, 1]
    with pytest.raises(ParameterError, match="one of cpu, gib, gpu"):
        ranking_resources(snapshot, ("disk",))


def test_hosts_without_what_runs_short_are_filled_after_the_game():
    """Two hosts have GPUs; who needs none goes where there are none."""
    snapshot = a_snapshot(
        resources=("cpu", "gib", "gpu"),
        capacity=[(8, 8, 8), (8, 8, 0), (8, 8, 8), (8, 8, 0)],
        demand=[(1, 1, 1), (1, 1, 0)],
        count=[16, 16],
    )

    allocation = policy_by_name("fuga", {"ranking": "auto"}).place(
        snapshot, np.random.default_rng(0), Budget()
    )

    assert allocation.left_out == ()
    assert {(q, h) for q, h, _ in allocation.placed.tolist()} == {(0, 0), (0, 2), (1, 1), (1, 3)}
