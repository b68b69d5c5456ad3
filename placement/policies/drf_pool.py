"""Pooled DRF packed onto hosts: the fair counts first, and the rest after them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.fairness.targets import fair_targets, whole_targets
from placement.model.budget import Budget
from placement.model.snapshot import Allocation, Snapshot
from placement.model.vm_kinds import hosts_for, vm_kinds
from placement.packing.draft import Draft
from placement.packing.drfh_fill import fill_by_first_fit
from placement.packing.first_fit_fill import fill_first_hosts
from placement.packing.gangs import admit_request, fill_with_gangs
from placement.packing.overload import room_below_threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class DrfPool:
    """DRF as if all hosts were one, in whole VMs, packed by First-Fit (derived).

    Notes
    -----
    Each request is offered the floor of its fair target (`fair_targets`), in
    order of requests, on the first hosts where it fits. What remains, of that
    and of all requests, is placed by First-Fit DRFH. A gang is offered its
    floor where that is enough for all of it that must come at once.

    References
    ----------
    The targets: Ghodsi et al., "Dominant Resource Fairness", NSDI 2011.
    """

    overload: float = 1.0  #: no host is filled above this part of its capacity

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Place the fair targets of pooled DRF, then every other VM that fits."""
        del rng, budget  # nothing is random, nothing is searched
        draft = Draft(snapshot, room_below_threshold(snapshot, self.overload))
        kinds = vm_kinds(snapshot)
        offered = whole_targets(fair_targets(snapshot))
        candidates = [np.flatnonzero(row) for row in hosts_for(snapshot, kinds)]
        for request in np.flatnonzero(offered).tolist():
            enough = offered[request] >= snapshot.min_count[request]
            if enough and admit_request(draft, request):
                kind = int(kinds.of_request[request])
                candidates[kind] = fill_first_hosts(
                    draft, request, int(offered[request]), candidates[kind]
                )
        fill_with_gangs(draft, lambda: fill_by_first_fit(draft, kinds))
        return draft.allocation()
