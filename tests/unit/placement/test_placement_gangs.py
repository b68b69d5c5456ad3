"""Gangs: at least min_count VMs at once, or none."""

from __future__ import annotations

import numpy as np
import pytest

from placement import POLICIES, Budget, GangTooLargeError, Reason, check_allocation, policy_by_name
from tests.builders import a_snapshot

HOST = (4, 8192, 100)


def place(snapshot, name="fuga", **parameters):
    # in four slots HOST has one for each of its cores, so that slots place what cores do
    policy = policy_by_name(name, {"slots": 4, **parameters})
    allocation = policy.place(snapshot, np.random.default_rng(0), Budget())
    check_allocation(snapshot, allocation)
    return allocation


def given(snapshot, allocation):
    counts = np.zeros(len(snapshot.count), dtype=np.int64)
    np.add.at(counts, allocation.placed[:, 0], allocation.placed[:, 2])
    return counts.tolist()


def reasons(allocation):
    return [(each.request, each.count, each.reason) for each in allocation.left_out]


@pytest.mark.parametrize("name", POLICIES)
def test_a_gang_that_fits_is_placed_whole_and_the_rest_of_it_as_far_as_it_fits(name):
    snapshot = a_snapshot(capacity=[HOST, HOST], count=12, min_count=[6])

    allocation = place(snapshot, name)

    assert given(snapshot, allocation) == [8]
    assert reasons(allocation) == [(0, 4, Reason.NO_ROOM)]


@pytest.mark.parametrize("name", POLICIES)
def test_a_gang_that_does_not_fit_whole_is_left_out_whole(name):
    snapshot = a_snapshot(capacity=[HOST, HOST], count=12, min_count=[9])

    allocation = place(snapshot, name)

    assert given(snapshot, allocation) == [0]
    assert reasons(allocation) == [(0, 12, Reason.GANG_NOT_WHOLE)]


@pytest.mark.parametrize("name", POLICIES)
def test_a_gang_that_does_not_fit_leaves_its_room_to_others(name):
    snapshot = a_snapshot(
        capacity=[HOST, HOST], demand=[(3, 1024, 5), (1, 1024, 5)], count=[3, 8], min_count=[3, 1]
    )

    allocation = place(snapshot, name)

    assert given(snapshot, allocation) == [0, 8]
    assert reasons(allocation) == [(0, 3, Reason.NO_ROOM)]


@pytest.mark.parametrize("name", ["fuga", "best_fit_drfh"])
def test_a_gang_that_its_fair_target_covers_goes_before_single_vms(name):
    """Two tenants; half of the hosts is fair, and half is what the gang needs."""
    snapshot = a_snapshot(
        capacity=[HOST] * 4, demand=[(1, 1024, 5), (1, 1024, 5)], count=[20, 8], min_count=[1, 8]
    )

    allocation = place(snapshot, name)

    assert given(snapshot, allocation) == [8, 8]


@pytest.mark.parametrize("name", ["fuga", "best_fit_drfh"])
def test_a_gang_above_its_fair_target_takes_what_others_leave(name):
    crowded = a_snapshot(
        capacity=[HOST] * 4, demand=[(1, 1024, 5)] * 2, count=[20, 12], min_count=[1, 12]
    )
    roomy = a_snapshot(
        capacity=[HOST] * 4, demand=[(1, 1024, 5)] * 2, count=[4, 12], min_count=[1, 12]
    )

    assert given(crowded, place(crowded, name)) == [16, 0]
    assert given(roomy, place(roomy, name)) == [4, 12]


@pytest.mark.parametrize("name", ["fuga", "best_fit_drfh"])
def test_of_gangs_for_which_there_is_no_room_together_the_first_is_whole(name):
    snapshot = a_snapshot(
        capacity=[HOST, HOST], demand=[(1, 1024, 5)] * 2, count=[5, 5], min_count=[5, 5]
    )

    assert given(snapshot, place(snapshot, name)) == [5, 0]


def test_the_poorest_tenants_gang_is_tried_first():
    snapshot = a_snapshot(
        capacity=[HOST] * 3,
        free=[HOST, HOST, (0, 8192, 100)],
        demand=[(1, 1024, 5)] * 2,
        count=[8, 8],
        min_count=[8, 8],
        held=[(4, 0, 0), (0, 0, 0)],
    )

    assert given(snapshot, place(snapshot)) == [0, 8]


def test_a_fair_exchange_leaves_a_gang_what_it_asked_for_at_once():
    """Tenant 0 is the richer one, but its gang of four is no gang with three."""
    snapshot = a_snapshot(
        capacity=[HOST] * 2,
        demand=[(1, 1024, 5), (4, 1024, 5)],
        count=[4, 1],
        min_count=[4, 1],
        free=[HOST, (0, 8192, 100)],
        held=[(4, 1, 1), (0, 0, 0)],
    )

    assert given(snapshot, place(snapshot))[0] in (0, 4)


def test_a_gang_stays_below_the_overload_threshold():
    snapshot = a_snapshot(capacity=[HOST, HOST], count=8, min_count=[7])

    allocation = place(snapshot, overload=0.75)

    assert reasons(allocation) == [(0, 8, Reason.ABOVE_OVERLOAD)]


def test_the_details_tell_which_vms_began_a_gang_before_the_game():
    snapshot = a_snapshot(
        capacity=[HOST] * 2, demand=[(1, 1024, 5)] * 2, count=[9, 4], min_count=[1, 3]
    )

    allocation = place(snapshot)

    assert sum(n for _, _, n in allocation.details["gangs"]) == 3
    rows = [[q, h, game + rest] for q, h, game, rest in allocation.details["phase"]]
    assert rows == allocation.placed.tolist()


def test_a_gang_of_more_vms_than_its_request_wants_is_no_snapshot():
    with pytest.raises(GangTooLargeError, match="request 1 wants at least 2 VMs at once, but 1 "):
        a_snapshot(demand=[(1, 1024, 5)] * 2, count=[4, 1], min_count=[4, 2])


def test_a_gang_that_wants_nothing_now_keeps_its_min_count():
    snapshot = a_snapshot(count=0, min_count=[2])

    assert place(snapshot).left_out == ()
