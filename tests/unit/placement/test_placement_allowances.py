"""Quotas of tenants and groups: what policies place within them, and what they tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement import (
    POLICIES,
    Allocation,
    Budget,
    InfeasibleAllocationError,
    QuotaHeadroom,
    Reason,
    Snapshot,
    check_allocation,
    policy_by_name,
    target_shares,
)
from placement.constraints.allowances import RemainingAllowances
from placement.constraints.allowances_policy import AllowancesPolicy
from placement.constraints.zones import Zone, ZonesPolicy
from placement.model.reasons import needed_at_once
from tests.builders import a_snapshot
from tests.properties.strategies import snapshots


def within(snapshot: Snapshot, *limits: tuple[Sequence[int], int | None, int]) -> Snapshot:
    return dataclasses.replace(
        snapshot,
        allowances=tuple(
            QuotaHeadroom(tenants=tuple(tenants), resource=resource, room=room)
            for tenants, resource, room in limits
        ),
    )


def placed(snapshot: Snapshot, policy: str = "best_fit_drfh", **parameters: object) -> Allocation:
    decider = policy_by_name(policy, parameters)
    allocation = decider.place(snapshot, np.random.default_rng(0), Budget())
    check_allocation(snapshot, allocation)
    return allocation


def counts(snapshot: Snapshot, allocation: Allocation) -> list[int]:
    given = np.zeros(len(snapshot.count), dtype=np.int64)
    np.add.at(given, allocation.placed[:, 0], allocation.placed[:, 2])
    return given.tolist()


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_keeps_a_quota_and_says_what_is_beyond_it(policy: str) -> None:
    snapshot = a_snapshot(capacity=[(8, 8)] * 2, demand=[(1, 1), (1, 1)], count=[9, 9])

    limited = within(snapshot, ([0], 0, 3))

    allocation = placed(limited, policy)
    assert counts(limited, allocation) == [3, 9]
    (left,) = allocation.left_out
    assert (left.request, left.count, left.reason) == (0, 6, Reason.QUOTA)


def test_a_number_of_vms_may_be_the_limit() -> None:
    snapshot = within(a_snapshot(capacity=[(9, 9)], demand=[(1, 1)], count=9), ([0], None, 2))

    assert counts(snapshot, placed(snapshot)) == [2]


def test_the_quota_of_a_group_is_shared_by_weight() -> None:
    snapshot = a_snapshot(
        capacity=[(90, 90)], demand=[(1, 1)] * 3, count=30, weight=[1.0, 2.0, 1.0]
    )

    limited = within(snapshot, ([0, 1], 0, 12))

    assert counts(limited, placed(limited)) == [4, 8, 30]


def test_who_holds_more_of_a_groups_quota_gets_less_of_what_is_left() -> None:
    snapshot = a_snapshot(
        capacity=[(90, 90)], free=[(80, 80)], demand=[(1, 1)] * 2, count=30, held=[(10, 10), (0, 0)]
    )

    limited = within(snapshot, ([0, 1], 0, 6))

    assert counts(limited, placed(limited)) == [0, 6]


def test_what_could_not_be_placed_leaves_its_part_of_a_quota_to_others() -> None:
    """Two large VMs fit by themselves, and not beside each other."""
    snapshot = a_snapshot(
        capacity=[(4, 4), (9, 9)],
        demand=[(4, 4), (4, 4), (1, 1)],
        count=[1, 1, 9],
        tenant=[0, 0, 1],
        weight=[100.0, 1.0],
        host_class=[0, 1],
        eligible=[(True, False), (True, False), (False, True)],
    )

    limited = within(snapshot, ([0, 1], None, 4))

    assert counts(limited, placed(limited)) == [1, 0, 3]


def test_what_no_pass_can_place_is_not_offered_again_in_place_of_others() -> None:
    """There is room for the large VM, above the overload threshold alone."""
    snapshot = a_snapshot(
        capacity=[(4, 4), (9, 9)],
        demand=[(4, 4), (1, 1)],
        count=[1, 9],
        weight=[100.0, 1.0],
        host_class=[0, 1],
        eligible=[(True, False), (False, True)],
    )

    limited = within(snapshot, ([0, 1], None, 3))

    assert counts(limited, placed(limited, overload=0.5)) == [0, 3]


@pytest.mark.parametrize("policy", ["best_fit_drfh", "fuga", "first_fit", "optimal"])
def test_a_vm_that_fits_nowhere_leaves_the_quota_to_others(policy: str) -> None:
    """Now, that is: the large VM waits for room, the small ones need not wait with it."""
    snapshot = a_snapshot(
        capacity=[(8, 8)] * 2,
        free=[(3, 3)] * 2,
        demand=[(8, 8), (1, 1)],
        count=[1, 9],
        tenant=[0, 0],
    )

    limited = within(snapshot, ([0], 0, 8))

    allocation = placed(limited, policy)
    assert counts(limited, allocation) == [0, 6]
    shown = {(left.request, left.count, left.reason) for left in allocation.left_out}
    assert shown == {(0, 1, Reason.QUOTA), (1, 2, Reason.NO_ROOM), (1, 1, Reason.QUOTA)}


def test_many_vms_that_fit_nowhere_do_not_hide_those_behind_them() -> None:
    snapshot = a_snapshot(
        capacity=[(8, 8)] * 2,
        free=[(3, 3)] * 2,
        demand=[(8, 8)] * 30 + [(1, 1)],
        count=[1] * 30 + [2],
        tenant=[0] * 31,
    )

    limited = within(snapshot, ([0], 0, 9))

    allocation = placed(limited)
    assert counts(limited, allocation) == [0] * 30 + [2]


def test_a_gang_beyond_its_quota_is_left_out_whole() -> None:
    snapshot = a_snapshot(
        capacity=[(9, 9)], demand=[(1, 1)] * 2, count=[6, 6], tenant=[0, 0], min_count=[5, 1]
    )

    limited = within(snapshot, ([0], 0, 4))

    allocation = placed(limited)
    assert counts(limited, allocation) == [0, 4]
    assert {left.reason for left in allocation.left_out} == {Reason.QUOTA}


def test_zones_share_one_quota() -> None:
    snapshot = within(a_snapshot(capacity=[(4, 4)] * 2, demand=[(1, 1)], count=8), ([0], 0, 5))
    policy = policy_by_name("first_fit", {})
    zones = [Zone(name=str(host), hosts=np.array([host]), policy=policy) for host in (0, 1)]

    allocation = AllowancesPolicy(ZonesPolicy(zones)).place(
        snapshot, np.random.default_rng(0), Budget()
    )

    check_allocation(snapshot, allocation)
    assert allocation.placed.tolist() == [[0, 0, 4], [0, 1, 1]]


def test_a_host_that_is_held_for_who_starves_stays_held_when_a_quota_is_given_on() -> None:
    """Tenant 1 starves; what it cannot take of nobody's quota frees no host held for it."""
    snapshot = a_snapshot(
        capacity=[(8, 8)] * 2,
        free=[(4, 4), (4, 4)],
        demand=[(8, 8), (4, 4), (1, 1)],
        count=[1, 3, 9],
        tenant=[1, 0, 0],
        age=[1_440, 0, 0],
        held=[(8, 8), (0, 0)],
    )

    limited = within(snapshot, ([0], 0, 12))

    allocation = placed(limited)
    ((request, host),) = allocation.details["holding"][:1]
    assert request == 0
    assert host not in allocation.placed[:, 1]
    assert counts(limited, allocation)[0] == 0


