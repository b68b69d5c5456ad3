"""Whatever else asks: at least min_count VMs of a gang at once, or none."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement import Reason, check_allocation
from tests.properties.strategies import contended_snapshots, place, policies
from tests.properties.subjects import about, contains


def room_for(snapshot, request, free):
    """How many VMs the hosts open to a request hold at once, one host after the other."""
    demand = snapshot.demand[request].tolist()
    hosts = np.flatnonzero(snapshot.eligible[request][snapshot.host_class])
    return sum(
        min(have // need for have, need in zip(free[host].tolist(), demand, strict=True) if need)
        for host in hosts.tolist()
    )


GANGS = contended_snapshots(gangs=True)


def begun(snapshot, allocation):
    """Return whether a gang of several VMs was placed."""
    return (snapshot.min_count[allocation.placed[:, 0]] > 1).any()


@about("a gang that is placed")
@settings(max_examples=150)
@given(policy=policies, snapshot=GANGS, seed=st.integers(0, 100))
def test_a_gang_is_placed_whole_or_not_at_all(policy, snapshot, seed):
    policy, parameters = policy

    allocation = place(policy, snapshot, seed)

    contains(begun(snapshot, allocation))
    check_allocation(snapshot, allocation, overload=parameters.get("overload"))


@about("a gang that is left out")
@settings(max_examples=150)
@given(policy=policies, snapshot=GANGS)
def test_no_gang_is_left_out_that_still_fits_whole(policy, snapshot):
    policy, parameters = policy
    allocation = place(policy, snapshot)
    free, placed = (
        snapshot.after_placing(allocation.placed).free,
        set(allocation.placed[:, 0].tolist()),
    )
    contains(any(snapshot.min_count[left.request] > 1 for left in allocation.left_out))

    for left in allocation.left_out:
        if left.reason in (Reason.NOTHING_ASKED, Reason.ABOVE_OVERLOAD):
            assert left.reason is Reason.NOTHING_ASKED or "overload" in parameters
            continue
        if left.reason is Reason.NO_SLOTS:  # see the plain form of slots
            continue
        needed = 1 if left.request in placed else int(snapshot.min_count[left.request])
        fit = room_for(snapshot, left.request, free)
        assert fit < needed
        assert (left.reason is Reason.GANG_NOT_WHOLE) == (fit > 0)


@given(policy=policies, snapshot=GANGS)
def test_a_min_count_of_one_changes_nothing(policy, snapshot):
    policy, _ = policy
    ones = dataclasses.replace(snapshot, min_count=np.ones_like(snapshot.min_count))
    noughts = dataclasses.replace(snapshot, min_count=np.zeros_like(snapshot.min_count))

    assert place(policy, ones).placed.tolist() == place(policy, noughts).placed.tolist()
