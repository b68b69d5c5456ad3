"""Wang, Li, Liang, "Dominant Resource Fairness in Cloud Computing Systems with
Heterogeneous Servers": worked examples.
"""

from __future__ import annotations

import numpy as np
import pytest

from placement import Budget, check_allocation, policy_by_name, shares_after
from placement.packing.buckets import mismatch
from tests.builders import a_snapshot


def the_paper_s_two_servers():
    """Servers (2,12), (12,2), demands (.2,1), (1,.2); all times five."""
    return a_snapshot(capacity=[(10, 60), (60, 10)], demand=[(1, 5), (5, 1)], count=50)


def test_case_8_best_fit_drfh_places_ten_tasks_of_each_user():
    snapshot = the_paper_s_two_servers()

    allocation = policy_by_name("best_fit_drfh", {}).place(
        snapshot, np.random.default_rng(0), Budget()
    )

    check_allocation(snapshot, allocation)
    assert allocation.placed.tolist() == [[0, 0, 10], [1, 1, 10]]


def test_case_4_its_shares_are_those_of_the_divisible_ideal():
    snapshot = the_paper_s_two_servers()

    allocation = policy_by_name("best_fit_drfh", {}).place(
        snapshot, np.random.default_rng(0), Budget()
    )

    assert shares_after(snapshot, allocation) == pytest.approx([5 / 7, 5 / 7])


@pytest.mark.parametrize(
    ("free", "expected"),
    # f = (1/5, 1/15) and (1/8, 1/4) of a pool of (120, 120)
    [((24, 8), 0.0), ((15, 30), 5 / 3)],
)
def test_case_6_h_is_the_distance_of_the_two_shapes(free, expected):
    # D = (1/10, 1/30)
    assert mismatch((12, 4), free, (120, 120)) == pytest.approx(expected, abs=1e-12)
