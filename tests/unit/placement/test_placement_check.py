"""The check of feasibility refuses whatever breaks a rule."""

from __future__ import annotations

import numpy as np
import pytest

from placement import Allocation, InfeasibleAllocationError, LeftOut, Reason, check_allocation
from tests.builders import a_snapshot


def an_allocation(*placed, left_out=()):
    return Allocation(
        placed=np.array(placed, dtype=np.int64).reshape(-1, 3),
        left_out=tuple(
            LeftOut(request=request, count=count, reason=Reason.NO_ROOM)
            for request, count in left_out
        ),
    )


def two_hosts(**changes):
    return a_snapshot(
        **{
            "capacity": [(4, 8, 10), (2, 4, 10)],
            "demand": [(1, 2, 1), (2, 4, 1)],
            "count": [3, 2],
            **changes,
        }
    )


def test_a_feasible_allocation_passes():
    check_allocation(two_hosts(), an_allocation((0, 0, 2), (0, 1, 1), (1, 0, 1), left_out=[(1, 1)]))


@pytest.mark.parametrize(
    ("allocation", "rule"),
    [
        (an_allocation((0, 0, 3), left_out=[(1, 1)]), "request 1 wants 2"),
        (an_allocation((0, 0, 4), left_out=[(1, 2)]), "request 0 wants 3"),
        (an_allocation((0, 0, 3), (1, 0, 2)), "host 0 has 4 vcpus free, given 7"),
        (an_allocation((0, 0, 1), (0, 0, 2), left_out=[(1, 2)]), "twice or out of order"),
        (an_allocation((0, 1, 1), (0, 0, 2), left_out=[(1, 2)]), "twice or out of order"),
        (an_allocation((0, 0, 3), (1, 0, 0), left_out=[(1, 2)]), "0 VMs"),
        (an_allocation((0, 0, 3), (1, 0, -1), left_out=[(1, 3)]), "-1 VMs"),
        (an_allocation((2, 0, 3)), "request 2 does not exist"),
        (an_allocation((0, 2, 3)), "host 2 does not exist"),
        (an_allocation((-1, 0, 3)), "request -1 does not exist"),
        (an_allocation((0, 0, 3), left_out=[(1, 3), (1, -1)]), "left out -1"),
    ],
)
def test_what_breaks_a_rule_is_refused(allocation, rule):
    with pytest.raises(InfeasibleAllocationError, match=rule):
        check_allocation(two_hosts(), allocation)


def test_rows_must_be_integers():
    allocation = Allocation(placed=np.zeros((0, 3)), left_out=())

    with pytest.raises(InfeasibleAllocationError, match="int64"):
        check_allocation(two_hosts(count=0), allocation)


def test_a_closed_class_is_refused():
    snapshot = two_hosts(host_class=[0, 1], eligible=[(1, 0), (1, 1)])

    with pytest.raises(InfeasibleAllocationError, match="may not use host 1"):
        check_allocation(snapshot, an_allocation((0, 1, 1), left_out=[(0, 2), (1, 2)]))


def test_fewer_than_min_count_are_refused():
    snapshot = two_hosts(min_count=[2, 1])

    with pytest.raises(InfeasibleAllocationError, match="takes 2 VMs or none"):
        check_allocation(snapshot, an_allocation((0, 0, 1), left_out=[(0, 2), (1, 2)]))


def test_a_host_above_the_overload_threshold_is_refused():
    allocation = an_allocation((0, 0, 3), left_out=[(1, 2)])

    check_allocation(two_hosts(), allocation, overload=0.75)
    with pytest.raises(InfeasibleAllocationError, match=r"above 0\.74"):
        check_allocation(two_hosts(), allocation, overload=0.74)


def test_what_runs_already_counts_towards_the_threshold():
    snapshot = a_snapshot(capacity=[(4,)], free=[(2,)], demand=[(1,)], count=1)

    check_allocation(snapshot, an_allocation((0, 0, 1)), overload=0.75)
    with pytest.raises(InfeasibleAllocationError, match=r"above 0\.5"):
        check_allocation(snapshot, an_allocation((0, 0, 1)), overload=0.5)


def test_each_host_may_have_a_threshold_of_its_own():
    snapshot = a_snapshot(capacity=[(4,), (4,)], demand=[(1,)], count=6)

    check_allocation(snapshot, an_allocation((0, 0, 2), (0, 1, 4)), overload=(0.5, 1.0))
    with pytest.raises(InfeasibleAllocationError, match=r"host 0 is filled above 0\.5"):
        check_allocation(snapshot, an_allocation((0, 0, 4), (0, 1, 2)), overload=(0.5, 1.0))


def test_a_threshold_means_what_was_written_not_the_nearest_double():
    # 29 of 100 is 0.29, although 0.29 * 100 is less than 29 in floats.
    snapshot = a_snapshot(capacity=[(100,)], demand=[(1,)], count=29)

    check_allocation(snapshot, an_allocation((0, 0, 29)), overload=0.29)


def test_huge_amounts_do_not_wrap_around():
    snapshot = a_snapshot(capacity=[(2**61,)], demand=[(2**60,)], count=16)

    with pytest.raises(InfeasibleAllocationError, match="free, given"):
        check_allocation(snapshot, an_allocation((0, 0, 16)))
