"""First-Fit DRFH: the tenant of least share is next, its VM goes to the first host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.budget import Budget
from placement.draft import Draft
from placement.first_hosts import FirstHosts
from placement.gangs import fill_with_gangs
from placement.model import Allocation, Snapshot
from placement.overload import room_below
from placement.progressive import fill_in_turn
from placement.targets import fair_targets
from placement.vm_kinds import VmKinds, vm_kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFitDrfh:
    """Progressive filling with First-Fit.

    Notes
    -----
    Who is next: see `placement.progressive.fill_in_turn`. Its VM goes to the
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


def fill_by_first_fit(draft: Draft, kinds: VmKinds) -> None:
    """Place what remains in ``draft`` by First-Fit DRFH, gangs whole, within its room."""
    snapshot = draft.snapshot

    def rule() -> FirstHosts:
        return FirstHosts(draft.room, snapshot.host_class, kinds)

    fill_with_gangs(draft, lambda: fill_in_turn(draft, kinds, rule), lambda: fair_targets(snapshot))
