"""The whole-VM policies on cases that say something about each."""

from __future__ import annotations

import numpy as np
import pytest

from placement import (
    POLICIES,
    Budget,
    ParameterError,
    Reason,
    check_allocation,
    policy_by_name,
    shares_after,
)
from placement.policies.slots import snapshot_in_slots
from tests.builders import a_snapshot

IN_TURN = ("best_fit_drfh", "first_fit_drfh", "two_choices_drfh", "drf_pool")
WITH_OVERLOAD = tuple(name for name, entry in POLICIES.items() if "overload" in entry.parameters)


def place(snapshot, name, seed=0, units=None, **parameters):
    policy = policy_by_name(name, parameters)
    allocation = policy.place(snapshot, np.random.default_rng(seed), Budget(units))
    check_allocation(snapshot, allocation, overload=parameters.get("overload"))
    return allocation


def counts(snapshot, allocation):
    of_request = np.zeros(len(snapshot.count), dtype=np.int64)
    np.add.at(of_request, allocation.placed[:, 0], allocation.placed[:, 2])
    return of_request.tolist()


# ------------------------------------------------------------- all of them


@pytest.mark.parametrize("name", POLICIES)
def test_hosts_alike_but_for_their_labels_are_told_apart(name):
    snapshot = a_snapshot(
        capacity=[(4, 4), (4, 4)],
        demand=[(2, 2), (2, 2)],
        count=4,
        host_class=[0, 1],
        eligible=[(False, True), (True, False)],
    )

    assert place(snapshot, name).placed.tolist() == [[0, 1, 2], [1, 0, 2]]


@pytest.mark.parametrize("name", POLICIES)
def test_a_request_that_fits_nowhere_now_does_not_stop_the_others(name):
    snapshot = a_snapshot(
        capacity=[(8, 8), (4, 4)],
        free=[(4, 4), (4, 4)],
        demand=[(6, 6), (1, 1), (1, 1)],
        count=[2, 9, 9],
        tenant=[0, 0, 1],
        held=[(0, 0), (4, 4)],
    )

    allocation = place(snapshot, name, slots=8)

    assert sum(counts(snapshot, allocation)[1:]) == 8
    assert Reason.NO_ROOM in [each.reason for each in allocation.left_out if each.request == 0]


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "optimal"])
def test_the_unit_of_memory_changes_nothing(name):
    def placed(unit):
        snapshot = a_snapshot(
            capacity=[(16, 32 * unit), (16, 64 * unit), (32, 32 * unit)] * 3,
            demand=[(1, unit), (1, 3 * unit), (4, 6 * unit)],
            count=[30, 30, 12],
        )
        return place(snapshot, name).placed.tolist()

    assert placed(1) == placed(1024)


@pytest.mark.parametrize("name", WITH_OVERLOAD)
def test_no_policy_fills_a_host_above_the_threshold_and_the_reason_says_so(name):
    snapshot = a_snapshot(capacity=[(4, 4)] * 2, free=[(3, 3), (4, 4)], demand=[(1, 1)], count=9)

    allocation = place(snapshot, name, overload=0.75, slots=4)

    assert counts(snapshot, allocation) == [5]
    assert [each.reason for each in allocation.left_out] == [Reason.ABOVE_OVERLOAD]


@pytest.mark.parametrize("name", WITH_OVERLOAD)
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "1", None, float("nan"), 10**400])
def test_a_threshold_that_is_no_part_of_a_host_is_refused(name, value):
    with pytest.raises(ParameterError, match="overload"):
        policy_by_name(name, {"overload": value})


# ----------------------------------------------------------------- in turn


@pytest.mark.parametrize("name", [*IN_TURN, "slots"])
def test_who_runs_more_already_is_served_less(name):
    snapshot = a_snapshot(
        capacity=[(8, 8), (4, 4)],
        free=[(4, 4), (4, 4)],
        demand=[(1, 1), (1, 1)],
        count=10,
        held=[(4, 4), (0, 0)],
    )

    allocation = place(snapshot, name, slots=8)

    assert shares_after(snapshot, allocation) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("name", [*IN_TURN, "slots"])
def test_twice_the_weight_is_twice_the_share(name):
    snapshot = a_snapshot(capacity=[(6, 6)] * 2, demand=[(1, 1)] * 2, count=12, weight=[2.0, 1.0])

    assert counts(snapshot, place(snapshot, name, slots=6)) == [8, 4]


