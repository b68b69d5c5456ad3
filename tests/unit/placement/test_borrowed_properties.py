"""What borrowed VMs promise: they take nothing from others, and end for who holds no more."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement import InfeasibleAllocationError, Reason, check_allocation, decide, policy_by_name
from placement.model.snapshot import Allocation, Borrowed, Snapshot, Spot
from placement.model.tenant_tree import TenantTree
from placement.rebalancing.freed_hosts import FreedHostsPolicy
from tests.builders import a_snapshot
from tests.properties.strategies import SEEDS, contended_snapshots
from tests.properties.subjects import about, contains

POLICIES = st.sampled_from(["fuga", "best_fit_drfh", "first_fit_drfh", "two_choices_drfh"])


def a_tree(draw: st.DrawFn, weight: np.ndarray) -> TenantTree | None:
    """Draw none, or two groups with the tenants below them."""
    if draw(st.booleans()):
        return None
    return TenantTree(
        parent=(-1, 0, 0, *(draw(st.integers(1, 2)) for _ in weight)),
        weight=np.concatenate(([1.0, 1.0, float(draw(st.integers(1, 3)))], weight)),
        leaf=tuple(range(3, 3 + len(weight))),
    )


@st.composite
def with_borrowed(draw: st.DrawFn, unit: bool = False, spot: bool = False) -> Snapshot:
    """Draw a crowded cluster with borrowed VMs; with ``unit`` all VMs are alike, of one core."""
    if unit:
        tenants = draw(st.integers(2, 4))
        cores = [draw(st.integers(1, 6)) for _ in range(draw(st.integers(1, 3)))]
        snapshot = a_snapshot(
            capacity=[(each, 99, 99) for each in cores],
            demand=[(1, 0, 0)] * tenants,
            count=[draw(st.integers(0, 4)) for _ in range(tenants)],
            weight=[float(draw(st.integers(1, 2))) for _ in range(tenants)],
        )
    else:
        gangs = draw(st.booleans())
        snapshot = draw(contended_snapshots(max_requests=8, open_part=0.95, gangs=gangs))
    free, held, running = snapshot.free.copy(), snapshot.held.copy(), []
    for _ in range(draw(st.integers(6, 16))):
        host = draw(st.integers(0, len(free) - 1))
        request = draw(st.integers(0, len(snapshot.count) - 1))
        amounts, tenant = snapshot.demand[request], int(snapshot.tenant[request])
        if (free[host] >= amounts).all():
            free[host] -= amounts
            held[tenant] += amounts
            running.append((host, tenant, request, amounts, draw(st.integers(0, 4))))
    asks = np.array([draw(st.integers(0, 3)) == 0 for _ in snapshot.count])
    borrowed = Borrowed(
        asks=asks,
        host=np.array([each[0] for each in running], dtype=np.int64),
        tenant=np.array([each[1] for each in running], dtype=np.int64),
        request=np.array([each[2] for each in running], dtype=np.int64),
        amounts=np.array([each[3] for each in running], dtype=np.int64).reshape(-1, 3),
        may_end=np.array([unit or each[4] > 0 for each in running], dtype=np.bool_),
        ending=np.zeros(len(running), dtype=np.bool_),
    )
    return dataclasses.replace(
        snapshot,
        free=free,
        held=held,
        tree=a_tree(draw, snapshot.weight),
        min_count=np.where(asks, 1, snapshot.min_count),
        borrowed=borrowed,
        spot=some_spot(draw, snapshot, free, asks) if spot else None,
    )


def some_spot(draw: st.DrawFn, snapshot: Snapshot, free: np.ndarray, asks: np.ndarray) -> Spot:
    """Draw spot VMs in what is free, and requests for some."""
    running = []
    for _ in range(draw(st.integers(0, 6))):
        host = draw(st.integers(0, len(free) - 1))
        amounts = snapshot.demand[draw(st.integers(0, len(snapshot.count) - 1))]
        if (free[host] >= amounts).all():
            free[host] -= amounts
            running.append((host, draw(st.integers(0, len(snapshot.weight) - 1)), amounts))
    return Spot(
        asks=np.array([draw(st.integers(0, 3)) == 0 for _ in asks]) & ~asks,
        host=np.array([each[0] for each in running], dtype=np.int64),
        tenant=np.array([each[1] for each in running], dtype=np.int64),
        amounts=np.array([each[2] for each in running], dtype=np.int64).reshape(-1, 3),
        may_end=np.ones(len(running), dtype=np.bool_),
    )


def decided(snapshot: Snapshot, name: str, seed: int = 0) -> Allocation:
    rows = () if snapshot.spot is None else snapshot.spot.kept
    policy = FreedHostsPolicy(policy_by_name(name, {}), (), [(q, h) for q, h, _ in rows])
    return decide(snapshot, policy, seed=seed, budget_units=None)


def ordinary(snapshot: Snapshot) -> Snapshot:
    asks = snapshot.borrowed.asks
    if snapshot.spot is not None:
        asks = asks | snapshot.spot.asks
    return dataclasses.replace(
        snapshot, borrowed=None, spot=None, count=np.where(asks, 0, snapshot.count)
    )


def level(snapshot: Snapshot, held: list[list[int]], tenants: list[int], weight: float) -> Fraction:
    totals = [sum(held[each][r] for each in tenants) for r in range(len(snapshot.pool))]
    parts = [Fraction(t, int(p)) for t, p in zip(totals, snapshot.pool, strict=True) if p]
    return max(parts, default=Fraction(0)) / Fraction(weight)


def may_take(snapshot: Snapshot, held: list[list[int]], taker: int, borrower: int) -> bool:
    """State the rule for what tenants hold in the end, two levels of groups at most."""
    if taker == borrower:
        return True
    tree = snapshot.tree
    if tree is None:
        one, other = (
            level(snapshot, held, [each], snapshot.weight[each]) for each in (taker, borrower)
        )
        return one <= other
    group = [tree.parent[leaf] for leaf in tree.leaf]
    if group[taker] == group[borrower]:
        one, other = (
            level(snapshot, held, [each], tree.weight[tree.leaf[each]])
            for each in (taker, borrower)
        )
        return one <= other
    one, other = (
        level(
            snapshot,
            held,
            [each for each, its in enumerate(group) if its == group[of]],
            tree.weight[group[of]],
        )
        for of in (taker, borrower)
    )
    return one <= other


def held_in_the_end(snapshot: Snapshot, allocation: Allocation) -> list[list[int]]:
    """Return what tenants keep or get, without what was borrowed in this round."""
    spot = snapshot.spot
    held = snapshot.held.tolist()
    shown = allocation.details["borrowed"]
    lets_in = shown["lets_in"] + allocation.details.get("spot", {"lets_in": []})["lets_in"]
    for request, _, count in [*allocation.placed.tolist(), *lets_in]:
        if snapshot.borrowed.asks[request] or (spot is not None and spot.asks[request]):
            continue
        for resource, amount in enumerate(snapshot.demand[request].tolist()):
            held[snapshot.tenant[request]][resource] += count * amount
    for vm, _ in shown["ends"]:
        for resource, amount in enumerate(snapshot.borrowed.amounts[vm].tolist()):
            held[snapshot.borrowed.tenant[vm]][resource] -= amount
    return held


@pytest.mark.parametrize("spot", [False, True])
@about("borrowed VMs that end for a request", least=0.2)
@given(data=st.data(), name=POLICIES, seed=SEEDS)
def test_borrowed_vms_take_nothing_and_end_for_who_then_holds_no_more(spot, data, name, seed):
    snapshot = data.draw(with_borrowed(spot=spot))

    allocation = decided(snapshot, name, seed)

    check_allocation(snapshot, allocation)
    shown = allocation.details["borrowed"]
    contains(bool(shown["ends"]))
    asks = snapshot.borrowed.asks if not spot else snapshot.borrowed.asks | snapshot.spot.asks
    shared = [row for row in allocation.placed.tolist() if not asks[row[0]]]
    assert shared == decided(ordinary(snapshot), name, seed).placed.tolist()
    held = held_in_the_end(snapshot, allocation)
    for vm, request in shown["ends"]:
        borrower = int(snapshot.borrowed.tenant[vm])
        assert may_take(snapshot, held, int(snapshot.tenant[request]), borrower)
    again = Borrowed.from_document(snapshot.borrowed.document(), 3)
    assert again.document() == snapshot.borrowed.document()


@about("borrowed VMs that end in the first rounds", least=0.2)
@given(snapshot=with_borrowed(unit=True), name=POLICIES)
def test_rounds_come_to_rest_when_no_further_vm_may_be_taken(snapshot, name):
    """Play rounds until nothing changes: an ended VM's room is held once, by who waited for it."""
    ended_of, changed = [], True
    for _ in range(12):
        allocation = decided(snapshot, name)
        check_allocation(snapshot, allocation)
        ended_of.append(len(allocation.details["borrowed"]["ends"]))
        before = snapshot
        snapshot, changed = after_round(snapshot, allocation)
        if not changed:
            break
    contains(sum(ended_of) > 0)
    assert not changed
    nothing_more_may_be_taken(before, allocation)


