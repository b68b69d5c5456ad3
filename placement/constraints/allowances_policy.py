"""Keep a policy within quotas: the allowances of tenants and groups.

The policy is offered as many VMs of each request as are within the allowances, and
decides on these. What has no room on any host takes no part of one, and what
the policy could not place leaves its part to others, which are offered in a
further pass: a VM that fits nowhere does not keep a smaller one waiting.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from placement.constraints.allowances import RemainingAllowances, vms_within_allowances
from placement.constraints.zones import close_other_hosts
from placement.model.arrays import IntArray
from placement.model.budget import Budget
from placement.model.details import Details, merge_details
from placement.model.reasons import unplaced_vms
from placement.model.row_groups import join_rows
from placement.model.snapshot import Allocation, LeftOut, Policy, Reason, Snapshot
from placement.model.vm_kinds import max_vms_per_request

#: A pass is a decision of the policy. Rarely more than two are needed.
_MAX_PASSES: Final = 8


class AllowancesPolicy:
    """Wrap a policy to keep the quota allowances of its snapshots."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Run the policy on the VMs that are within the allowances.

        The VMs beyond the allowances get `Reason.QUOTA`. Hosts that the policy holds back in one
        pass stay closed in the next.
        """
        contested = np.zeros(len(snapshot.count), dtype=np.bool_)
        contested[list(RemainingAllowances(snapshot).requests_over_allowance(snapshot.count))] = (
            True
        )
        if not contested.any():
            return self.policy.place(dataclasses.replace(snapshot, allowances=()), rng, budget)
        rest, open_ = snapshot, snapshot
        tried = np.zeros(len(snapshot.count), dtype=np.bool_)
        passes: list[Allocation] = []
        while len(passes) < _MAX_PASSES:
            may_fit = np.where(contested, _counts_with_room(open_), open_.count)
            wanted = np.where(tried, 0, may_fit)
            within = vms_within_allowances(rest, wanted)
            if passes and not within.any():
                break
            offered = within if passes else within + _counts_without_room(rest, wanted, within)
            allocation = self.policy.place(
                dataclasses.replace(open_, count=offered, allowances=()), rng, budget
            )
            passes.append(allocation)
            rest, before = rest.after_placing(allocation.placed), rest
            given = before.count - rest.count
            tried |= given < offered
            open_ = _close_held_hosts(open_.after_placing(allocation.placed), allocation)
            if not (given < within).any() or (within == wanted).all():
                break  # no allowance has anything left for another request
        return Allocation(
            placed=join_rows(allocation.placed for allocation in passes),
            left_out=_unplaced_vms(rest, passes),
            work=max(allocation.work for allocation in passes),
            cut=any(allocation.cut for allocation in passes),
            details=_merged_details(passes),
        )


def _counts_with_room(snapshot: Snapshot) -> IntArray:
    """Return how many VMs of each request the hosts can hold, other requests aside, (Q,)."""
    fit = max_vms_per_request(snapshot, snapshot.free)
    return np.where(fit < np.minimum(snapshot.min_count, snapshot.count), 0, fit)


def _counts_without_room(snapshot: Snapshot, wanted: IntArray, within: IntArray) -> IntArray:
    """Return the VMs of each request that quotas allow but that no host has room for, (Q,).

    No policy can place these VMs, so they use no allowance; the policy may reserve hosts for
    them.
    """
    rooms = RemainingAllowances(snapshot)
    for request in np.flatnonzero(within).tolist():
        rooms.take(request, int(within[request]))
    found = np.zeros_like(within)
    for request in np.flatnonzero((wanted == 0) & (snapshot.count > 0)).tolist():
        fit = rooms.fit(request, int(snapshot.count[request]))
        if fit >= min(snapshot.min_count[request], snapshot.count[request]):
            found[request] = fit
    return found


def _close_held_hosts(snapshot: Snapshot, allocation: Allocation) -> Snapshot:
    """Close the hosts that the policy reserved for requests that did not fit."""
    held = [host for _, host in Details.of(allocation).holding]
    if not held:
        return snapshot
    others = np.setdiff1d(np.arange(len(snapshot.capacity)), held)
    return close_other_hosts(snapshot, others)


def _unplaced_vms(rest: Snapshot, passes: Sequence[Allocation]) -> tuple[LeftOut, ...]:
    """Return the unplaced VMs with their reasons: the quota, or the policy's own reason."""
    rooms = RemainingAllowances(rest)
    by_request: dict[int, list[LeftOut]] = {}
    for allocation in passes:
        for left in allocation.left_out:
            by_request.setdefault(left.request, []).append(left)
    parts: list[LeftOut] = []
    unexplained = np.zeros_like(rest.count)
    for request in np.flatnonzero(rest.count).tolist():
        missing = int(rest.count[request])
        within = rooms.fit(request, missing)
        if within < min(missing, int(rest.min_count[request])):
            within = 0  # of a gang
        if within < missing:
            beyond = missing - within
            parts.append(LeftOut(request=request, count=beyond, reason=Reason.QUOTA))
        for left in by_request.get(request, ()):
            if count := min(left.count, within):
                parts.append(dataclasses.replace(left, count=count))
                within -= count
        unexplained[request] = within
    parts += unplaced_vms(rest, unexplained, rest.free)
    merged: dict[tuple[int, Reason], int] = {}
    for part in parts:
        merged[part.request, part.reason] = merged.get((part.request, part.reason), 0) + part.count
    return tuple(
        LeftOut(request=request, count=count, reason=reason)
        for (request, reason), count in merged.items()
    )


def _merged_details(passes: Sequence[Allocation]) -> dict[str, Any]:
    """Return the details of the first pass, with the explanations of later passes merged in."""
    first, *others = (dict(allocation.details) for allocation in passes)
    if not others:
        return first
    together = merge_details([Details.of(allocation) for allocation in passes])
    return {**first, "passes": others, **together.document()}
