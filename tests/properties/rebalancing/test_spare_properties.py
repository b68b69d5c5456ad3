"""What holds of spare, and of rounds that keep it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import numpy as np
from hypothesis import given, note
from hypothesis import strategies as st

from placement import Budget, check_allocation, policy_by_name
from placement.model.constraints import AffinityGroup, Constraints, Spread
from placement.model.snapshot import Reason
from placement.rebalancing.destination_search import SearchLimits, find_destinations
from placement.rebalancing.model import (
    Mobility,
    RebalanceLimits,
    RunningGroup,
    RunningSpread,
    RunningState,
)
from placement.rebalancing.placement_state import PlacementState
from placement.rebalancing.spare_capacity import spare_capacity
from placement.rebalancing.spare_policy import SpareCapacityPolicy, state_with_placed
from placement.rebalancing.units import UnitBuilder
from tests.properties.rebalancing.running_clusters import runnings
from tests.unit.placement.rebalancing.builders import a_running

_MANY = RebalanceLimits(per_source=1000, per_destination=1000, at_once=1000)


@st.composite
def sites(draw: st.DrawFn, **options: bool) -> tuple[RunningState, np.ndarray]:  # type: ignore[type-arg]
    running = draw(runnings(**options))
    hosts = len(running.receives)
    of_host = st.integers(-1, draw(st.integers(0, 2)))
    each = draw(st.booleans())
    domain = range(hosts) if each else [draw(of_host) for _ in range(hosts)]
    return running, np.array(domain, dtype=np.int64)


def survives(running: RunningState, hosts: Sequence[int]) -> bool:
    """Do all movable VMs of these hosts find room elsewhere? By the planner alone."""
    closed = running.with_closed_hosts(hosts)
    vms = closed.vms_on(hosts)
    units, stays = UnitBuilder(closed, _MANY).units_of(vms[closed.movable[vms]].tolist())
    where = PlacementState(closed)
    places = find_destinations(
        where, units, rng=np.random.default_rng(0), budget=Budget(None), search=SearchLimits()
    )
    return not stays and len(places.hosts) == len(units)


@given(sites(over=True))
def test_each_domain_holds_if_its_vms_find_places(
    site: tuple[RunningState, np.ndarray],  # type: ignore[type-arg]
) -> None:
    running, domain = site
    note(json.dumps([running.document(), domain.tolist()]))

    found = spare_capacity(running, domain, search=SearchLimits())

    for each, holds in enumerate(found.holds.tolist()):
        hosts = np.flatnonzero(domain == each).tolist()
        assert holds == survives(running, hosts)
        assert holds == (each not in found.lacking)


@given(sites(), st.integers(0, 3))
def test_what_is_kept_is_enough_however_full_the_rest_becomes(
    site: tuple[RunningState, np.ndarray],  # type: ignore[type-arg]
    seed: int,
) -> None:
    running, domain = site
    found = spare_capacity(running, domain)

    kept = np.minimum(found.kept, np.maximum(running.room, 0))
    assert (kept == found.kept).all()
    full = dataclasses.replace(running, snapshot=dataclasses.replace(running.snapshot, free=kept))
    again = spare_capacity(full, domain, search=SearchLimits())
    assert again.holds[found.holds].all()


def as_of_a_round(running: RunningState) -> RunningState:
    """Return what runs beside the snapshot of a round: its constraints are those of what runs."""
    groups = tuple(
        AffinityGroup(
            apart=group.apart,
            hard=group.hard,
            requests=group.requests,
            hosts=tuple(sorted({*(int(running.host[vm]) for vm in group.vms), *group.hosts})),
        )
        for group in running.groups
        if group.requests
    )
    zones = int(running.zones.max(initial=-1)) + 1
    spreads = []
    for spread in running.spreads:
        if spread.request is not None:
            there = [*spread.others] or [0] * zones
            for vm in spread.vms:
                zone = int(running.zones[running.host[vm]])
                if zone >= 0:
                    there[zone] += 1
            spreads.append(
                Spread(request=spread.request, maximum=spread.maximum, placed=tuple(there))
            )
    closed = ~running.receives
    # Requests see closed hosts as a class of their own, open to nobody.
    classes = running.snapshot.eligible.shape[1]
    snapshot = dataclasses.replace(
        running.snapshot,
        host_class=running.snapshot.host_class + classes * closed,
        eligible=np.hstack([running.snapshot.eligible, np.zeros_like(running.snapshot.eligible)]),
        constraints=Constraints(
            groups=groups,
            spreads=tuple(spreads),
            zones=tuple(running.zones.tolist()) if spreads else (),
        ),
    )
    return dataclasses.replace(
        running, snapshot=snapshot, eligible=np.hstack([running.eligible] * 2)
    )


@given(sites(waiting=True), st.sampled_from(["first_fit", "best_fit_drfh", "fuga"]))
def test_a_round_breaks_no_spare_that_held(
    site: tuple[RunningState, np.ndarray],  # type: ignore[type-arg]
    name: str,
) -> None:
    running, domain = site
    running = as_of_a_round(running)
    snapshot = running.snapshot
    note(json.dumps([running.document(), domain.tolist()]))
    before = spare_capacity(running, domain)
    policy = SpareCapacityPolicy(policy_by_name(name, {}), running, domain)

    allocation = policy.place(snapshot, np.random.default_rng(0), Budget(None))

    check_allocation(snapshot, allocation)
    after = state_with_placed(running, snapshot, allocation.placed)
    for each in np.flatnonzero(before.holds).tolist():
        assert survives(after, np.flatnonzero(domain == each).tolist())


@given(runnings(waiting=True))
def test_where_nothing_is_to_survive_a_round_decides_as_ever(running: RunningState) -> None:
    running = as_of_a_round(running)
    snapshot = running.snapshot
    policy = policy_by_name("best_fit_drfh", {})
    nowhere = np.full(len(running.receives), -1, dtype=np.int64)

    kept = SpareCapacityPolicy(policy, running, nowhere).place(
        snapshot, np.random.default_rng(0), Budget(None)
    )

    as_ever = policy.place(snapshot, np.random.default_rng(0), Budget(None))
    assert kept.placed.tolist() == as_ever.placed.tolist()
    assert Reason.KEPT_SPARE not in {left.reason for left in kept.left_out}


def test_two_hosts_keep_each_others_vms_room() -> None:
    running = a_running(host=[0, 0, 1], capacity=[(4, 8192)] * 2, requests=[(1, 1024)], count=[5])
    policy = SpareCapacityPolicy(policy_by_name("first_fit", {}), running, np.arange(2))

    allocation = policy.place(running.snapshot, np.random.default_rng(0), Budget(None))

    # Together they hold four VMs: what one has, the other has room for.
    assert int(allocation.placed[:, 2].sum()) == 1
    assert [(left.count, left.reason) for left in allocation.left_out] == [(4, Reason.KEPT_SPARE)]
    assert allocation.details["spare"] == {"domains": 2, "held": 2, "unknown": 0, "kept_for": 4}


def test_a_vm_that_takes_the_only_place_that_a_rule_leaves_waits() -> None:
    """Host 1 fails by itself as far as spare goes, and has room; the rule leaves no other place."""
    running = a_running(
        host=[0],
        capacity=[(4, 8192)] * 2,
        requests=[(1, 1024)],
        count=[1],
        groups=[RunningGroup(apart=True, hard=True, vms=(0,), requests=(0,))],
    )
    running = as_of_a_round(running)
    policy = SpareCapacityPolicy(policy_by_name("first_fit", {}), running, np.array([0, -1]))

    allocation = policy.place(running.snapshot, np.random.default_rng(0), Budget(None))

    assert not len(allocation.placed)
    assert [(left.count, left.reason) for left in allocation.left_out] == [(1, Reason.KEPT_SPARE)]


def test_a_host_that_could_not_fail_before_keeps_nobody_waiting() -> None:
    running = a_running(
        host=[0] * 3 + [1] * 3, capacity=[(4, 8192)] * 2, requests=[(1, 1024)], count=[2]
    )
    policy = SpareCapacityPolicy(policy_by_name("first_fit", {}), running, np.arange(2))

    allocation = policy.place(running.snapshot, np.random.default_rng(0), Budget(None))

    assert int(allocation.placed[:, 2].sum()) == 2
    assert allocation.left_out == ()


def test_hosts_that_fail_together_are_no_place_for_each_others_vms() -> None:
    """Host 2 has room for either of their VMs, which differ, and not for both."""
    running = a_running(
        host=[0, 1, 2],
        demand=[(2, 1024), (1, 2048), (2, 4096)],
        kind=[0, 1, 2],
        capacity=[(4, 8192)] * 3,
    )

    assert spare_capacity(running, np.array([0, 1, -1])).holds.all()
    assert not spare_capacity(running, np.array([0, 0, -1])).holds.any()


def test_what_is_missing_is_told_of_a_domain_that_does_not_hold() -> None:
    running = a_running(host=[0] * 3 + [1] * 3, capacity=[(4, 8192)] * 2)

    found = spare_capacity(running, np.arange(2))

    assert found.holds.tolist() == [False, False]
    missing = found.lacking[0][0].missing
    assert missing is not None
    assert (missing.host, missing.amounts) == (1, (1, 0))


def test_who_cannot_move_need_not_survive() -> None:
    running = a_running(
        host=[0] * 4 + [1] * 4, capacity=[(4, 8192)] * 2, mobility=[Mobility.NEVER] * 8
    )

    assert spare_capacity(running, np.arange(2)).holds.all()


def test_vms_that_keep_apart_need_hosts_of_their_own() -> None:
    apart = RunningGroup(apart=True, hard=True, vms=(0, 1))
    two = a_running(host=[0, 1], capacity=[(4, 8192)] * 2, groups=[apart])
    three = a_running(host=[0, 1], capacity=[(4, 8192)] * 3, groups=[apart])

    assert not spare_capacity(two, np.arange(2)).holds.any()
    assert spare_capacity(three, np.arange(3)).holds.all()


def test_a_zone_that_fails_leaves_its_spread_no_zone() -> None:
    spread = RunningSpread(maximum=1, vms=(0, 1))
    running = a_running(host=[0, 1], capacity=[(4, 8192)] * 2, spreads=[spread], zones=[0, 1])

    assert not spare_capacity(running, np.array([0, 1])).holds.any()


def test_a_budget_that_is_spent_leaves_domains_unanswered() -> None:
    running = a_running(host=[0] * 3 + [1] * 3, capacity=[(4, 8192)] * 2)

    found = spare_capacity(running, np.arange(2), budget_units=1)

    assert found.cut
    assert not found.holds.any()
