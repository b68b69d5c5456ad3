"""First-Fit: demands in order, each VM on the first host where it fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.budget import Budget
from placement.draft import Draft
from placement.gangs import admit
from placement.model import Allocation, IntArray, Snapshot
from placement.overload import room_below
from placement.vm_kinds import hosts_for, vm_kinds, vms_that_fit

#: Hosts that are looked at first; then twice as many, and so on.
_FIRST_LOOK: Final = 64


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


def fill_first_hosts(draft: Draft, request: int, wanted: int, hosts: IntArray) -> IntArray:
    """Place VMs of a request on the first of some hosts; return those that may hold more."""
    demand = draft.snapshot.demand[request]
    width, start = _FIRST_LOOK, 0
    while wanted and start < len(hosts):
        look = hosts[start : start + width]
        fits = vms_that_fit(draft.room[look], demand)
        before = np.cumsum(fits) - fits
        taken = np.clip(wanted - before, 0, fits)
        given = np.flatnonzero(taken)
        rows = np.stack([np.full(len(given), request), look[given], taken[given]], axis=1)
        draft.put_all(rows)
        wanted -= int(taken.sum())
        still = np.flatnonzero(fits > taken)
        if len(still):
            return hosts[start + int(still[0]) :]
        start += width
        width *= 2
    return hosts[start:]
