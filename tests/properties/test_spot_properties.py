"""What spot VMs promise: they touch no ordinary request, and end only for who then fits."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placement import QuotaHeadroom, Reason, check_allocation, decide, policy_by_name
from placement.model.snapshot import Allocation, Snapshot, Spot
from placement.rebalancing.freed_hosts import FreedHostsPolicy
from tests.builders import a_snapshot
from tests.properties.strategies import SEEDS, contended_snapshots
from tests.properties.subjects import about, contains

POLICIES = st.sampled_from(["fuga", "best_fit_drfh", "first_fit_drfh", "two_choices_drfh"])


@st.composite
def with_spot(draw: st.DrawFn, spot_quarters: int = 1) -> Snapshot:
    snapshot = draw(contended_snapshots(max_requests=8, open_part=0.95, gangs=draw(st.booleans())))
    free, running = snapshot.free.copy(), []
    for _ in range(draw(st.integers(0, 12))):
        host = draw(st.integers(0, len(free) - 1))
        amounts = snapshot.demand[draw(st.integers(0, len(snapshot.count) - 1))]
        if (free[host] >= amounts).all():
            free[host] -= amounts
            running.append((host, draw(st.integers(0, len(snapshot.weight) - 1)), amounts))
    allowances = ()
    if draw(st.booleans()):
        allowances = (QuotaHeadroom(tenants=(0, 1), resource=None, room=draw(st.integers(0, 9))),)
    return dataclasses.replace(
        snapshot,
        free=free,
        allowances=allowances,
        spot=Spot(
            asks=np.array([draw(st.integers(0, 3)) < spot_quarters for _ in snapshot.count]),
            host=np.array([host for host, _, _ in running], dtype=np.int64),
            tenant=np.array([tenant for _, tenant, _ in running], dtype=np.int64),
            amounts=np.array([each for _, _, each in running], dtype=np.int64).reshape(-1, 3),
            may_end=np.array([draw(st.integers(0, 4)) > 0 for _ in running], dtype=np.bool_),
        ),
    )


def decided(snapshot: Snapshot, name: str, seed: int) -> Allocation:
    rows = () if snapshot.spot is None else snapshot.spot.kept
    policy = FreedHostsPolicy(policy_by_name(name, {}), (), [(q, h) for q, h, _ in rows])
    return decide(snapshot, policy, seed=seed, budget_units=None)


@about("spot VMs that end for a request", least=0.3)
@given(snapshot=with_spot(), name=POLICIES, seed=SEEDS)
def test_spot_vms_take_nothing_from_others_and_end_for_who_then_fits(snapshot, name, seed):
    spot = snapshot.spot
    ordinary = dataclasses.replace(
        snapshot, spot=None, count=np.where(spot.asks, 0, snapshot.count)
    )

    allocation = decided(snapshot, name, seed)

    ends = allocation.details["spot"]["ends"]
    contains(bool(ends))
    check_allocation(snapshot, allocation)
    shared = [row for row in allocation.placed.tolist() if not spot.asks[row[0]]]
    assert shared == decided(ordinary, name, seed).placed.tolist()
    held = snapshot.after_placing(allocation.placed).held
    assert (
        held == ordinary.after_placing(np.array(shared, dtype=np.int64).reshape(-1, 3)).held
    ).all()
    none_ends_that_could_stay(snapshot, allocation)
    shown = Counter()
    for left in allocation.left_out:
        shown[left.request] += left.count if left.reason is Reason.SPOT_ENDING else 0
    let_in = Counter()
    for request, _, count in allocation.details["spot"]["lets_in"]:
        let_in[request] += count
    assert +shown == let_in
    who_is_let_in_gets_the_room(snapshot, allocation, name, seed)


def none_ends_that_could_stay(snapshot, allocation):
    spot, shown = snapshot.spot, allocation.details["spot"]
    room = snapshot.free.copy()
    for request, host, count in shown["lets_in"]:
        room[host] -= count * snapshot.demand[request]
    for request, host, count in allocation.placed.tolist():
        room[host] -= count * snapshot.demand[request]
    for vm, _ in shown["ends"]:
        room[spot.host[vm]] += spot.amounts[vm]
    for vm, _ in shown["ends"]:
        assert (room[spot.host[vm]] < spot.amounts[vm]).any()


def who_is_let_in_gets_the_room(snapshot, allocation, name, seed):
    """Play the next round, once all have ended: on each host somebody of those let in is placed."""
    spot, shown = snapshot.spot, allocation.details["spot"]
    gone = [vm for vm, _ in shown["ends"]]
    after = snapshot.after_placing(allocation.placed)
    free = after.free.copy()
    np.add.at(free, spot.host[gone], spot.amounts[gone])
    stay = np.setdiff1d(np.arange(len(spot.host)), gone)
    kept = tuple((q, h, n) for q, h, n in shown["lets_in"])
    then = dataclasses.replace(
        after,
        free=free,
        spot=dataclasses.replace(
            spot,
            host=spot.host[stay],
            tenant=spot.tenant[stay],
            amounts=spot.amounts[stay],
            may_end=spot.may_end[stay],
            kept=kept,
        ),
    )

    found = decided(then, name, seed)

    check_allocation(then, found)
    placed = Counter()
    for request, _, count in found.placed.tolist():
        placed[request] += count
    let_in = {(request, host) for request, host, _ in kept}
    for host in {host for _, host, _ in kept}:
        its = [request for request, where in let_in if where == host]
        taken = [row for row in found.placed.tolist() if row[1] == host]
        done = all(placed[each] == then.count[each] for each in its)
        assert all((row[0], host) in let_in or (done and spot.asks[row[0]]) for row in taken)
        assert taken or any(placed[each] == then.count[each] for each in its)


def test_the_youngest_ends_where_one_is_enough_and_none_for_who_never_fits():
    snapshot = dataclasses.replace(
        a_snapshot(
            capacity=[(4, 99, 99), (4, 99, 99)],
            free=[(0, 90, 90), (0, 90, 90)],
            demand=[(2, 1, 1), (5, 1, 1), (1, 1, 1)],
            count=[1, 10_000, 3],
            tenant=[0, 0, 1],
        ),
        spot=Spot(
            asks=np.array([False, False, True]),
            host=np.array([0, 0, 1, 1, 1]),
            tenant=np.array([1, 1, 1, 1, 1]),
            amounts=np.array([(1, 1, 1), (1, 1, 1), (2, 1, 1), (1, 1, 1), (1, 1, 1)]),
            may_end=np.array([True, True, True, True, True]),
        ),
    )

    allocation = decided(snapshot, "best_fit_drfh", 0)

    shown = allocation.details["spot"]
    assert len(shown["ends"]) == 2
    assert sum(count for _, _, count in shown["lets_in"]) == 1
    assert [(left.request, left.count, left.reason) for left in allocation.left_out] == [
        (0, 1, Reason.SPOT_ENDING),
        (1, 10_000, Reason.NO_HOST_LARGE_ENOUGH),
        (2, 3, Reason.NO_ROOM),
    ]


@about("spot VMs placed while a margin stays free", least=0.2)
@given(snapshot=with_spot(spot_quarters=3), margin=st.integers(1, 100), seed=SEEDS)
def test_new_spot_vms_leave_the_margin_free(snapshot, margin, seed):
    spot = dataclasses.replace(snapshot.spot, margin=margin)
    snapshot = dataclasses.replace(snapshot, spot=spot)

    allocation = decided(snapshot, "best_fit_drfh", seed)

    check_allocation(snapshot, allocation)
    of_spot = spot.asks[allocation.placed[:, 0]]
    placed = allocation.placed[of_spot]
    contains(len(placed) > 0)
    before = snapshot.after_placing(allocation.placed[~of_spot]).free.sum(axis=0)
    taken = placed[:, 2] @ snapshot.demand[placed[:, 0]]
    assert (taken <= np.maximum(0, before - snapshot.pool * margin / 1000)).all()
    assert Spot.from_document(spot.document(), 3).margin == margin


def test_room_that_spot_vms_left_to_one_request_is_not_counted_for_another():
    snapshot = dataclasses.replace(
        a_snapshot(
            capacity=[(4, 99, 99)],
            free=[(1, 90, 90)],
            demand=[(2, 1, 1), (2, 1, 1)],
            count=[1, 1],
            tenant=[0, 1],
        ),
        spot=Spot(
            asks=np.array([False, False]),
            host=np.array([0, 0, 0]),
            tenant=np.array([1, 1, 1]),
            amounts=np.array([(1, 1, 1), (1, 1, 1), (1, 1, 1)]),
            may_end=np.array([False, True, True]),  # the first ends for request 0
            kept=((0, 0, 1),),
        ),
    )

    allocation = decided(snapshot, "best_fit_drfh", 0)

    assert allocation.details["spot"]["ends"] == [[1, 1], [2, 1]]


def test_who_finds_its_only_host_kept_for_another_is_told_that_there_is_no_room():
    snapshot = a_snapshot(
        capacity=[(4, 99, 99)], free=[(1, 90, 90)], demand=[(2, 1, 1), (2, 1, 1)], count=[1, 1]
    )
    policy = FreedHostsPolicy(policy_by_name("best_fit_drfh", {}), (), [(0, 0)])

    allocation = decide(snapshot, policy, seed=0, budget_units=None)

    assert [left.reason for left in allocation.left_out] == [Reason.NO_ROOM, Reason.NO_ROOM]
