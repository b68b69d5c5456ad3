"""Best-Fit DRFH: whole VMs, one at a time, to the tenant of least share, on the best host."""

from __future__ import annotations

import numpy as np

from placement.fairness.targets import fair_targets
from placement.filling.draft import Draft
from placement.filling.gangs import fill_with_gangs
from placement.filling.in_turn import fill_by_best_fit
from placement.filling.overload import room_below
from placement.round.budget import Budget
from placement.round.model import Allocation, Snapshot
from placement.round.vm_kinds import vm_kinds


class BestFitDrfh:
    """Progressive filling with Best-Fit; also what decides a round when its policy cannot.

    Parameters
    ----------
    overload : float
        No host is filled above this part of its capacity in any resource.

    Notes
    -----
    Repeats: the tenant of least dominant share per weight takes one VM of its
    first request that still fits somewhere, on the fitting host of least H
    (`placement.filling.buckets.mismatch`). Among equal shares the tenant whose request
    stands first, among equal hosts the first. A request that fits nowhere
    leaves the round; its tenant goes on with the next.

    References
    ----------
    Wang, Li, Liang, INFOCOM 2014, section V-B; TPDS 2015, section 5.
    """

    def __init__(self, *, overload: float = 1.0) -> None:
        self._overload = overload

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Fill the hosts; nothing that fits below the threshold is left out."""
        del rng, budget  # nothing is random, nothing is searched
        draft = Draft(snapshot, room_below(snapshot, self._overload))
        kinds = vm_kinds(snapshot)
        fill_with_gangs(
            draft, lambda: fill_by_best_fit(draft, kinds), lambda: fair_targets(snapshot)
        )
        return draft.allocation()
