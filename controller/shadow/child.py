"""Decides a round's inputs by a second policy, and compares the decision with the round's.

Runs in a child process of its own (`controller.control_center.policy_child`), on the bytes that the
round was decided on.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from controller.rounds.inputs import RoundInputs, decode_inputs, parse_allocation
from controller.rounds.policy_process import ShadowRun
from placement import (
    Allocation,
    FloatArray,
    Snapshot,
    dominant_shares,
    fair_distance,
    target_shares,
)
from placement.catalog.zone_policies import ELSEWHERE, RoundPolicies, ZoneInputs, build_zone_inputs
from placement.model.spot import ordinary_snapshot

#: Maximum number of differing requests in the answer.
MAX_REQUESTS: Final = 200


def decide_in_shadow(shadow: ShadowRun) -> dict[str, Any]:
    """Decide by the second policy; return decision and comparison, as `NewShadowRound` stores them.

    Raises
    ------
    PlacementError
        If the policy fails, or its allocation is not feasible.
    """
    inputs = decode_inputs(shadow.inputs)
    snapshot = inputs.snapshot
    zones = _shadow_zones(inputs, shadow)
    its = shadow.policy
    who = RoundPolicies(policy=its.policy, parameters=its.parameters, zones=zones)
    started = time.perf_counter()
    theirs = inputs.decide_with(who)
    seconds = time.perf_counter() - started
    who.check(snapshot, theirs)
    ours = parse_allocation(shadow.outcome)
    targets = target_shares(ordinary_snapshot(snapshot))
    return {
        "seconds": seconds,
        "cut": theirs.cut,
        "decided": _decision_measures(snapshot, theirs, targets, zones),
        "first": _decision_measures(snapshot, ours, targets, inputs.zones),
        "agreed": count_agreements(ours, theirs),
        "shares": _share_rows(inputs, ours, theirs),
        "requests": _request_rows(inputs, ours, theirs),
    }


def count_agreements(one: Allocation, other: Allocation) -> int:
    """Return the number of VMs that two allocations place on the same host."""
    return sum(_vms_on_same_hosts(one, other).values())


def _vms_on_same_hosts(one: Allocation, other: Allocation) -> Counter[int]:
    """Return the number of VMs of each request that two allocations place on the same host."""
    counts: Counter[tuple[int, int]] = Counter()
    for request, host, count in one.placed.tolist():
        counts[request, host] += count
    found: Counter[int] = Counter()
    for request, host, count in other.placed.tolist():
        both = min(count, counts[request, host])
        counts[request, host] -= both
        found[request] += both
    return found


def _shadow_zones(inputs: RoundInputs, shadow: ShadowRun) -> tuple[ZoneInputs, ...]:
    """Return the policies by zone: the round's, with the second policy in place of the first."""
    second = shadow.policy
    if shadow.zones is not None:
        zone_of_host = [shadow.zone_of.get(key) for key, _ in inputs.names.hosts]
        return build_zone_inputs(zone_of_host, shadow.zones, second)
    return tuple(
        dataclasses.replace(zone, policy=second.policy, parameters=second.parameters)
        if zone.name == ELSEWHERE
        else zone
        for zone in inputs.zones
    )


def _decision_measures(
    snapshot: Snapshot, allocation: Allocation, targets: FloatArray, zones: Sequence[ZoneInputs]
) -> dict[str, Any]:
    """Return what a decision placed and used, and its distance from fair shares."""
    held = snapshot.after_placing(allocation.placed).held
    in_use = held.sum(axis=0)
    return {
        "placed": int(allocation.placed[:, 2].sum()),
        "left_out": sum(left.count for left in allocation.left_out),
        "used": {
            name: float(in_use[r] / snapshot.pool[r])
            for r, name in enumerate(snapshot.resources)
            if snapshot.pool[r] > 0
        },
        "fair_distance": fair_distance(dominant_shares(held, snapshot.pool), targets),
        "zones": {zone.name: zone.policy for zone in zones},
    }


def _share_rows(inputs: RoundInputs, ours: Allocation, theirs: Allocation) -> list[dict[str, Any]]:
    """Return the dominant shares by both policies of tenants for whom either placed something."""
    snapshot = inputs.snapshot
    before, first, second = (
        dominant_shares(held, snapshot.pool)
        for held in (
            snapshot.held,
            snapshot.after_placing(ours.placed).held,
            snapshot.after_placing(theirs.placed).held,
        )
    )
    concerned = np.flatnonzero((first != before) | (second != before))
    requested = _sums_by_tenant(snapshot, enumerate(snapshot.count.tolist()))
    placed_first, placed_second = (
        _sums_by_tenant(snapshot, ((request, count) for request, _, count in each.placed.tolist()))
        for each in (ours, theirs)
    )
    on_same_host = _sums_by_tenant(snapshot, _vms_on_same_hosts(ours, theirs).items())
    return [
        {
            "tenant": inputs.names.tenants[index][1],
            "before": float(before[index]),
            "first": float(first[index]),
            "second": float(second[index]),
            "asked": requested[index],
            "placed_first": placed_first[index],
            "placed_second": placed_second[index],
            "agreed": on_same_host[index],
        }
        for index in concerned.tolist()
    ]


def _request_rows(
    inputs: RoundInputs, ours: Allocation, theirs: Allocation
) -> list[dict[str, Any]]:
    """Return the requests that the policies served differently, the largest difference first."""
    first, second = (_vms_by_request(each) for each in (ours, theirs))
    agreed = _vms_on_same_hosts(ours, theirs)
    differ = {
        request: abs(first[request] - second[request])
        for request in sorted(first.keys() | second.keys())
        if not first[request] == second[request] == agreed[request]
    }
    largest = sorted(differ, key=lambda request: (-differ[request], request))[:MAX_REQUESTS]
    named = inputs.names.requests
    return [
        {
            "id": named[request][0],
            "name": named[request][1],
            "vm_type": named[request][2],
            "tenant": inputs.names.tenants[inputs.snapshot.tenant[request]][1],
            "asked": int(inputs.snapshot.count[request]),
            "placed_first": first[request],
            "placed_second": second[request],
            "agreed": agreed[request],
        }
        for request in largest
    ]


def _vms_by_request(allocation: Allocation) -> Counter[int]:
    found: Counter[int] = Counter()
    for request, _, count in allocation.placed.tolist():
        found[request] += count
    return found


def _sums_by_tenant(snapshot: Snapshot, requests: Iterable[tuple[int, int]]) -> Counter[int]:
    """Sum counts of requests by tenant."""
    found: Counter[int] = Counter()
    for request, count in requests:
        found[int(snapshot.tenant[request])] += count
    return found
