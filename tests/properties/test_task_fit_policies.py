"""`psdsf_fit` and `tsf_fit` place every VM where their rules say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from placement import Budget, check_allocation, policy_by_name
from placement.policies.policy_loops import ProgressiveFillingPolicy
from placement.policies.psdsf_fit import psdsf_fit
from placement.policies.tsf_fit import tsf_fit
from tests.builders import a_snapshot
from tests.plain import task_fits as plain
from tests.properties.strategies import snapshots

POLICIES = pytest.mark.parametrize("name", ["psdsf_fit", "tsf_fit"])


def place(snapshot, name):
    policy = ProgressiveFillingPolicy({"psdsf_fit": psdsf_fit, "tsf_fit": tsf_fit}[name])
    return policy.place(snapshot, np.random.default_rng(0), Budget())


@POLICIES
@settings(max_examples=200)
@given(snapshot=snapshots(max_hosts=6, max_requests=6, max_count=12))
def test_what_a_policy_places_is_what_its_rule_says(name, snapshot):
    expected = getattr(plain, name)(snapshot)

    assert place(snapshot, name).placed.tolist() == expected


@POLICIES
@given(snapshot=snapshots(gangs=True))
def test_gangs_are_whole(name, snapshot):
    check_allocation(snapshot, place(snapshot, name))


def test_psdsf_fit_takes_the_host_on_which_a_tenant_could_run_most():
    """But for the very first VM of a tenant, for which all hosts are equal."""
    snapshot = a_snapshot(capacity=[(40, 160), (160, 40)], demand=[(1, 4), (4, 1)], count=30)

    allocation = place(snapshot, "psdsf_fit")

    assert allocation.placed.tolist() == [[0, 0, 30], [1, 0, 1], [1, 1, 29]]


@POLICIES
def test_what_runs_already_counts(name):
    snapshot = a_snapshot(
        capacity=[(8, 8192, 100)], free=[(4, 4096, 60)], demand=[(1, 1024, 10)] * 2, count=4,
        held=[(4, 4096, 40), (0, 0, 0)],
    )  # fmt: skip

    assert place(snapshot, name).placed.tolist() == [[1, 0, 4]]


@POLICIES
def test_a_tenant_of_twice_the_weight_has_twice_as_many(name):
    snapshot = a_snapshot(
        capacity=[(9, 9 * 1024, 1000)], demand=[(1, 1024, 5)] * 2, count=9, weight=[2.0, 1.0]
    )

    assert place(snapshot, name).placed.tolist() == [[0, 0, 6], [1, 0, 3]]


@POLICIES
def test_the_catalogue_has_it(name):
    snapshot = a_snapshot(count=3)
    policy = policy_by_name(name, {"overload": 0.5})

    allocation = policy.place(snapshot, np.random.default_rng(0), Budget())

    check_allocation(snapshot, allocation, overload=0.5)
    assert allocation.placed.tolist() == [[0, 0, 2]]
