"""Every policy keeps every hard constraint, whatever else the cluster is like."""

from __future__ import annotations

import dataclasses
import json

from hypothesis import given, settings

from placement import Reason, check_allocation, set_aside_unplaceable
from placement.model.constraints import Constraints
from tests.properties.strategies import (
    SEEDS,
    constrained_snapshots,
    contended_snapshots,
    every_policy,
    place,
)
from tests.properties.subjects import about, contains


def bound_by_a_rule(constraints):
    """Return the requests of which VMs keep apart or together, or are spread."""
    groups = (group.requests for group in constraints.groups if group.hard)
    return {each.request for each in constraints.spreads}.union(*groups)


@every_policy
@about("VMs that a hard rule binds", least=0.15)  # of three slots on a host few are given
@settings(max_examples=25)
@given(snapshot=constrained_snapshots(), seed=SEEDS)
def test_hard_constraints_hold(policy, snapshot, seed):
    policy, parameters = policy
    possible, _ = set_aside_unplaceable(snapshot)

    allocation = place(policy, possible, seed)

    contains(bound_by_a_rule(possible.constraints) & set(allocation.placed[:, 0].tolist()))
    check_allocation(possible, allocation, overload=parameters.get("overload"))
    again = place(policy, possible, seed)
    assert again.placed.tolist() == allocation.placed.tolist()
    assert json.dumps(again.details, allow_nan=False) == json.dumps(allocation.details)


@every_policy
@settings(max_examples=8)
@given(snapshot=contended_snapshots(gangs=True), seed=SEEDS)
def test_constraints_of_nobody_change_nothing(policy, snapshot, seed):
    policy, _ = policy

    plain = place(policy, snapshot, seed)
    empty = place(policy, dataclasses.replace(snapshot, constraints=Constraints()), seed)

    assert empty.placed.tolist() == plain.placed.tolist()
    assert empty.left_out == plain.left_out


@every_policy
@settings(max_examples=12)
@given(snapshot=constrained_snapshots())
def test_a_constraint_is_told_only_where_there_is_room_without_it(policy, snapshot):
    policy, _ = policy
    possible, _ = set_aside_unplaceable(snapshot)

    allocation = place(policy, possible)

    free = possible.after_placing(allocation.placed).free
    shown = (Reason.ANTI_AFFINITY, Reason.AFFINITY, Reason.ZONE_FULL)
    for left in allocation.left_out:
        open_to = possible.eligible[left.request][possible.host_class]
        fits = (free[open_to] >= possible.demand[left.request]).all(axis=1).any()
        if left.reason in shown:
            assert fits
        elif left.reason is Reason.NO_ROOM:
            assert not fits
