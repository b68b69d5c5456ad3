"""Groups that keep apart or together, spreads and preferred hosts, case by case."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from placement import (
    Allocation,
    Budget,
    InfeasibleAllocationError,
    QuotaHeadroom,
    Reason,
    Snapshot,
    check_allocation,
    policy_by_name,
)
from placement.constraints.constrained_policy import MAX_LIMITS
from placement.constraints.expansion import SoftConstraint, expand_constraints
from placement.constraints.zones import Zone, ZonesPolicy
from placement.errors import ConstraintError
from placement.model.constraints import AffinityGroup, Constraints, Spread
from tests.builders import a_snapshot

THREE_HOSTS = ((4, 4096, 40), (4, 4096, 40), (4, 4096, 40))


def constrained(constraints: Constraints, **fields) -> Snapshot:
    fields = {"capacity": THREE_HOSTS, **fields}
    return dataclasses.replace(a_snapshot(**fields), constraints=constraints)


def place(snapshot: Snapshot, policy: str = "best_fit_drfh", **parameters) -> Allocation:
    made = policy_by_name(policy, parameters)
    allocation = made.place(snapshot, np.random.default_rng(0), Budget())
    check_allocation(snapshot, allocation)
    return allocation


def apart(*requests: int, hosts=(), hard=True) -> AffinityGroup:
    return AffinityGroup(apart=True, hard=hard, requests=requests, hosts=hosts)


def together(*requests: int, hosts=(), hard=True) -> AffinityGroup:
    return AffinityGroup(apart=False, hard=hard, requests=requests, hosts=hosts)


def left(allocation: Allocation) -> list[tuple[int, int, Reason]]:
    return [(each.request, each.count, each.reason) for each in allocation.left_out]


def test_vms_that_keep_apart_take_a_host_each():
    snapshot = constrained(Constraints(groups=(apart(0, hosts=(1,)),)), count=4)

    allocation = place(snapshot)

    assert allocation.placed.tolist() == [[0, 0, 1], [0, 2, 1]]
    assert left(allocation) == [(0, 2, Reason.ANTI_AFFINITY)]


def test_two_requests_of_one_group_keep_apart_from_each_other():
    demand = ((1, 1024, 10), (2, 2048, 20))
    snapshot = constrained(Constraints(groups=(apart(0, 1),)), demand=demand, count=(2, 2))

    allocation = place(snapshot, "first_fit")

    assert allocation.placed.tolist() == [[0, 0, 1], [0, 1, 1], [1, 2, 1]]
    assert left(allocation) == [(1, 1, Reason.ANTI_AFFINITY)]


def test_a_group_that_keeps_apart_counts_in_no_share():
    snapshot = constrained(Constraints(groups=(apart(0),)), count=3)

    expanded = expand_constraints(
        snapshot, snapshot.constraints, frozenset(SoftConstraint)
    ).snapshot

    assert (expanded.limits, expanded.resource_count) == (1, 3)
    assert expanded.pool.tolist() == [12, 12288, 120, 0]
    assert expanded.constraints is None


def test_a_soft_group_keeps_apart_as_long_as_there_is_room():
    snapshot = constrained(Constraints(groups=(apart(0, hard=False),)), count=5)

    counts = place(snapshot).placed[:, 2].tolist()

    assert (len(counts), sum(counts)) == (3, 5)


def test_vms_that_keep_together_stay_where_their_group_is():
    snapshot = constrained(Constraints(groups=(together(0, hosts=(1,)),)), count=6)

    allocation = place(snapshot)

    assert allocation.placed.tolist() == [[0, 1, 4]]
    assert left(allocation) == [(0, 2, Reason.AFFINITY)]


def test_a_new_group_takes_the_host_that_holds_most_of_it():
    capacity = ((2, 4096, 40), (4, 4096, 40), (3, 4096, 40))
    snapshot = constrained(Constraints(groups=(together(0),)), capacity=capacity, count=4)

    assert place(snapshot).placed.tolist() == [[0, 1, 4]]


def test_an_overload_threshold_does_not_cut_how_many_of_a_group_a_host_may_hold():
    snapshot = constrained(Constraints(groups=(apart(0),)), count=3)

    assert place(snapshot, overload=0.5).placed.tolist() == [[0, 0, 1], [0, 1, 1], [0, 2, 1]]


def test_a_group_stays_together_where_most_of_all_its_requests_fit():
    """Host 0 has more room for the first request, host 1 for both of them."""
    snapshot = constrained(
        Constraints(groups=(together(0, 1),)),
        capacity=((20, 12), (6, 15)),
        demand=((1, 1), (1, 4)),
        count=(3, 3),
    )

    assert place(snapshot).placed.tolist() == [[0, 1, 3], [1, 1, 3]]


def test_a_gang_counts_only_on_hosts_that_hold_it_whole_when_its_group_looks_for_one():
    """Three of the gang and three others would fit on host 0, the whole gang on host 1."""
    snapshot = constrained(
        Constraints(groups=(together(0, 1),)),
        capacity=((20, 15), (5, 17)),
        demand=((1, 4), (1, 1)),
        count=(4, 3),
        min_count=(4, 1),
        tenant=(0, 0),
    )

    allocation = place(snapshot)

    assert allocation.placed.tolist() == [[0, 1, 4], [1, 1, 1]]
    assert "runs" not in allocation.details or allocation.details["runs"] == 1


def test_a_new_group_whose_host_others_filled_looks_for_another():
    demand = ((4, 4096, 40), (4, 4096, 40))
    snapshot = constrained(Constraints(groups=(together(1),)), demand=demand, count=1)

    allocation = place(snapshot, "first_fit")

    assert allocation.placed.tolist() == [[0, 0, 1], [1, 1, 1]]
    assert allocation.details["runs"] == 2


#: Host 0 has as much room as host 1, but all of it above half of its capacity.
HALF_FULL = {"capacity": ((8, 8192, 80), (4, 4096, 40)), "free": ((4, 4096, 40), (4, 4096, 40))}


def test_a_new_group_whose_host_the_policy_refuses_looks_for_another():
    snapshot = constrained(Constraints(groups=(together(0),)), **HALF_FULL, count=3)

    allocation = place(snapshot, overload=0.5)

    assert allocation.placed.tolist() == [[0, 1, 2]]
    assert left(allocation) == [(0, 1, Reason.ABOVE_OVERLOAD)]


def test_what_a_zone_refuses_goes_to_another_within_the_spread():
    constraints = Constraints(spreads=(Spread(request=0, maximum=2, placed=(0, 0)),), zones=(0, 1))

    allocation = place(constrained(constraints, **HALF_FULL, count=2), overload=0.5)

    assert allocation.placed.tolist() == [[0, 1, 2]]


def test_a_host_refused_to_who_has_a_wish_is_open_without_it():
    """Preferred host 1 is too full; host 0 is that of the group once nothing else is wished."""
    snapshot = constrained(
        Constraints(groups=(together(0),), preferred={0: (1,)}),
        capacity=((4, 4096, 40), (8, 8192, 80)),
        free=((4, 4096, 40), (4, 4096, 40)),
        host_class=(0, 1),
        eligible=((True, True),),
        count=2,
    )

    assert place(snapshot, overload=0.5).placed.tolist() == [[0, 0, 2]]


@pytest.mark.parametrize("rule", ["group", "spread"])
def test_a_quota_is_no_refusal_of_a_host(rule: str):
    """No other host would change it: nothing is tried again and again in vain."""
    spread = Spread(request=0, maximum=2, placed=(0, 0, 0))
    constraints = (
        Constraints(groups=(together(0),))
        if rule == "group"
        else Constraints(spreads=(spread,), zones=(0, 1, 2))
    )
    none_left = QuotaHeadroom(tenants=(0,), resource=None, room=0)
    snapshot = dataclasses.replace(constrained(constraints, count=2), allowances=(none_left,))

    assert place(snapshot).details["runs"] == 2


def test_a_spread_request_is_as_even_as_the_zones_have_room():
    capacity = ((1, 1024, 10), (4, 4096, 40), (4, 4096, 40))
    spread = Spread(request=0, maximum=2, placed=(0, 0, 0))
    constraints = Constraints(spreads=(spread,), zones=(0, 1, 2))

    allocation = place(constrained(constraints, capacity=capacity, count=6))

    assert allocation.placed.tolist() == [[0, 0, 1], [0, 1, 2], [0, 2, 2]]
    assert left(allocation) == [(0, 1, Reason.ZONE_FULL)]


def test_what_is_in_a_zone_already_counts():
    spread = Spread(request=0, maximum=2, placed=(2, 0, 1))
    constraints = Constraints(spreads=(spread,), zones=(0, 1, 2))

    allocation = place(constrained(constraints, count=3))

    assert allocation.placed.tolist() == [[0, 1, 2], [0, 2, 1]]


def test_a_spread_gang_is_placed_whole_or_not_at_all():
    """The other gang finds room once the first, which cannot be whole, has left."""
    spread = Spread(request=0, maximum=2, placed=(0, 0, 0))
    snapshot = constrained(
        Constraints(spreads=(spread,), zones=(0, 0, -1)),
        count=(4, 2),
        min_count=(4, 1),
        demand=((1, 1024, 10), (4, 4096, 40)),
    )

    allocation = place(snapshot)

    assert allocation.placed[:, 0].tolist() == [1, 1]
    assert left(allocation) == [(0, 4, Reason.ZONE_FULL)]


def test_a_spread_goes_on_in_the_zone_that_has_fewest_of_it():
    """Zone 0 has more room, and a VM of the request already."""
    spread = Spread(request=0, maximum=3, placed=(1, 0))
    constraints = Constraints(spreads=(spread,), zones=(0, 0, 1))

    assert place(constrained(constraints, count=1)).placed.tolist() == [[0, 2, 1]]


def test_a_spread_gang_that_cannot_be_whole_takes_no_other_with_it():
    spreads = tuple(Spread(request=each, maximum=2, placed=(0, 0)) for each in (0, 1))
    snapshot = constrained(
        Constraints(spreads=spreads, zones=(0, 1, -1)),
        count=(4, 4),
        min_count=(4, 4),
        demand=((1, 1024, 10),) * 2,
        host_class=(0, 1, 1),
        eligible=((True, False), (True, True)),
    )

    allocation = place(snapshot)

    assert allocation.placed.tolist() == [[1, 0, 2], [1, 1, 2]]


def test_preferred_hosts_are_taken_first_and_others_when_they_are_full():
    constraints = Constraints(preferred={0: (1,)})
    snapshot = constrained(constraints, count=6, host_class=(0, 0, 1), eligible=((True, True),))

    allocation = place(snapshot, "first_fit")

    assert allocation.placed.tolist() == [[0, 0, 2], [0, 2, 4]]


def test_who_gives_up_a_preferred_host_still_keeps_its_soft_group():
    constraints = Constraints(groups=(apart(0, hard=False),), preferred={0: (1,)})
    snapshot = constrained(constraints, count=3, host_class=(0, 0, 1), eligible=((True, True),))

    assert place(snapshot).placed[:, 2].tolist() == [1, 1, 1]


def test_more_groups_than_fit_one_run_are_decided_in_several():
    number = MAX_LIMITS + 3
    snapshot = constrained(
        Constraints(groups=tuple(apart(request) for request in range(number))),
        capacity=((500, 500_000, 5000),) * 2,
        demand=((1, 1, 1),) * number,
        count=3,
    )

    allocation = place(snapshot, "first_fit")

    assert allocation.placed[:, 2].tolist() == [1, 1] * number
    assert {each.reason for each in allocation.left_out} == {Reason.ANTI_AFFINITY}


def test_groups_hold_across_zones_that_decide_one_after_the_other():
    from placement.constraints.constrained_policy import ConstrainedPolicy

    hosts = np.arange(3)
    policy = ConstrainedPolicy(
        ZonesPolicy(
            [
                Zone(name="a", hosts=hosts[:1], policy=policy_by_name("first_fit", {})),
                Zone(name="b", hosts=hosts[1:], policy=policy_by_name("best_fit_drfh", {})),
            ]
        )
    )
    snapshot = constrained(Constraints(groups=(apart(0), together(1))), demand=((1, 1, 1),) * 2)
    snapshot = dataclasses.replace(snapshot, count=np.array([3, 3]))

    allocation = policy.place(snapshot, np.random.default_rng(0), Budget())

    check_allocation(snapshot, allocation)
    assert allocation.placed[:, 2].tolist() == [1, 1, 1, 3]


@pytest.mark.parametrize(
    ("constraints", "placed", "said"),
    [
        (Constraints(groups=(apart(0),)), [[0, 0, 2]], "several VMs of group 0"),
        (Constraints(groups=(apart(0, hosts=(0,)),)), [[0, 0, 1]], "several VMs of group 0"),
        (Constraints(groups=(together(0),)), [[0, 0, 1], [0, 1, 1]], r"on hosts \[0, 1\]"),
        (Constraints(groups=(together(0, hosts=(2,)),)), [[0, 0, 1]], r"together on \[2\]"),
        (
            Constraints(spreads=(Spread(request=0, maximum=1, placed=(1, 0)),), zones=(0, 1, -1)),
            [[0, 0, 1]],
            "zone 0 may hold 1 VMs",
        ),
        (
            Constraints(spreads=(Spread(request=0, maximum=1, placed=(1, 0)),), zones=(0, 1, -1)),
            [[0, 2, 1]],
            "host 2 is in none",
        ),
    ],
)
def test_the_check_refuses_what_breaks_a_constraint(constraints, placed, said):
    rows = np.array(placed, dtype=np.int64)
    snapshot = constrained(constraints, count=int(rows[:, 2].sum()))

    with pytest.raises(InfeasibleAllocationError, match=said):
        check_allocation(snapshot, Allocation(placed=rows, left_out=()))


def test_constraints_of_what_is_not_there_are_refused():
    with pytest.raises(ConstraintError, match=r"group\.hosts is 7, allowed is 0 to 2"):
        constrained(Constraints(groups=(apart(0, hosts=(7,)),)))