def nothing_more_may_be_taken(snapshot, allocation):
    """State the rule by brute force: each VM that waits, and each borrowed VM."""
    waits = {
        int(snapshot.tenant[each.request])
        for each in allocation.left_out
        if each.reason is Reason.NO_ROOM and not snapshot.borrowed.asks[each.request]
    }
    for taker in waits:
        for borrower in set(snapshot.borrowed.tenant.tolist()):
            then = snapshot.held.tolist()
            then[taker][0] += 1
            then[borrower][0] -= 1
            assert not may_take(snapshot, then, taker, borrower)


def after_round(snapshot: Snapshot, allocation: Allocation) -> tuple[Snapshot, bool]:
    """Return the cluster of the next round, with the ended VMs gone and their room kept."""
    borrowed = snapshot.borrowed
    shown = allocation.details["borrowed"]
    after = snapshot.after_placing(allocation.placed)
    free, held = after.free.copy(), after.held.copy()
    gone = [vm for vm, _ in shown["ends"]]
    np.add.at(free, borrowed.host[gone], borrowed.amounts[gone])
    np.subtract.at(held, borrowed.tenant[gone], borrowed.amounts[gone])
    count = after.count.copy()
    for vm in gone:  # what was given back may be borrowed again
        rows = np.flatnonzero(borrowed.asks & (snapshot.tenant == borrowed.tenant[vm]))
        count[rows[:1]] += 1
    stay = np.setdiff1d(np.arange(len(borrowed.host)), gone)
    new = [
        (row[0], row[1])
        for row in allocation.placed.tolist()
        if borrowed.asks[row[0]]
        for _ in range(row[2])
    ]
    amounts = [borrowed.amounts[stay], *(snapshot.demand[[q]] for q, _ in new)]
    size = len(stay) + len(new)
    then = dataclasses.replace(
        borrowed,
        host=np.array([*borrowed.host[stay], *(h for _, h in new)], dtype=np.int64),
        tenant=np.array(
            [*borrowed.tenant[stay], *(snapshot.tenant[q] for q, _ in new)], dtype=np.int64
        ),
        request=np.array([*borrowed.request[stay], *(q for q, _ in new)], dtype=np.int64),
        amounts=np.concatenate(amounts),
        may_end=np.ones(size, dtype=np.bool_),
        ending=np.zeros(size, dtype=np.bool_),
    )
    none = np.zeros(0, dtype=np.int64)
    kept = [tuple(row) for row in shown["lets_in"]]
    if snapshot.spot is not None:
        placed = {(row[0], row[1]): row[2] for row in allocation.placed.tolist()}
        before = snapshot.spot.kept
        kept += [(q, h, count - placed.get((q, h), 0)) for q, h, count in before]
    spot = Spot(
        asks=np.zeros(len(count), dtype=np.bool_),
        host=none,
        tenant=none.copy(),
        amounts=np.zeros((0, 3), dtype=np.int64),
        may_end=np.zeros(0, dtype=np.bool_),
        kept=tuple(row for row in kept if row[2] > 0),
    )
    changed = bool(shown["ends"]) or len(allocation.placed) > 0
    return dataclasses.replace(
        after, free=free, held=held, count=count, borrowed=then, spot=spot
    ), changed


