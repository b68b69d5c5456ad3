"""Random-Fit: demands in order, each VM on a fitting host at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.filling.draft import Draft
from placement.filling.gangs import admit
from placement.filling.overload import room_below
from placement.round.arrays import IntArray
from placement.round.budget import Budget
from placement.round.model import Allocation, Snapshot
from placement.round.vm_kinds import hosts_for, vm_kinds, vms_that_fit


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomFit:
    """The rule that knows nothing of shapes, kept to measure the others against."""

    overload: float = 1.0  #: no host is filled above this part of its capacity

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Serve the requests in order; every host that holds a VM is as likely as another."""
        del budget  # nothing is searched
        draft = Draft(snapshot, room_below(snapshot, self.overload))
        kinds = vm_kinds(snapshot)
        # Room only shrinks: a host that holds no VM of a kind never will.
        candidates = [np.flatnonzero(row) for row in hosts_for(snapshot, kinds)]
        for request in np.flatnonzero(snapshot.count).tolist():
            if admit(draft, request):
                kind = int(kinds.of_request[request])
                candidates[kind] = _fill(draft, request, candidates[kind], rng)
        return draft.allocation()


def _fill(draft: Draft, request: int, hosts: IntArray, rng: np.random.Generator) -> IntArray:
    """Scatter a request over some hosts; return those that held more like it.

    Each VM takes one number u of ``rng`` and goes to host floor(u n) of the n
    hosts that hold it then, in order.
    """
    fits = vms_that_fit(draft.room[hosts], draft.snapshot.demand[request])
    hosts, fits = hosts[fits > 0], fits[fits > 0]
    wanted = min(int(draft.remaining[request]), int(fits.sum()))
    open_hosts, places = hosts.tolist(), fits.tolist()
    taken: dict[int, int] = {}
    for number in rng.random(wanted).tolist():
        at = int(number * len(open_hosts))
        host = open_hosts[at]
        taken[host] = taken.get(host, 0) + 1
        places[at] -= 1
        if places[at] == 0:
            del open_hosts[at], places[at]
    rows = [(request, host, count) for host, count in taken.items()]
    draft.put_all(np.array(rows, dtype=np.int64).reshape(-1, 3))
    return hosts
