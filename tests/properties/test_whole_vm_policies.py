"""The fast forms of the policies place every VM where the plain ones do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement import Budget, check_allocation, policy_by_name
from tests.plain import whole_vms as plain
from tests.properties.strategies import contended_snapshots, snapshots
from tests.properties.subjects import about, contains

SEEDS = st.integers(0, 2**32 - 1)
CLUSTERS = snapshots(max_hosts=6, max_requests=6, max_count=12)


def place(snapshot, name, seed=0, **parameters):
    policy = policy_by_name(name, parameters)
    return policy.place(snapshot, np.random.default_rng(seed), Budget())


@pytest.mark.parametrize("name", ["first_fit_drfh", "drf_pool", "best_fit"])
@settings(max_examples=200)
@given(snapshot=CLUSTERS)
def test_what_a_policy_places_is_what_its_rule_says(name, snapshot):
    expected = getattr(plain, name)(snapshot)

    assert place(snapshot, name).placed.tolist() == expected


@pytest.mark.parametrize("name", ["two_choices_drfh", "random_fit"])
@settings(max_examples=200)
@given(snapshot=CLUSTERS, seed=SEEDS)
def test_what_a_random_policy_places_is_what_its_rule_says(name, snapshot, seed):
    expected = getattr(plain, name)(snapshot, np.random.default_rng(seed))

    assert place(snapshot, name, seed).placed.tolist() == expected


@settings(max_examples=200)
@given(snapshot=CLUSTERS, slots=st.integers(1, 20))
def test_slots_are_counted_as_fractions_of_the_largest_host(snapshot, slots):
    expected = plain.slots(snapshot, slots)

    assert place(snapshot, "slots", slots=slots).placed.tolist() == expected


def gains(snapshot, objective):
    first = snapshot.demand[:, 0]
    return first if objective == "first_resource" else np.ones_like(first)


@pytest.mark.parametrize("objective", ["first_resource", "vms"])
@settings(max_examples=150)
@given(snapshot=snapshots(max_hosts=3, max_requests=3, max_count=3, gangs=True))
def test_the_optimum_is_what_trying_everything_finds(objective, snapshot):
    value = gains(snapshot, objective)
    expected, most_vms = plain.most(snapshot, value.tolist())

    allocation = place(snapshot, "optimal", objective=objective)

    check_allocation(snapshot, allocation)
    requests, counts = allocation.placed[:, 0], allocation.placed[:, 2]
    assert int((value[requests] * counts).sum()) == expected
    assert int(counts.sum()) == most_vms
    assert allocation.details["value"] == allocation.details["bound"] == expected
    assert allocation.details["proven"]
    assert not allocation.cut


@about("a search that was cut")
@settings(max_examples=40)
@given(snapshot=contended_snapshots(max_hosts=8))
def test_an_optimum_that_was_cut_is_no_worse_than_placing_in_order(snapshot):
    value = gains(snapshot, "first_resource")

    def gain(allocation):
        return int((value[allocation.placed[:, 0]] * allocation.placed[:, 2]).sum())

    policy = policy_by_name("optimal", {})
    cut = policy.place(snapshot, np.random.default_rng(0), Budget(0))

    contains(cut.cut)
    assert gain(cut) >= gain(place(snapshot, "first_fit"))


@pytest.mark.parametrize("objective", ["first_resource", "vms"])
@settings(max_examples=40)
@given(snapshot=snapshots(max_hosts=8, max_requests=6, max_count=20, gangs=True))
def test_nobody_gives_out_more_than_the_optimum(objective, snapshot):
    value = gains(snapshot, objective)

    def gain(name):
        allocation = place(snapshot, name, objective=objective)
        return int((value[allocation.placed[:, 0]] * allocation.placed[:, 2]).sum())

    best = gain("optimal")

    for name in ("fuga", "best_fit_drfh", "first_fit_drfh", "two_choices_drfh", "drf_pool"):
        assert gain(name) <= best
    for name in ("slots", "first_fit", "best_fit", "random_fit"):
        assert gain(name) <= best
