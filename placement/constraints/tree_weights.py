"""Trees of tenants for policies that know only weights."""

from __future__ import annotations

import dataclasses
from typing import Final

import numpy as np

from placement.fairness.memory import count_past_as_held
from placement.fairness.shares import fractions_of_pool
from placement.mechanisms.hierarchies.leaves import Leaves
from placement.mechanisms.hierarchies.staged_mch import fill_in_stages
from placement.model.arrays import FloatArray
from placement.model.budget import Budget
from placement.model.snapshot import Allocation, Policy, Snapshot

#: The part of the tenants that may be served before weights are recomputed:
#: a round has no time for a stage for each of thousands.
_AT_ONCE: Final = 0.01
#: Weights may differ so much and no more: what is less would never be served.
_MIN_WEIGHT: Final = 1e-9


class TreeWeightsPolicy:
    """A policy that, given a tree of tenants, decides with the weights of staged MCH."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Make the tree flat and let the policy decide."""
        if snapshot.tree is None:
            return self._policy.place(snapshot, rng, budget)
        flat = snapshot_without_tree(snapshot)
        allocation = self._policy.place(flat, rng, budget)
        weights = {"tenant_weights": flat.weight.tolist()}
        return dataclasses.replace(allocation, details={**allocation.details, **weights})


def snapshot_without_tree(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without its tree of tenants, with weights in its place.

    Parameters
    ----------
    snapshot : Snapshot
        A snapshot without a tree is returned unchanged.

    Returns
    -------
    Snapshot
        No tree; ``weight`` is the share of the pool that each tenant could claim
        by staged MCH over the tenants with demand or holdings, relative to the largest:
        where all of them rise to equal shares per weight, they stand where staged
        MCH puts them.

    Notes
    -----
    Derived. A tenant's task is its whole demand, in its proportions; a
    tenant that demands nothing but holds something counts among its siblings
    with the proportions of what it holds.
    """
    if snapshot.tree is None:
        return snapshot
    pool = snapshot.pool
    requested = np.zeros(snapshot.held.shape)
    fractions = fractions_of_pool(snapshot.demand, pool)
    np.add.at(requested, snapshot.tenant, fractions * snapshot.count[:, None])
    held = fractions_of_pool(count_past_as_held(snapshot).held, pool)
    wanted = requested.max(axis=1, initial=0.0)
    is_wanted = wanted > 0
    vector = np.where(is_wanted[:, None], requested, held)
    size = vector.max(axis=1, initial=0.0)
    shape = np.divide(vector, size[:, None], out=np.zeros_like(vector), where=size[:, None] > 0)
    leaves = Leaves(
        tree=snapshot.tree,
        shape=shape,
        unit=wanted,
        held=held,
        room=fractions_of_pool(snapshot.free.sum(axis=0), pool),
        active=is_wanted,
    )
    filling = fill_in_stages(leaves, wanted, counted=size > 0, at_once=_AT_ONCE)
    return dataclasses.replace(snapshot, weight=_claim_weights(filling.claims), tree=None)


def _claim_weights(claims: FloatArray) -> FloatArray:
    """Return the tenants' claims on the pool as weights above 0, relative to the largest."""
    largest = claims.max(initial=0.0)
    if largest <= 0:
        return np.ones(len(claims))
    weights: FloatArray = np.maximum(claims / largest, _MIN_WEIGHT)
    return weights
