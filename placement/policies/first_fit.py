"""First-Fit: demands in order, each VM on the first host where it fits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.filling.draft import Draft
from placement.filling.gangs import admit
from placement.filling.in_order import fill_first_hosts
from placement.filling.overload import room_below
from placement.round.budget import Budget
from placement.round.model import Allocation, Snapshot
from placement.round.vm_kinds import hosts_for, vm_kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFit:
    """The plainest policy, kept to measure the others against. It is not fair."""

    overload: float = 1.0  #: no host is filled above this part of its capacity

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Serve the requests in order, each whole before the next, hosts in order."""
        del rng, budget  # nothing is random, nothing is searched
        draft = Draft(snapshot, room_below(snapshot, self.overload))
        kinds = vm_kinds(snapshot)
        # Room only shrinks: a host that holds no VM of a kind never will.
        candidates = [np.flatnonzero(row) for row in hosts_for(snapshot, kinds)]
        for request in np.flatnonzero(snapshot.count).tolist():
            if not admit(draft, request):
                continue
            kind = int(kinds.of_request[request])
            wanted = int(draft.remaining[request])
            candidates[kind] = fill_first_hosts(draft, request, wanted, candidates[kind])
        return draft.allocation()
