"""Wang, Li, Liang, "Dominant Resource Fairness in Cloud Computing Systems with
Heterogeneous Servers", in whole VMs: ALGORITHMS section 8, cases 2, 3, 5, 8, 24.
"""

from __future__ import annotations

import numpy as np
import pytest

from placement import POLICIES, Budget, check_allocation, policy_by_name
from placement.policies.slots import snapshot_in_slots
from tests.builders import a_snapshot

#: Policies that serve the tenant of least share, one VM at a time.
IN_TURN = ("best_fit_drfh", "best_fit_hdrf", "first_fit_drfh", "two_choices_drfh")
#: Servers (2,12), (12,2) and demands (.2,1), (1,.2), all times five.
SERVERS = ((10, 60), (60, 10))
DEMANDS = ((1, 5), (5, 1))


def placed(snapshot, name, **parameters):
    """VMs of each request."""
    policy = policy_by_name(name, parameters)
    allocation = policy.place(snapshot, np.random.default_rng(0), Budget())
    check_allocation(snapshot, allocation)
    counts = np.zeros(len(snapshot.count), dtype=np.int64)
    np.add.at(counts, allocation.placed[:, 0], allocation.placed[:, 2])
    return counts.tolist()


@pytest.mark.parametrize("name", [*IN_TURN, "drf_pool"])
def test_case_2_who_demands_nothing_of_a_resource_that_is_used_up_goes_on(name):
    snapshot = a_snapshot(capacity=[(10, 20)], demand=[(1, 0), (0, 1), (1, 1)], count=50)

    assert placed(snapshot, name) == [5, 15, 5]


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "slots"])
def test_case_3_whole_tasks_fit_once_on_each_server(name):
    snapshot = a_snapshot(capacity=[(1, 14), (8, 4)], demand=[(1, 4)], count=9)

    assert placed(snapshot, name) == [2]


def test_case_3_the_first_server_has_no_four_slots_for_a_task():
    # slots of (8/14, 1): the servers offer 1 and 4, a task takes 4
    snapshot = a_snapshot(capacity=[(1, 14), (8, 4)], demand=[(1, 4)], count=9)

    assert placed(snapshot, "slots") == [1]


@pytest.mark.parametrize("name", [*IN_TURN, "drf_pool", "fuga"])
def test_case_5_drf_on_each_server_alone_places_six_tasks_of_each_user(name):
    alone = [
        placed(a_snapshot(capacity=[server], demand=DEMANDS, count=50), name) for server in SERVERS
    ]

    assert alone == [[5, 1], [1, 5]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("best_fit_drfh", [10, 10]),
        ("best_fit_hdrf", [10, 10]),
        ("fuga", [10, 10]),
        ("optimal", [10, 10]),
        ("first_fit_drfh", [6, 6]),  # no better than case 5: shapes are mixed
    ],
)
def test_case_8_shapes_decide_how_much_fits_on_both_servers(name, expected):
    snapshot = a_snapshot(capacity=SERVERS, demand=DEMANDS, count=50)

    assert placed(snapshot, name) == expected


def test_case_24_fourteen_and_three_slots():
    # servers (1,1), (.5,.25), in quarters
    snapshot = a_snapshot(capacity=[(4, 4), (2, 1)], demand=[(1, 1)])

    offered = snapshot_in_slots(snapshot, snapshot.free, 14)

    assert offered.capacity.tolist() == [[14], [3]]
    assert offered.free.tolist() == [[14], [3]]
