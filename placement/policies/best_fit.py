"""Best-Fit: requests in order; each VM goes to the host that is left with the least room."""

from __future__ import annotations

import numpy as np

from placement.fairness.levels import levels_in_steps
from placement.model.arrays import FloatArray, IntArray
from placement.model.vm_kinds import vms_that_fit
from placement.packing.draft import Draft


def best_fit(draft: Draft, request: int, hosts: IntArray, rng: np.random.Generator) -> IntArray:
    """Place a request on the best of some hosts, shape (X,): the classical bin packing rule.

    Notes
    -----
    A host is left with the sum over resources of ``(free - demand) / capacity``,
    resources that it does not offer apart; sums in equal steps (`levels_in_steps`) tie,
    and ties go to the first host (derived).

    A host that takes a VM is left with less than before and the others with
    what they had, so it takes the next one too, until it is full: hosts are
    filled one after another in order of what is left.
    """
    del rng  # nothing is random
    snapshot, demand = draft.snapshot, draft.snapshot.demand[request]
    fits = vms_that_fit(draft.room[hosts], demand)
    hosts, fits = hosts[fits > 0], fits[fits > 0]
    counted = snapshot.resource_count
    left = remaining_fractions(
        (draft.free[hosts] - demand)[:, :counted], snapshot.capacity[hosts, :counted]
    )
    wanted = int(draft.remaining[request])
    rows: list[tuple[int, int, int]] = []
    while wanted and len(rows) < len(hosts):
        best = int(left.argmin())
        taken = min(wanted, int(fits[best]))
        rows.append((request, int(hosts[best]), taken))
        wanted -= taken
        left[best] = np.inf
    draft.put_all(np.array(rows, dtype=np.int64).reshape(-1, 3))
    return hosts


def remaining_fractions(free: IntArray, capacity: IntArray) -> FloatArray:
    """Return how much of each host is free: the sum of its resources' fractions, in steps.

    The shape is (H, R) to (H,).
    """
    left = np.zeros(len(free))
    for resource in range(free.shape[1]):
        offered = capacity[:, resource]
        left += np.divide(free[:, resource], offered, out=np.zeros(len(free)), where=offered > 0)
    return levels_in_steps(left).astype(np.float64)
