"""A policy for each zone, shares carried along."""

from __future__ import annotations

import numpy as np
import pytest

from placement import Budget, check_allocation, policy_by_name
from placement.constraints.zones import Zone, ZonesPolicy
from tests.round_inputs import some_snapshot


def zones(*named: tuple[str, list[int], str]) -> ZonesPolicy:
    return ZonesPolicy(
        [
            Zone(
                name=name, hosts=np.array(hosts, dtype=np.int64), policy=policy_by_name(policy, {})
            )
            for name, hosts, policy in named
        ]
    )


def place(policy: ZonesPolicy, snapshot):
    allocation = policy.place(snapshot, np.random.default_rng(1), Budget())
    check_allocation(snapshot, allocation)
    return allocation


def three_hosts(**changes):
    """One vcpu each VM; tenants 0 and 1 want four each, three hosts offer six in all."""
    return some_snapshot(
        resources=("vcpus",),
        **{
            "capacity": np.array([[2], [2], [2]]),
            "free": np.array([[2], [2], [2]]),
            "host_class": np.array([0, 0, 0]),
            "demand": np.array([[1], [1]]),
            "count": np.array([4, 4]),
            "held": np.zeros((2, 1), dtype=np.int64),
            **changes,
        },
    )


def test_each_zone_is_decided_by_its_own_policy():
    policy = zones(("east", [0, 1], "first_fit"), ("west", [2], "best_fit_drfh"))

    placed = place(policy, three_hosts()).placed.tolist()

    # First fit gives tenant 0 all of the east; DRFH then gives the west to tenant 1.
    assert placed == [[0, 0, 2], [0, 1, 2], [1, 2, 2]]


def test_shares_are_carried_from_one_zone_to_the_next():
    policy = zones(("east", [0, 1], "best_fit_drfh"), ("west", [2], "best_fit_drfh"))

    placed = place(policy, three_hosts()).placed

    assert [int(placed[placed[:, 0] == q, 2].sum()) for q in (0, 1)] == [3, 3]


def test_what_no_zone_places_is_left_out_once():
    policy = zones(("east", [0], "fuga"), ("west", [1, 2], "fuga"))

    left_out = place(policy, three_hosts()).left_out

    assert sum(left.count for left in left_out) == 2
    assert {left.reason.value for left in left_out} == {"no_room"}


def test_a_host_of_no_zone_receives_nothing():
    placed = place(zones(("east", [1], "fuga")), three_hosts()).placed

    assert set(placed[:, 1].tolist()) == {1}


def test_a_gang_is_placed_whole_in_one_zone_or_not_at_all():
    gang = three_hosts(count=np.array([4, 0]), min_count=np.array([4, 1]))

    whole = place(zones(("east", [0, 1], "fuga"), ("west", [2], "fuga")), gang)
    torn = place(zones(("east", [0], "fuga"), ("middle", [1], "fuga"), ("west", [2], "fuga")), gang)

    assert whole.placed[:, 2].sum() == 4
    assert len(torn.placed) == 0
    assert sum(left.count for left in torn.left_out) == 4


def test_labels_still_count_inside_a_zone():
    snapshot = three_hosts(
        host_class=np.array([0, 1, 0]), eligible=np.array([[True, False], [True, True]])
    )

    placed = place(zones(("east", [0, 1], "fuga"), ("west", [2], "fuga")), snapshot).placed

    assert 1 not in placed[placed[:, 0] == 0, 1].tolist()


@pytest.mark.parametrize("name", ["fuga", "best_fit_drfh", "first_fit"])
def test_one_zone_of_all_hosts_places_as_many_as_the_policy_alone(name):
    snapshot = some_snapshot()
    alone = policy_by_name(name, {}).place(snapshot, np.random.default_rng(1), Budget())

    zoned = place(zones(("all", [0, 1], name)), snapshot)

    assert zoned.placed.tolist() == alone.placed.tolist()
    assert zoned.left_out == alone.left_out


def test_details_tell_of_every_zone():
    details = place(zones(("east", [0, 1], "fuga"), ("west", [2], "fuga")), three_hosts()).details

    assert set(details["zones"]) == {"east", "west"}
    assert set(details["weighed"]) <= {"0", "1", "2"}
    assert [row[1] for row in details["phase"] if row[0] == 0]


def test_what_was_cut_in_a_zone_is_told_at_the_top_with_its_zone():
    two = zones(("east", [0, 1], "fuga"), ("west", [2], "fuga"))

    allocation = two.place(three_hosts(), np.random.default_rng(1), Budget(1))

    assert allocation.cut
    assert allocation.details["cuts"]
    assert {cut.split(":")[0] for cut in allocation.details["cuts"]} <= {
        "zone 'east'",
        "zone 'west'",
    }


def a_large_vm_that_starves(**changes):
    """Tenant 0's VM has waited long for a whole host, tenant 1 has half of each."""
    return three_hosts(
        free=np.array([[1], [1], [1]]),
        demand=np.array([[2], [1]]),
        count=np.array([1, 4]),
        held=np.array([[0], [3]]),
        age=np.array([1_440, 0]),
        **changes,
    )


def test_hosts_that_a_zone_holds_back_are_told_at_the_top():
    policy = zones(("east", [0, 1], "first_fit_drfh"), ("west", [2], "first_fit"))

    allocation = place(policy, a_large_vm_that_starves())

    assert allocation.details["holding"] == [[0, 0]]
    assert allocation.details["zones"]["east"]["holding"] == [[0, 0]]
    assert allocation.placed.tolist() == [[1, 1, 1], [1, 2, 1]]
    assert {left.request: left.reason.value for left in allocation.left_out} == {
        0: "no_room",
        1: "held_back",
    }


def test_gangs_that_zones_begin_are_told_at_the_top():
    gang = three_hosts(min_count=np.array([3, 1]))

    details = place(zones(("east", [0], "fuga"), ("west", [1, 2], "fuga")), gang).details

    assert [row[0] for row in details["gangs"]] == [0, 0]
    assert sum(row[2] for row in details["gangs"]) == 3
