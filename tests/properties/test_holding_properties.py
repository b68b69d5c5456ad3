"""Hosts held back for who starves: few, the same ones every time, and never in vain."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placement import Budget, Reason, check_allocation
from placement.constraints.starvation_reserve import hosts_to_reserve, reserve_for_holders
from placement.constraints.starving_requests import (
    PATIENCE,
    StarvationPatience,
    due_gangs,
    fair_shares,
    waiting_levels,
)
from placement.fairness.shares import dominant_shares
from tests.plain.starvation import plain_holding
from tests.properties.strategies import policies, snapshots

PARTS = st.sampled_from([0.1, 0.25, 0.5, 1.0])


def waiting(**kwargs):
    return snapshots(gangs=True, ages=True, min_requests=1, **kwargs)


@given(snapshot=waiting(), part=PARTS)
def test_few_hosts_are_held_each_for_one_who_starves_and_may_use_it(snapshot, part):
    patience = StarvationPatience(held_part=part)
    rows = hosts_to_reserve(snapshot, patience)
    hosts = [host for _, host in rows]
    of_first = [host for request, host in rows if request == rows[0][0]]
    open_to = snapshot.eligible[:, snapshot.host_class]
    below = dominant_shares(snapshot.held, snapshot.pool) < fair_shares(snapshot)

    due = due_gangs(snapshot, patience)[0].tolist()
    few = max(1, int(open_to.any(axis=0).sum() * part))
    if due:
        few = max(few, patience.max_hosts_for_gangs(int(open_to.any(axis=0).sum())))
    assert len(hosts) == len(set(hosts)) <= max(few, len(of_first))
    if len(of_first) > few:  # a gang that has waited longest may need more
        levels = waiting_levels(snapshot.age, patience.patience)
        level, open_hosts = int(levels[rows[0][0]]), int(open_to.any(axis=0).sum())
        assert len(of_first) <= patience.max_hosts_for_first(open_hosts, level)
    for request in {request for request, _ in rows}:
        assert snapshot.age[request] >= PATIENCE or request in due
        assert below[snapshot.tenant[request]]
        mine = [host for q, host in rows if q == request]
        assert len(mine) <= max(1, snapshot.min_count[request]) <= snapshot.count[request]
        assert open_to[request, mine].all()
        assert (snapshot.capacity[mine] >= snapshot.demand[request]).all()


@given(snapshot=snapshots(ages=True, min_requests=1, max_hosts=8, max_requests=8), part=PARTS)
def test_hosts_looked_at_once_for_each_kind_are_those_looked_at_for_each_vm(snapshot, part):
    patience = StarvationPatience(patience=5, held_part=part)  # all that wait long are of one level
    snapshot = dataclasses.replace(snapshot, age=np.minimum(snapshot.age, 12))

    assert list(hosts_to_reserve(snapshot, patience)) == plain_holding(snapshot, patience)


@given(snapshot=waiting(), part=PARTS)
def test_the_same_snapshot_holds_the_same_hosts(snapshot, part):
    patience = StarvationPatience(held_part=part)

    assert hosts_to_reserve(snapshot, patience) == hosts_to_reserve(snapshot, patience)


@given(snapshot=waiting(), part=PARTS)
def test_a_held_host_is_open_to_nobody_who_could_not_use_it_before(snapshot, part):
    rows = hosts_to_reserve(snapshot, StarvationPatience(held_part=part))

    closed = reserve_for_holders(snapshot, rows)

    before = snapshot.eligible[:, snapshot.host_class]
    after = closed.eligible[:, closed.host_class]
    held = np.zeros(len(snapshot.capacity), dtype=np.bool_)
    held[[host for _, host in rows]] = True
    assert (after <= before).all()
    assert (after[:, ~held] == before[:, ~held]).all()
    assert all(after[request, host] for request, host in rows)


@given(policy=policies, snapshot=waiting(), seed=st.integers(0, 9))
def test_every_allocation_is_feasible_while_hosts_are_held(policy, snapshot, seed):
    policy, parameters = policy

    allocation = policy.place(snapshot, np.random.default_rng(seed), Budget())

    check_allocation(snapshot, allocation, overload=parameters.get("overload"))


@given(policy=policies, snapshot=waiting())
def test_nothing_that_fits_is_left_out_but_for_a_reason_that_says_so(policy, snapshot):
    policy, parameters = policy
    allocation = policy.place(snapshot, np.random.default_rng(0), Budget())
    free, placed = (
        snapshot.after_placing(allocation.placed).free,
        set(allocation.placed[:, 0].tolist()),
    )
    held = {host for _, host in allocation.details.get("holding", [])}
    shown = {(each.request, each.reason) for each in allocation.left_out}

    for left in allocation.left_out:
        demand = snapshot.demand[left.request]
        hosts = np.flatnonzero(snapshot.eligible[left.request][snapshot.host_class])
        fits = [host for host in hosts.tolist() if (free[host] >= demand).all()]
        if left.reason is Reason.HELD_BACK:
            assert held & set(fits)
        elif left.reason is Reason.ABOVE_OVERLOAD:
            assert "overload" in parameters
        elif snapshot.min_count[left.request] <= 1 or left.request in placed:
            kept_back = (left.request, Reason.HELD_BACK) in shown
            assert left.reason is Reason.NOTHING_ASKED or kept_back or not fits
