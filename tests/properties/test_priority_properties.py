"""What priorities promise: they share out what a tenant was given, and touch nobody else."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placement import QuotaHeadroom, Reason, check_allocation, decide, policy_by_name
from placement.model.arrays import IntArray
from placement.model.reasons import hosts_open_to, needed_at_once
from placement.model.snapshot import Allocation, Snapshot
from tests.builders import a_snapshot
from tests.properties.strategies import SEEDS, contended_snapshots
from tests.properties.subjects import about, contains


@st.composite
def with_priorities(draw: st.DrawFn) -> Snapshot:
    snapshot = draw(contended_snapshots(max_requests=8, open_part=0.95, gangs=draw(st.booleans())))
    # By a generator of its own: alike draws, which Hypothesis likes, would leave nothing to order.
    drawn = np.random.default_rng([draw(SEEDS), *snapshot.count.tolist()])
    priority = drawn.choice([-10, 0, 10], len(snapshot.count))
    allowances = ()
    if draw(st.booleans()):
        allowances = (QuotaHeadroom(tenants=(0, 1), resource=None, room=draw(st.integers(0, 9))),)
    return dataclasses.replace(
        snapshot,
        priority=priority,
        allowances=allowances,
        # Few tenants, each with several requests.
        tenant=snapshot.tenant % (2 if len(snapshot.count) > 3 else 1),
    )


def decided(snapshot: Snapshot, name: str, seed: int) -> Allocation:
    policy = policy_by_name(name, {})
    return decide(snapshot, policy, seed=seed, budget_units=None)


def amounts_by_tenant(snapshot: Snapshot, placed: IntArray) -> IntArray:
    """(N, H, R)"""
    shape = (len(snapshot.weight), *snapshot.capacity.shape)
    found = np.zeros(shape, dtype=np.int64)
    requests, hosts, counts = placed.T
    np.add.at(
        found, (snapshot.tenant[requests], hosts), counts[:, None] * snapshot.demand[requests]
    )
    return found


def rows_of(snapshot: Snapshot, allocation: Allocation, tenants: set[int]) -> list[list[int]]:
    return [row for row in allocation.placed.tolist() if snapshot.tenant[row[0]] in tenants]


@about("a request that took the place of another of its tenant", least=0.15)
@given(
    snapshot=with_priorities(),
    name=st.sampled_from(["fuga", "best_fit_drfh", "first_fit_drfh", "two_choices_drfh"]),
    seed=SEEDS,
)
def test_priorities_share_out_what_a_tenant_was_given(snapshot, name, seed):
    plain = decided(dataclasses.replace(snapshot, priority=None), name, seed)

    allocation = decided(snapshot, name, seed)

    contains("took" in allocation.details)
    check_allocation(snapshot, allocation)
    before, after = (amounts_by_tenant(snapshot, each.placed) for each in (plain, allocation))
    assert (after <= before).all()
    for tenant in range(len(snapshot.weight)):
        alone = np.where(snapshot.tenant == tenant, snapshot.priority, 0)
        one = decided(dataclasses.replace(snapshot, priority=alone), name, seed)
        others = set(range(len(snapshot.weight))) - {tenant}
        assert rows_of(snapshot, one, others) == rows_of(snapshot, plain, others)
        assert rows_of(snapshot, one, {tenant}) == rows_of(snapshot, allocation, {tenant})
    nobody_waits_for_who_could_give_way(snapshot, allocation, before)


def nobody_waits_for_who_could_give_way(snapshot, allocation, given):
    if snapshot.allowances:
        return  # where VMs are counted, one large one makes no room for several small ones
    placed = [(q, h, n, snapshot.tenant[q], snapshot.priority[q]) for q, h, n in allocation.placed]
    for left in allocation.left_out:
        tenant, priority = snapshot.tenant[left.request], snapshot.priority[left.request]
        if needed_at_once(snapshot, left.request, left.count) > 1:
            continue
        could_have = given[tenant].copy()
        for request, host, count, whose, its in placed:
            if whose == tenant and its >= priority:
                could_have[host] -= count * snapshot.demand[request]
        lower = [host for _, host, _, whose, its in placed if whose == tenant and its < priority]
        fits = (could_have >= snapshot.demand[left.request]).all(axis=1)
        fits &= hosts_open_to(snapshot, left.request)
        assert not fits[lower].any()


def test_a_gang_that_gives_way_does_so_whole_and_says_for_whom():
    snapshot = dataclasses.replace(
        a_snapshot(
            capacity=[(2, 99, 99), (2, 99, 99)],
            demand=[(1, 1, 1), (1, 1, 1)],
            count=[4, 1],
            min_count=[4, 1],
            tenant=[0, 0],
        ),
        priority=np.array([0, 10]),
    )

    allocation = decided(snapshot, "best_fit_drfh", 0)

    assert allocation.placed.tolist() == [[1, 0, 1]]
    assert [(left.request, left.count, left.reason) for left in allocation.left_out] == [
        (0, 4, Reason.LOWER_PRIORITY)
    ]
    assert {row[3] for row in allocation.details["gave_way"]} == {1}
