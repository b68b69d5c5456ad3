"""Fair holdings of tenants after a round."""

from __future__ import annotations

import numpy as np

from placement.constraints.allowances import snapshot_within_allowances
from placement.constraints.tree_weights import snapshot_without_tree
from placement.fairness.memory import count_past_as_held
from placement.fairness.shares import fractions_of_pool
from placement.fairness.targets import fair_targets
from placement.model.arrays import FloatArray
from placement.model.snapshot import Snapshot
from placement.model.tenant_tree import TenantTree


def fair_vms(snapshot: Snapshot) -> FloatArray:
    """Return how many VMs of each request would be fair in this round, shape (Q,).

    A tree of tenants counts by the weights that replace it; no tenant's target is
    beyond an allowance. A memory of past holdings counts as in the round itself.
    """
    within = snapshot_within_allowances(snapshot)
    return fair_targets(count_past_as_held(snapshot_without_tree(within)))


def target_holdings(snapshot: Snapshot, targets: FloatArray | None = None) -> FloatArray:
    """Return the fair holdings of each tenant after this round, in parts of the pool, (N, R).

    What a tenant holds and its requests' fair targets together. ``targets`` spares
    reckoning `fair_vms` again.
    """
    targets = fair_vms(snapshot) if targets is None else targets
    holdings = fractions_of_pool(snapshot.held, snapshot.pool)
    demand = fractions_of_pool(snapshot.demand, snapshot.pool)
    np.add.at(holdings, snapshot.tenant, demand * targets[:, None])
    return holdings


def target_shares(snapshot: Snapshot) -> FloatArray:
    """Return the dominant share that would be fair after this round, shape (N,).

    Shares are of the whole pool and not weighted, like `shares_after`; see `target_holdings`.
    """
    shares: FloatArray = target_holdings(snapshot).max(axis=1, initial=0.0)
    return shares


def shares_in_tree(tree: TenantTree, holdings: FloatArray) -> FloatArray:
    """Return the dominant share of every tenant and group of a tree, (nodes,).

    Parameters
    ----------
    holdings : ndarray of float64, shape (N, R)
        Amounts that each tenant holds, in parts of the pool; a group holds the sum of its tenants.
    """
    shares: FloatArray = tree.sums(holdings).max(axis=1, initial=0.0)
    return shares