def test_the_pool_s_targets_come_before_the_rest():
    # the target of the first is 4 of its 9, though the first host alone holds 6
    snapshot = a_snapshot(capacity=[(6, 6), (2, 2)], demand=[(1, 1), (1, 1)], count=9)

    assert place(snapshot, "drf_pool").placed.tolist() == [[0, 0, 4], [1, 0, 2], [1, 1, 2]]


def test_a_gang_of_the_pool_comes_whole_or_later():
    snapshot = a_snapshot(
        capacity=[(8, 8)], demand=[(1, 1), (1, 1)], count=[6, 9], min_count=[6, 1]
    )

    assert counts(snapshot, place(snapshot, "drf_pool")) == [0, 8]


# ------------------------------------------------------------------ random


@pytest.mark.parametrize("name", ["two_choices_drfh", "random_fit"])
def test_another_seed_is_another_answer_and_the_same_the_same(name):
    snapshot = a_snapshot(capacity=[(8, 8), (4, 8), (8, 4)] * 4, demand=[(1, 1)] * 3, count=20)

    answers = [place(snapshot, name, seed).placed.tolist() for seed in (1, 2, 1)]

    assert answers[0] == answers[2] != answers[1]


def test_random_fit_reaches_every_host_as_often():
    snapshot = a_snapshot(capacity=[(9000, 9000)] * 4, demand=[(1, 1)], count=8000)

    _, _, vms = place(snapshot, "random_fit").placed.T

    assert vms == pytest.approx([2000] * 4, rel=0.1)


def test_two_choices_take_the_host_of_the_better_shape():
    # with two hosts both are probed: it is Best-Fit DRFH
    snapshot = a_snapshot(capacity=[(10, 60), (60, 10)], demand=[(1, 5), (5, 1)], count=50)

    two = place(snapshot, "two_choices_drfh")

    assert two.placed.tolist() == place(snapshot, "best_fit_drfh").placed.tolist()


# ------------------------------------------------------------------- slots


def test_what_runs_takes_the_least_number_of_slots_that_covers_it():
    snapshot = a_snapshot(
        capacity=[(14, 28)], free=[(11, 15)], demand=[(2, 1)], held=[(0, 5)], count=1
    )

    cut = snapshot_in_slots(snapshot, snapshot.free, 14)

    assert (cut.capacity.tolist(), cut.free.tolist()) == ([[14]], [[7]])
    assert (cut.demand.tolist(), cut.held.tolist()) == ([[2]], [[3]])


def test_room_without_slots_is_left_with_that_reason():
    # half a slot is a slot: 2 slots of (2, 2) hold two VMs, the host would hold four
    snapshot = a_snapshot(capacity=[(4, 4)], demand=[(1, 1)], count=4)

    allocation = place(snapshot, "slots", slots=2)

    assert counts(snapshot, allocation) == [2]
    assert [(each.count, each.reason) for each in allocation.left_out] == [(2, Reason.NO_SLOTS)]


def test_a_resource_that_no_host_offers_has_no_slots():
    snapshot = a_snapshot(capacity=[(4, 0)], demand=[(1, 1), (1, 0)], count=4)

    allocation = place(snapshot, "slots", slots=4)

    assert counts(snapshot, allocation) == [0, 4]


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "14", 10_001, None])
def test_a_number_of_slots_that_is_none_is_refused(value):
    with pytest.raises(ParameterError, match="slots"):
        policy_by_name("slots", {"slots": value})


# ------------------------------------------------------------ order and fit


def test_best_fit_takes_the_host_that_is_left_with_the_least():
    snapshot = a_snapshot(
        capacity=[(8, 8), (8, 8), (4, 4)],
        free=[(8, 8), (5, 5), (4, 4)],
        demand=[(3, 3), (1, 1)],
        count=[1, 2],
    )

    # left with 10/8, 4/8 and 2/4 of a host: the first of the two that tie
    assert place(snapshot, "best_fit").placed.tolist() == [[0, 1, 1], [1, 1, 2]]


def test_best_fit_is_not_fair():
    snapshot = a_snapshot(capacity=[(4, 4)], demand=[(1, 1)] * 2, count=4)

    assert counts(snapshot, place(snapshot, "best_fit")) == [4, 0]
