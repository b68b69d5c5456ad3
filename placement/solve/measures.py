"""Measures of an allocation for operators: shares, fairness and utilization bounds."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from placement.errors import SolverError
from placement.fairness.shares import fair_distance, fractions_of_pool
from placement.metrics.bound import allocation_bound
from placement.metrics.fair_holdings import target_holdings
from placement.model.snapshot import Allocation, Snapshot
from placement.model.vm_kinds import vm_kinds
from placement.solve.problem import WholeVmProblem
from placement.solve.problem.tenant_trees import sums_over_groups

#: Hosts' distinct free vectors × kinds of VM up to which the bound is reported by default.
_MAX_PAIRS: Final = 50_000


def allocation_measures(
    whole: WholeVmProblem, allocation: Allocation, *, always: bool
) -> dict[str, Any]:
    """Return measures of an allocation for `fuga solve`, as JSON values.

    Parameters
    ----------
    always : bool
        Report the bound however long its linear programs take.

    Returns
    -------
    dict
        ``shares``: of each tenant and group the dominant share ``before`` and
        ``after``, and the one that would be ``fair`` after (`target_holdings`).
        ``fair_distance``: of the tenants that are no groups, see `fair_distance`;
        null where no tenant is due anything. ``utilization_bound``: of each
        resource the part that could be in use at most, if no other counted
        (`allocation_bound`); null where that was not computed.
    """
    snapshot, problem = whole.snapshot, whole.problem
    holdings = {
        "before": fractions_of_pool(snapshot.held, snapshot.pool),
        "after": fractions_of_pool(snapshot.after_placing(allocation.placed).held, snapshot.pool),
        "fair": target_holdings(snapshot),
    }
    shares = {
        when: sums_over_groups(problem, whole.tenants, each).max(axis=1, initial=0.0).tolist()
        for when, each in holdings.items()
    }
    alone = {when: each.max(axis=1, initial=0.0) for when, each in holdings.items()}
    return {
        "shares": {
            tenant.name: {when: each[index] for when, each in shares.items()}
            for index, tenant in enumerate(problem.tenants)
        },
        "fair_distance": fair_distance(alone["after"], alone["fair"]),
        "utilization_bound": _utilization_bounds(snapshot, always=always),
    }


def _utilization_bounds(snapshot: Snapshot, *, always: bool) -> dict[str, float | None]:
    """Return the most of each resource that could be in use; None where it was not computed."""
    bounds: dict[str, float | None] = dict.fromkeys(snapshot.resources)
    vectors = len(np.unique(snapshot.free, axis=0))
    if not always and vectors * len(vm_kinds(snapshot)) > _MAX_PAIRS:
        return bounds
    in_use = (snapshot.capacity - snapshot.free).sum(axis=0)
    for r, name in enumerate(snapshot.resources):
        pool = int(snapshot.pool[r])
        if pool == 0:
            bounds[name] = 0.0
            continue
        try:
            bounds[name] = min((int(in_use[r]) + allocation_bound(snapshot, r)) / pool, 1.0)
        except SolverError:  # amounts too far apart for a bound: nothing is decided by it
            continue
    return bounds
