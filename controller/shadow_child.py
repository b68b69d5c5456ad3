"""What a second policy would have decided on a round's inputs, and how that compares.

Runs in a child process of its own (`controller.policy_child`), on the bytes that the round
was decided on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

import placement
from controller.round_inputs import RoundInputs, allocation_of, decode_inputs
from placement import (
    Allocation,
    FloatArray,
    Snapshot,
    check_allocation,
    dominant_shares,
    fair_distance,
    held_after,
    policy_by_name,
    target_shares,
)


def decide_beside(
    data: bytes, outcome: Mapping[str, Any], policy: str, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what `NewShadowRound` tells of a decision, in plain values.

    Parameters
    ----------
    data : bytes
        Inputs of the round, of which policy, parameters and zones are not used.
    outcome : dict
        What the round decided on them.

    Raises
    ------
    PlacementError
        If the policy fails, or decides what cannot be.
    """
    inputs = decode_inputs(data)
    snapshot = inputs.snapshot
    second = policy_by_name(policy, parameters)
    started = time.perf_counter()
    theirs = placement.decide(snapshot, second, seed=inputs.seed, budget_units=inputs.budget_units)
    seconds = time.perf_counter() - started
    check_allocation(snapshot, theirs)
    ours = allocation_of(outcome)
    targets = target_shares(snapshot)
    return {
        "seconds": seconds,
        "cut": theirs.cut,
        "decided": _measured(snapshot, theirs, targets),
        "first": _measured(snapshot, ours, targets),
        "agreed": agreed(ours, theirs),
        "shares": _shares(inputs, ours, theirs),
    }


def agreed(one: Allocation, other: Allocation) -> int:
    """Return how many VMs two allocations place on the same host."""
    counts: dict[tuple[int, int], int] = {}
    for request, host, count in one.placed.tolist():
        counts[request, host] = counts.get((request, host), 0) + count
    total = 0
    for request, host, count in other.placed.tolist():
        both = min(count, counts.get((request, host), 0))
        counts[request, host] = counts.get((request, host), 0) - both
        total += both
    return total


def _measured(snapshot: Snapshot, allocation: Allocation, targets: FloatArray) -> dict[str, Any]:
    held = held_after(snapshot, allocation)
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
    }


def _shares(inputs: RoundInputs, ours: Allocation, theirs: Allocation) -> list[dict[str, Any]]:
    """Return shares of the tenants for whom one of both placed something."""
    snapshot = inputs.snapshot
    before, first, second = (
        dominant_shares(held, snapshot.pool)
        for held in (
            snapshot.held,
            held_after(snapshot, ours),
            held_after(snapshot, theirs),
        )
    )
    concerned = np.flatnonzero((first != before) | (second != before))
    return [
        {
            "tenant": inputs.names.tenants[index][1],
            "before": float(before[index]),
            "first": float(first[index]),
            "second": float(second[index]),
        }
        for index in concerned.tolist()
    ]
