"""The LP bound and the shortages."""

from __future__ import annotations

import numpy as np
import pytest

from placement import allocation_bound, shortages
from tests.builders import a_snapshot


def test_the_bound_is_what_is_asked_for_where_everything_fits():
    snapshot = a_snapshot(capacity=[(64, 64)] * 3, demand=[(2, 1)], count=5)

    assert allocation_bound(snapshot, 0) == pytest.approx(10)
    assert allocation_bound(snapshot, 1) == pytest.approx(5)


def test_the_bound_is_what_the_hosts_can_give_where_it_does_not():
    # By memory a host holds 2 VMs of 3 and 2 of 1: 4 cores of 8.
    snapshot = a_snapshot(capacity=[(8, 8)] * 2, demand=[(1, 3), (1, 1)], count=[100, 4])

    assert allocation_bound(snapshot, 0) == pytest.approx(4 + 4)


def test_the_bound_knows_closed_classes_and_empty_clusters():
    closed = a_snapshot(capacity=[(8, 8)], demand=[(1, 1)], eligible=[(False,)])

    assert allocation_bound(closed, 0) == 0
    assert allocation_bound(a_snapshot(capacity=[], demand=[(1, 1)]), 0) == 0


def test_the_bound_keeps_its_precision_on_a_large_pool_counted_in_bytes():
    snapshot = a_snapshot(
        capacity=[(64, 256 * 2**30)] * 2000,
        demand=[(1 + n % 8, (1 + n % 24) * 2**30) for n in range(300)],
        count=10_000,
    )

    assert allocation_bound(snapshot, 0) == pytest.approx(64 * 2000, rel=1e-6)


def test_each_short_resource_is_told_with_its_nearest_miss():
    snapshot = a_snapshot(
        capacity=[(4, 8, 9), (4, 8, 9), (4, 8, 9)],
        free=[(1, 8, 9), (0, 3, 9), (4, 2, 9)],
        demand=[(2, 4, 1)],
    )

    found = shortages(snapshot, 0)

    shown = [(s.resource, s.hosts_short, s.hosts, s.nearest_host, s.missing) for s in found]
    assert shown == [(0, 2, 3, 0, 1), (1, 2, 3, 1, 1)]


def test_shortages_are_of_what_the_round_left():
    snapshot = a_snapshot(capacity=[(4, 9)], demand=[(3, 1)], count=2)
    after = snapshot.after_placing(np.array([[0, 0, 1]]))

    assert [s.missing for s in shortages(after, 0)] == [2]


def test_a_request_without_a_host_is_short_of_nothing_in_particular():
    assert shortages(a_snapshot(eligible=[(False,)]), 0) == ()
