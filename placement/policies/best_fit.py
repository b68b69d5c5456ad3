"""Best-Fit: demands in order, each VM on the fitting host that is left with the least."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.fairness.shares import SHARE_TOLERANCE
from placement.filling.draft import Draft
from placement.filling.gangs import admit
from placement.filling.overload import room_below
from placement.round.arrays import FloatArray, IntArray
from placement.round.budget import Budget
from placement.round.model import Allocation, Snapshot
from placement.round.vm_kinds import hosts_for, vm_kinds, vms_that_fit


@dataclass(frozen=True, slots=True, kw_only=True)
class BestFit:
    """The classical bin packing rule. It is not fair.

    Notes
    -----
    A host is left with the sum over resources of ``(free - demand) / capacity``,
    resources that it does not offer apart; sums within `SHARE_TOLERANCE` tie,
    and the first host of equals takes the VM (derived).
    """

    overload: float = 1.0  #: no host is filled above this part of its capacity

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Serve the requests in order, each whole before the next."""
        del rng, budget  # nothing is random, nothing is searched
        draft = Draft(snapshot, room_below(snapshot, self.overload))
        kinds = vm_kinds(snapshot)
        # Room only shrinks: a host that holds no VM of a kind never will.
        candidates = [np.flatnonzero(row) for row in hosts_for(snapshot, kinds)]
        for request in np.flatnonzero(snapshot.count).tolist():
            if admit(draft, request):
                kind = int(kinds.of_request[request])
                candidates[kind] = _fill(draft, request, candidates[kind])
        return draft.allocation()


def _fill(draft: Draft, request: int, hosts: IntArray) -> IntArray:
    """Place a request on the best of some hosts; return those that held more like it.

    A host that takes a VM is left with less than before and the others with
    what they had, so it takes the next one too, until it is full: hosts are
    filled one after another in order of what is left.
    """
    snapshot, demand = draft.snapshot, draft.snapshot.demand[request]
    fits = vms_that_fit(draft.room[hosts], demand)
    hosts, fits = hosts[fits > 0], fits[fits > 0]
    counted = snapshot.counted
    left = left_with((draft.free[hosts] - demand)[:, :counted], snapshot.capacity[hosts, :counted])
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


def left_with(free: IntArray, capacity: IntArray) -> FloatArray:
    """Return the sum of fractions of capacity that are free, (H, R) to (H,), in steps."""
    left = np.zeros(len(free))
    for resource in range(free.shape[1]):
        offered = capacity[:, resource]
        left += np.divide(free[:, resource], offered, out=np.zeros(len(free)), where=offered > 0)
    return np.rint(left / SHARE_TOLERANCE)