def test_a_target_is_not_beyond_a_quota() -> None:
    snapshot = a_snapshot(capacity=[(8, 8)], demand=[(1, 1)] * 2, count=8)

    assert target_shares(snapshot).tolist() == [0.5, 0.5]
    assert target_shares(within(snapshot, ([0], 0, 2))).tolist() == [0.25, 0.75]


def test_an_allocation_beyond_a_limit_is_refused() -> None:
    snapshot = a_snapshot(capacity=[(9, 9)], demand=[(1, 1)], count=3)
    allocation = placed(snapshot)

    with pytest.raises(InfeasibleAllocationError, match="leaves 2 vcpus to its tenants, given 3"):
        check_allocation(within(snapshot, ([0], 0, 2)), allocation)


@st.composite
def limited_snapshots(draw: st.DrawFn) -> Snapshot:
    snapshot = draw(snapshots(gangs=True, ages=True))
    tenants = range(len(snapshot.weight))
    scale = [1, 1, 1] if snapshot.capacity.max(initial=0) < 100 else [1, 10**12, 10**14]
    limits = []
    for _ in range(draw(st.integers(0, 3))):
        resource = draw(st.sampled_from([None, 0, 1, 2]))
        room = draw(st.integers(0, 12)) * (1 if resource is None else scale[resource])
        who = draw(st.sets(st.sampled_from(tenants), min_size=1))
        limits.append((sorted(who), resource, room))
    return within(snapshot, *limits)


@pytest.mark.parametrize("policy", ["fuga", "best_fit_drfh", "best_fit_hdrf", "first_fit"])
@settings(max_examples=60, deadline=None)
@given(snapshot=limited_snapshots())
def test_limits_are_kept_and_a_quota_is_named_where_it_stands_in_the_way(
    policy: str, snapshot: Snapshot
) -> None:
    allocation = placed(snapshot, policy)

    rooms = RemainingAllowances(snapshot.after_placing(allocation.placed))
    missing = snapshot.count - np.array(counts(snapshot, allocation), dtype=np.int64)
    beyond = {left.request for left in allocation.left_out if left.reason is Reason.QUOTA}
    for left in allocation.left_out:
        request = left.request
        if left.reason is Reason.QUOTA:
            assert rooms.exceeded_by(request, int(missing[request]))
        elif request not in beyond:
            needed = needed_at_once(snapshot, request, int(missing[request]))
            assert not rooms.exceeded_by(request, needed)


@pytest.mark.parametrize("policy", ["fuga", "best_fit_drfh", "random_fit"])
@settings(max_examples=40, deadline=None)
@given(snapshot=snapshots(gangs=True))
def test_limits_with_room_for_everything_change_nothing(policy: str, snapshot: Snapshot) -> None:
    everybody = tuple(range(len(snapshot.weight)))
    requested = [int(each) for each in (snapshot.count[:, None] * snapshot.demand).sum(axis=0)]

    limited = placed(
        within(snapshot, (everybody, 0, requested[0]), (everybody, 2, requested[2])), policy
    )

    free = placed(snapshot, policy)
    assert limited.placed.tolist() == free.placed.tolist()
    assert sorted(limited.left_out, key=repr) == sorted(free.left_out, key=repr)