def full_host(**changes) -> Snapshot:
    """Return one host of four cores: tenant 1 borrows three, and tenant 0 waits for three."""
    snapshot = a_snapshot(
        capacity=[(4, 99, 99)],
        free=[(0, 90, 90)],
        demand=[(1, 1, 1), (1, 1, 1)],
        count=[3, 2],
        held=[(0, 0, 0), (4, 4, 4)],
    )
    borrowed = Borrowed(
        asks=np.array([False, True]),
        host=np.array([0, 0, 0]),
        tenant=np.array([1, 1, 1]),
        request=np.array([0, 0, 0]),
        amounts=np.array([(1, 1, 1)] * 3),
        may_end=np.array([True] * 3),
        ending=np.array([False] * 3),
    )
    return dataclasses.replace(snapshot, borrowed=dataclasses.replace(borrowed, **changes))


def test_the_newest_end_until_both_hold_the_same():
    allocation = decided(full_host(), "best_fit_drfh")

    assert allocation.details["borrowed"] == {"ends": [[1, 0], [2, 0]], "lets_in": [[0, 0, 2]]}
    assert [(left.request, left.count, left.reason) for left in allocation.left_out] == [
        (0, 1, Reason.NO_ROOM),
        (0, 2, Reason.SPOT_ENDING),
        (1, 2, Reason.NO_ROOM),
    ]


