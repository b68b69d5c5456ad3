"""First-Fit DRFH: the tenant of least share is next, its VM goes to the first host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.filling.draft import Draft
from placement.filling.in_turn import fill_by_first_fit
from placement.filling.overload import room_below
from placement.round.budget import Budget
from placement.round.model import Allocation, Snapshot
from placement.round.vm_kinds import vm_kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFitDrfh:
    """Progressive filling with First-Fit.

    Notes
    -----
    Who is next: see `placement.filling.progressive.fill_in_turn`. Its VM goes to the
    first host, in order, where it fits.

    References
    ----------
    Wang, Li, Liang, "Dominant Resource Fairness in Cloud Computing Systems with
    Heterogeneous Servers", INFOCOM 2014, section V-B; TPDS 2015, section 5.
    """

    overload: float = 1.0  #: no host is filled above this part of its capacity

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Fill the hosts; nothing that fits is left out."""
        del rng, budget  # nothing is random, nothing is searched
        draft = Draft(snapshot, room_below(snapshot, self.overload))
        fill_by_first_fit(draft, vm_kinds(snapshot))
        return draft.allocation()
