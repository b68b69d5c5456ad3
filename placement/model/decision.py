"""Decide a round: set impossible requests aside, run the policy, join the results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from placement.model.budget import Budget
from placement.model.priorities import apply_priorities
from placement.model.reasons import never_placeable_reasons
from placement.model.snapshot import Allocation, LeftOut, Policy, Snapshot
from placement.model.spot_pass import SpotPass, decide_spot_and_borrowed


def set_aside_unplaceable(snapshot: Snapshot) -> tuple[Snapshot, tuple[LeftOut, ...]]:
    """Split off the requests that no round could place, with their reasons.

    Returns
    -------
    Snapshot
        The same, but for counts of 0 where a request was set aside.
    tuple of LeftOut
        What was set aside: `NOTHING_ASKED`, `NO_HOST_LARGE_ENOUGH` or
        `NO_ELIGIBLE_HOST`. Together with the policy's own ``left_out`` it adds
        up to the counts of the original snapshot.
    """
    count = snapshot.count.copy()
    never = never_placeable_reasons(snapshot, np.flatnonzero(count))
    left_out = tuple(
        LeftOut(request=request, count=int(count[request]), reason=reason)
        for request, reason in never.items()
    )
    count[list(never)] = 0
    return dataclasses.replace(snapshot, count=count), left_out


def decide(
    snapshot: Snapshot,
    policy: Policy,
    *,
    seed: int,
    budget_units: int | None,
    after: Callable[[str], object] = lambda _: None,
    spot_pass: SpotPass | None = None,
) -> Allocation:
    """Decide a round: set impossible requests aside, run the policy, and apply priorities.

    Last come borrowed VMs, and then spot VMs, if the snapshot has any.

    Parameters
    ----------
    seed : int
        Of the policy's random choices.
    budget_units : int or None
        See `Budget`.
    after : callable
        Called after each step by its name, "set_aside" and "policy": for a caller that
        takes the time.
    spot_pass : SpotPass, optional
        How borrowed and spot VMs are decided; None: by the policy.

    Returns
    -------
    Allocation
        The policy's own, with what was set aside among ``left_out``, which is in
        order of request, count and reason.
    """
    possible, impossible = set_aside_unplaceable(snapshot)
    after("set_aside")
    shared, alike = possible, possible
    last = [each for each in (possible.spot, possible.borrowed) if each is not None]
    if last:
        asks = np.logical_or.reduce([each.asks for each in last])
        of_all = np.where(asks, 0, possible.count)
        shared = alike = dataclasses.replace(possible, count=of_all, spot=None, borrowed=None)
    if shared.priority is not None:
        alike = dataclasses.replace(shared, priority=None)
    allocation = policy.place(alike, np.random.default_rng(seed), Budget(budget_units))
    if shared.priority is not None:
        allocation = apply_priorities(shared, shared.priority, allocation)
    if last:
        allocation = decide_spot_and_borrowed(
            possible,
            allocation,
            spot_pass or SpotPass(policy=policy),
            seed=seed,
            budget_units=budget_units,
        )
    after("policy")
    left_out = sorted(
        [*allocation.left_out, *impossible],
        key=lambda left: (left.request, left.count, left.reason.value),
    )
    return dataclasses.replace(allocation, left_out=tuple(left_out))