def test_what_ends_already_is_not_kept():
    snapshot = full_host(
        may_end=np.array([True, True, False]), ending=np.array([False, False, True])
    )

    # Tenant 1 keeps three, and may keep two at least while tenant 0 gets one.
    assert decided(snapshot, "best_fit_drfh").details["borrowed"]["ends"] == [[1, 0]]


def test_a_tenant_takes_its_own_borrowed_vms_for_what_it_requests():
    snapshot = dataclasses.replace(full_host(), tenant=np.array([1, 1]))

    assert len(decided(snapshot, "best_fit_drfh").details["borrowed"]["ends"]) == 3


@pytest.mark.parametrize(
    ("ends", "lets_in", "wrong"),
    [
        ([[0, 0]], [[0, 0, 1]], "before a newer one"),
        ([[0, 0], [1, 0], [2, 0]], [[0, 0, 3]], "holds more than tenant 1 keeps"),
        ([[2, 0], [2, 0]], [[0, 0, 1]], "ends twice"),
        ([[2, 1]], [[1, 0, 1]], "of spot or borrowed VMs"),
        ([[2, 0]], [[0, 0, 2]], "too little room"),
        ([[2, 0]], [], "no request needs it"),
    ],
)
def test_the_check_finds_every_broken_rule(ends, lets_in, wrong):
    snapshot = full_host()
    allocation = decided(snapshot, "best_fit_drfh")
    details = {**allocation.details, "borrowed": {"ends": ends, "lets_in": lets_in}}

    with pytest.raises(InfeasibleAllocationError, match=wrong):
        check_allocation(snapshot, dataclasses.replace(allocation, details=details))


def test_borrowers_grow_into_all_room_by_shares_and_stop_at_what_they_request():
    snapshot = a_snapshot(
        capacity=[(8, 99, 99)],
        demand=[(1, 1, 1), (1, 1, 1), (1, 1, 1)],
        count=[2, 9, 1],
        tenant=[0, 1, 2],
    )
    none = np.zeros(0, dtype=np.int64)
    borrowed = Borrowed(
        asks=np.array([False, True, True]),
        host=none,
        tenant=none.copy(),
        request=none.copy(),
        amounts=np.zeros((0, 3), dtype=np.int64),
        may_end=np.zeros(0, dtype=np.bool_),
        ending=np.zeros(0, dtype=np.bool_),
    )

    allocation = decided(dataclasses.replace(snapshot, borrowed=borrowed), "best_fit_drfh")

    assert allocation.placed.tolist() == [[0, 0, 2], [1, 0, 5], [2, 0, 1]]
