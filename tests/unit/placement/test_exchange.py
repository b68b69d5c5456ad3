"""Fair exchange after the game."""

from __future__ import annotations

import numpy as np
import pytest

from placement.fuga.exchange import exchange_unfair
from placement.model.budget import Budget
from placement.model.vm_kinds import vm_kinds
from placement.packing.draft import Draft
from tests.round_inputs import some_snapshot


def a_draft(*, place: bool = True, **changes) -> Draft:
    """Tenant 0 holds all of both hosts with small VMs; tenant 1 wants one large VM."""
    snapshot = some_snapshot(
        resources=("vcpus",),
        **{
            "capacity": np.array([[4], [4]]),
            "free": np.array([[4], [4]]),
            "demand": np.array([[1], [4]]),
            "count": np.array([8, 1]),
            "held": np.zeros((2, 1), dtype=np.int64),
            **changes,
        },
    )
    draft = Draft(snapshot)
    for host in range(2) if place else ():
        draft.put(0, host, int(snapshot.free[host, 0]))
    return draft


def exchange(draft: Draft, budget: Budget | None = None):
    return exchange_unfair(draft, vm_kinds(draft.snapshot), budget or Budget())


def test_small_vms_of_the_richer_make_room_for_a_large_one_of_the_poorer():
    draft = a_draft()

    made, cut = exchange(draft)

    assert [(each.host, each.taken_from, each.taken, each.given_to) for each in made] == [
        (0, 0, 4, 1)
    ]
    assert dict(draft.placed_by_host) == {(0, 1): 4, (1, 0): 1}
    assert not cut


def test_nothing_is_exchanged_that_would_leave_the_poorer_above_the_richer():
    draft = a_draft(
        capacity=np.array([[4], [2]]), free=np.array([[4], [2]]), count=np.array([6, 1])
    )

    assert exchange(draft)[0] == ()


def test_weights_decide_who_is_poorer():
    draft = a_draft(weight=np.array([4.0, 1.0]))

    assert exchange(draft)[0] == ()


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e6, 1e9])
def test_the_unit_of_weights_changes_no_exchange(unit: float):
    draft = a_draft(weight=np.array([0.5, 1.0]) * unit)

    made, _ = exchange(draft)

    assert [(each.host, each.taken, each.given_to) for each in made] == [(0, 4, 1)]


def test_vms_that_ran_before_are_not_taken():
    snapshot = some_snapshot(
        resources=("vcpus",),
        capacity=np.array([[4], [4]]),
        free=np.array([[0], [0]]),
        demand=np.array([[1], [4]]),
        count=np.array([0, 1]),
        held=np.array([[8], [0]]),
    )

    assert exchange(Draft(snapshot))[0] == ()


def test_a_host_closed_to_the_poorer_is_left_alone():
    draft = a_draft(host_class=np.array([0, 1]), eligible=np.array([[True, True], [False, True]]))

    made, _ = exchange(draft)

    assert [each.host for each in made] == [1]


def test_a_gang_keeps_as_many_as_it_needs_at_once():
    draft = a_draft(min_count=np.array([8, 1]), place=False)
    draft.begin_gang(0)
    for host in range(2):
        draft.put(0, host, 4)

    assert exchange(draft)[0] == ()


def test_of_those_who_can_make_room_the_richest_does():
    """The richest of all is a gang that needs all its VMs."""
    capacity = np.array([[19], [4], [4], [4]])
    snapshot = some_snapshot(
        resources=("vcpus",),
        capacity=capacity,
        free=capacity,
        demand=np.array([[1], [1], [1], [4]]),
        count=np.array([14, 8, 9, 1]),
        min_count=np.array([14, 1, 1, 1]),
        tenant=np.arange(4),
        age=np.zeros(4, dtype=np.int64),
        weight=np.ones(4),
        held=np.zeros((4, 1), dtype=np.int64),
        host_class=np.array([0, 1, 1, 1]),
        eligible=np.array([[True, True]] * 3 + [[False, True]]),
    )
    draft = Draft(snapshot)
    draft.begin_gang(0)
    draft.put_all(np.array([[0, 0, 10], [0, 3, 4], [1, 0, 4], [1, 1, 4], [2, 0, 5], [2, 2, 4]]))

    made, _ = exchange(draft)

    assert (made[0].taken_from, made[0].host, made[0].taken) == (2, 2, 4)


def test_a_spent_budget_stops_the_search_and_says_so():
    assert exchange(a_draft(), Budget(0)) == ((), True)
