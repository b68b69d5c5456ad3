"""Shares of the pool and the fair target."""

from __future__ import annotations

import numpy as np
import pytest

from placement import (
    Allocation,
    QuantityTooLargeError,
    ShapeMismatchError,
    dominant_shares,
    shares_after,
)
from placement.fairness.levels import level_in_steps, levels_of
from placement.fairness.targets import fair_targets, whole_targets
from tests.builders import a_snapshot


def test_the_example_of_the_drf_paper():
    shares = dominant_shares(np.array([[3, 12], [6, 2]]), np.array([9, 18]))

    assert shares == pytest.approx([2 / 3, 2 / 3])


def test_a_resource_that_no_host_offers_is_ignored():
    assert dominant_shares(np.array([[3, 5]]), np.array([6, 0])).tolist() == [0.5]


def test_shares_of_another_number_of_resources_are_refused():
    with pytest.raises(ShapeMismatchError):
        dominant_shares(np.array([[3, 5, 1]]), np.array([6, 0]))


def test_shares_after_a_round_count_what_ran_before():
    snapshot = a_snapshot(
        capacity=[(10, 10, 10)], free=[(6, 10, 10)], held=[(4, 0, 0)], demand=[(1, 2, 0)], count=3
    )
    allocation = Allocation(placed=np.array([[0, 0, 3]]), left_out=())

    assert shares_after(snapshot, allocation) == pytest.approx([0.7])


def test_levels_do_not_depend_on_the_unit_of_the_weights():
    held, pool = np.array([[2], [4]]), np.array([10])

    levels = levels_of(held, pool, np.array([1.0, 2.0]))

    assert levels == pytest.approx(levels_of(held, pool, np.array([1000.0, 2000.0])))
    assert level_in_steps(levels[0]) == level_in_steps(levels[1])


def test_more_than_64_bits_hold_is_refused_with_the_resource_named():
    with pytest.raises(QuantityTooLargeError, match="memory_mib"):
        a_snapshot(capacity=[(1, 2**62, 1), (1, 2**62, 1)])


@pytest.mark.parametrize(
    ("capacity", "demand", "expected"),
    [
        ((9, 18), [(1, 4), (3, 1)], (3, 2)),  # Ghodsi et al. 2011, section 4.1
        ((10, 20), [(1, 0), (0, 1), (1, 1)], (5, 15, 5)),  # case 2: zero demands
    ],
)
def test_the_target_is_drf_on_the_pool(capacity, demand, expected):
    targets = fair_targets(a_snapshot(capacity=[capacity], demand=demand, count=100))

    assert targets == pytest.approx(expected)


def test_a_finite_count_leaves_the_rest_to_the_others():
    targets = fair_targets(a_snapshot(capacity=[(10,)], demand=[(1,), (1,)], count=[2, 100]))

    assert targets.tolist() == [2, 8]


def test_weights_divide_the_target():
    snapshot = a_snapshot(capacity=[(9,)], demand=[(1,), (1,)], count=100, weight=[1, 2])

    assert fair_targets(snapshot) == pytest.approx([3, 6])


def test_what_runs_already_counts_towards_the_target():
    snapshot = a_snapshot(
        capacity=[(10,)], free=[(6,)], demand=[(1,), (1,)], count=100, held=[(4,), (0,)]
    )

    assert fair_targets(snapshot) == pytest.approx([1, 5])


def test_a_tenant_takes_its_requests_in_order():
    snapshot = a_snapshot(
        capacity=[(12,)], demand=[(1,), (2,), (1,)], count=[2, 9, 100], tenant=[0, 0, 1]
    )

    assert fair_targets(snapshot) == pytest.approx([2, 2, 6])


def test_free_room_behind_closed_doors_is_no_target():
    snapshot = a_snapshot(
        capacity=[(10,), (10,)], demand=[(1,)], count=100, host_class=[0, 1], eligible=[(1, 0)]
    )

    assert fair_targets(snapshot).tolist() == [10]


def test_room_on_hosts_that_are_closed_to_everybody_is_shared_by_nobody():
    snapshot = a_snapshot(
        capacity=[(10,), (10,)],
        demand=[(1,), (1,)],
        count=100,
        host_class=[0, 1],
        eligible=[(True, False)] * 2,
    )

    assert fair_targets(snapshot) == pytest.approx([5, 5])


def test_a_vm_that_fits_on_no_host_has_no_target():
    snapshot = a_snapshot(capacity=[(2,), (2,)], demand=[(3,), (1,)], count=100)

    assert fair_targets(snapshot).tolist() == [0, 4]


def test_a_tenant_rich_in_another_resource_does_not_stall_the_water():
    snapshot = a_snapshot(
        capacity=[(10, 10)],
        free=[(10, 2)],
        demand=[(1, 0), (1, 0)],
        count=100,
        held=[(0, 8), (0, 0)],
    )

    assert fair_targets(snapshot).sum() == pytest.approx(10)


def test_quotas_are_whole_and_forgive_rounding():
    assert whole_targets(np.array([2.9999999, 2.9, 3.0, 0.0])).tolist() == [3, 2, 3, 0]
