"""Fairness over time: who starves has hosts held back, and gets its place."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from placement import (
    POLICIES,
    Allocation,
    Budget,
    Reason,
    Snapshot,
    check_allocation,
    policy_by_name,
)
from placement.constraints.starvation_reserve import hosts_to_reserve
from placement.constraints.starving_requests import (
    PATIENCE,
    StarvationPatience,
    fair_shares,
    waiting_levels,
)
from tests.builders import a_snapshot
from tests.servers.stream import LONGEST, Stream

#: Rounds that a stream can be run for.
SOON = 12
FAIR = [name for name, entry in POLICIES.items() if "patience" in entry.parameters]


def place(snapshot, name="fuga", **parameters):
    allocation = policy_by_name(name, parameters).place(
        snapshot, np.random.default_rng(0), Budget()
    )
    check_allocation(snapshot, allocation)
    return allocation


def a_crowd(**changes):
    """Request 0 wants a whole host; tenant 1 has filled both hosts but for a gap on each."""
    fields = {
        "capacity": [(8, 8), (8, 8)],
        "free": [(2, 2), (3, 3)],
        "demand": [(8, 8), (1, 1)],
        "count": [1, 9],
        "held": [(0, 0), (11, 11)],
        "age": [PATIENCE, 0],
        "resources": ("vcpus", "memory_mib"),
    }
    return a_snapshot(**{**fields, **changes})


@pytest.mark.parametrize("name", FAIR)
def test_the_host_that_misses_least_is_held_for_who_starves(name):
    allocation = place(a_crowd(), name)

    assert allocation.details["holding"] == [[0, 1]]
    assert allocation.placed.tolist() == [[1, 0, 2]]
    assert [(each.request, each.count, each.reason) for each in allocation.left_out] == [
        (0, 1, Reason.NO_ROOM),
        (1, 3, Reason.HELD_BACK),
        (1, 4, Reason.NO_ROOM),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"age": [PATIENCE - 1, 0]},
        {"held": [(8, 8), (3, 3)]},
        {"count": [0, 9]},
        {"demand": [(9, 9), (1, 1)]},
        {"eligible": [(False,), (True,)]},
    ],
    ids=["patient", "has its share", "wants nothing", "too large", "no host is open to it"],
)
def test_nothing_is_held_for_who_does_not_starve(changes):
    allocation = place(a_crowd(**changes))

    assert "holding" not in allocation.details
    assert allocation.placed.tolist() == [[1, 0, 2], [1, 1, 3]]


def test_a_patience_of_nought_holds_nothing():
    assert "holding" not in place(a_crowd(), patience=0).details


def test_policies_that_do_not_claim_fairness_hold_nothing():
    assert place(a_crowd(), "first_fit").placed[:, 2].sum() == 5


def test_a_held_host_takes_the_vm_that_it_is_held_for_once_it_fits():
    allocation = place(a_crowd(free=[(2, 2), (8, 8)], held=[(0, 0), (6, 6)]))

    assert allocation.placed.tolist() == [[0, 1, 1], [1, 0, 2]]
    assert {each.reason for each in allocation.left_out} == {Reason.NO_ROOM}


def test_who_has_only_held_hosts_waits_for_room_not_for_a_host():
    snapshot = a_crowd(
        host_class=[0, 1], eligible=[(True, True), (False, True)], free=[(0, 0), (3, 3)]
    )

    reasons = {(each.request, each.reason) for each in place(snapshot).left_out}

    assert (1, Reason.HELD_BACK) in reasons
    assert (1, Reason.NO_ROOM) in reasons


def test_the_oldest_of_the_starving_comes_first_and_the_bound_stops_the_others():
    snapshot = a_crowd(
        capacity=[(8, 8)] * 3,
        free=[(2, 2), (3, 3), (1, 1)],
        demand=[(8, 8), (7, 7), (1, 1)],
        count=[1, 1, 9],
        held=[(0, 0), (0, 0), (18, 18)],
        age=[PATIENCE, 8 * PATIENCE, 0],
    )

    assert hosts_to_reserve(snapshot, StarvationPatience(held_part=0.34)) == ((1, 1),)
    assert hosts_to_reserve(snapshot, StarvationPatience(held_part=0.67)) == ((1, 1), (0, 0))


def test_a_gang_holds_the_hosts_that_miss_least_in_all():
    snapshot = a_crowd(
        capacity=[(8, 8)] * 4,
        free=[(2, 2), (4, 4), (3, 3), (0, 0)],
        demand=[(4, 4), (1, 1)],
        count=[3, 9],
        min_count=[3, 1],
        held=[(0, 0), (23, 23)],
    )

    # one VM fits on host 1; host 2 misses 1 for the next, host 0 misses 2
    assert hosts_to_reserve(snapshot, StarvationPatience(held_part=1.0)) == ((0, 0), (0, 1), (0, 2))
    # with two hosts, those that hold most each
    assert hosts_to_reserve(snapshot, StarvationPatience(held_part=0.5)) == ((0, 0), (0, 1))
    # half of a small site, whatever part may be held
    assert hosts_to_reserve(snapshot, StarvationPatience(held_part=0.25)) == ((0, 0), (0, 1))


@pytest.mark.parametrize(
    ("hosts", "rounds", "most"),
    [
        (3, PATIENCE, 1),
        (4, PATIENCE, 2),
        (30, PATIENCE, 4),
        (50, PATIENCE, 5),
        (50, 8 * PATIENCE, 25),
        (50, 64 * PATIENCE, 50),
        (3, 64 * PATIENCE, 3),
        (50, 512 * PATIENCE, 50),
    ],
)
def test_the_first_who_starves_may_have_more_held_the_longer_it_waits_and_the_next_no_more(
    hosts, rounds, most
):
    def crowd(gang: int) -> Snapshot:
        return a_crowd(
            capacity=[(8, 8)] * hosts,
            free=[(1, 1)] * hosts,
            demand=[(8, 8), (8, 8), (1, 1)],
            count=[gang, 1, 9],
            min_count=[gang, 1, 1],
            held=[(0, 0), (0, 0), (7 * hosts, 7 * hosts)],
            age=[rounds, PATIENCE, 0],
            tenant=[0, 1, 2],
            weight=[1.0, 1.0, 1.0],
        )

    held = hosts_to_reserve(crowd(most), StarvationPatience())
    assert {request for request, _ in held} == {0}
    assert len(held) == most
    if most < hosts:
        assert {
            request for request, _ in hosts_to_reserve(crowd(most + 1), StarvationPatience())
        } == {1}


@pytest.mark.parametrize(
    ("changes", "parameters", "reserved"),
    [
        ({}, {}, ((0, 1),)),
        ({"age": [0, 0]}, {}, ()),
        ({"age": [4, 0]}, {"gang_patience": 5}, ()),
        ({}, {"gang_patience": 0}, ()),
        ({}, {"patience": 0}, ()),
        # Of 32 vCPUs 16 are due; with half of the gang its tenant has 13, and 17.
        ({"held": [(11, 11), (16, 16)]}, {}, ((0, 1),)),
        ({"held": [(15, 15), (12, 12)]}, {}, ()),
    ],
)
def test_a_gang_that_its_tenant_is_due_has_hosts_reserved_after_a_slot(
    changes, parameters, reserved
):
    snapshot = a_crowd(
        capacity=[(8, 8)] * 4,
        free=[(0, 0), (3, 3), (1, 1), (1, 1)],
        demand=[(2, 2), (1, 1)],
        count=[2, 40],
        min_count=[2, 1],
        **{"held": [(0, 0), (27, 27)], "age": [1, 0], **changes},
    )

    assert hosts_to_reserve(snapshot, StarvationPatience(**parameters)) == reserved


def test_many_gangs_that_are_due_share_a_tenth_of_the_hosts():
    snapshot = a_crowd(
        capacity=[(8, 8)] * 50,
        free=[(1, 1)] * 50,
        demand=[(8, 8)] * 9,
        count=[2] * 9,
        min_count=[2] * 9,
        held=[(0, 0)] * 9,
        age=[1] * 9,
        tenant=list(range(9)),
    )

    rows = hosts_to_reserve(snapshot, StarvationPatience())

    assert [request for request, _ in rows] == [0, 0, 1, 1]
    assert len({host for _, host in rows}) == 4


def test_a_due_gang_is_tried_again_with_the_hosts_for_gangs():
    """Of 200 hosts two are for those who starve, and one of them is left for the gang."""
    snapshot = a_crowd(
        capacity=[(8, 8)] * 200,
        free=[(1, 1)] * 200,
        demand=[(8, 8)] * 2,
        count=[1, 2],
        min_count=[1, 2],
        held=[(0, 0)] * 2,
        age=[PATIENCE] * 2,
    )

    rows = hosts_to_reserve(snapshot, StarvationPatience())

    assert [request for request, _ in rows] == [0, 1, 1]


def test_a_gang_that_waits_for_held_hosts_keeps_single_vms_out_and_says_so():
    snapshot = a_crowd(demand=[(4, 4), (1, 1)], count=[2, 9], min_count=[2, 1])

    allocation = place(snapshot, held_part=1.0)

    assert allocation.placed.tolist() == []
    assert [(each.request, each.count, each.reason) for each in allocation.left_out] == [
        (0, 2, Reason.NO_ROOM),
        (1, 5, Reason.HELD_BACK),
        (1, 4, Reason.NO_ROOM),
    ]


def test_no_host_is_held_on_which_the_threshold_would_keep_the_vm_out():
    assert "holding" not in place(a_crowd(), overload=0.9).details


def test_fair_shares_do_not_depend_on_who_came_first():
    snapshot = a_crowd(count=[2, 9])

    assert fair_shares(snapshot) == pytest.approx([0.5, 0.5])
    first = dataclasses.replace(
        snapshot, held=np.zeros_like(snapshot.held), count=np.array([2, 20])
    )
    assert fair_shares(first) == pytest.approx([0.5, 0.5])


def test_what_a_tenant_leaves_of_its_share_is_the_others():
    snapshot = a_crowd(demand=[(4, 4), (1, 1)], count=[1, 9], weight=[3.0, 1.0])

    assert fair_shares(snapshot) == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize(
    ("age", "level"), [(0, 0), (11, 0), (12, 1), (95, 1), (96, 2), (767, 2), (768, 3)]
)
def test_only_a_few_ages_change_decisions(age, level):
    assert waiting_levels(np.array([age]), 12).tolist() == [level]


class Watched(Stream):
    """Sees to it that held hosts are few, and take nobody else."""

    def look(self, snapshot: Snapshot, allocation: Allocation) -> None:
        rows = allocation.details.get("holding", [])
        hosts = [host for _, host in rows]
        part = self.parameters.get("held_part", StarvationPatience().held_part)
        assert len(hosts) == len(set(hosts)) <= max(1, int(self.hosts * part))
        assert len(hosts) <= self.min_count
        assert all(q == 0 for q, h, _ in allocation.placed.tolist() if h in hosts)


@pytest.mark.parametrize("name", FAIR)
def test_a_large_vm_gets_its_place_among_small_ones_that_refill_every_gap(name):
    stream = Watched(hosts=4, size=8, large=8, policy=name, parameters={"patience": SOON})

    placed = stream.rounds_until_placed(SOON + 3 * LONGEST)

    assert placed is not None
    assert placed >= SOON


@pytest.mark.parametrize("name", FAIR)
def test_a_gang_gets_its_places_among_small_vms_that_refill_every_gap(name):
    stream = Watched(
        hosts=12,
        size=6,
        large=6,
        count=3,
        min_count=3,
        policy=name,
        parameters={"patience": SOON, "held_part": 0.25},
    )

    placed = stream.rounds_until_placed(SOON + 4 * LONGEST)

    assert placed is not None
    assert placed >= SOON


@pytest.mark.parametrize(("hosts", "gang"), [(4, 2), (3, 2), (2, 2)])
def test_a_gang_of_whole_hosts_gets_its_places_on_a_site_of_few_hosts(hosts, gang):
    """Where it needs more than half of them, it waits until it may have more held."""
    stream = Stream(
        hosts=hosts, size=6, large=6, count=gang, min_count=gang, parameters={"patience": SOON}
    )
    level = 1 if gang <= hosts // 2 else 64

    assert stream.rounds_until_placed(level * SOON + 3 * LONGEST) is not None


@pytest.mark.parametrize("gang", [1, 3])
def test_without_patience_they_never_get_their_place(gang):
    stream = Stream(
        hosts=4 * gang,
        size=8,
        large=8,
        count=gang,
        min_count=gang,
        policy="best_fit_drfh",
        parameters={"patience": 0},
    )

    assert stream.rounds_until_placed(400) is None


def test_a_host_whose_vms_never_end_does_not_keep_a_request_waiting_for_ever():
    """Host 0 misses least and always will; in time another host is tried."""
    stream = Stream(
        hosts=4, size=8, large=8, eternal=1, policy="best_fit_drfh", parameters={"patience": SOON}
    )

    assert stream.rounds_until_placed(8 * SOON + 3 * LONGEST) is not None
