"""The loops that most policies share: requests in order, or tenants in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from placement.model.arrays import IntArray
from placement.model.budget import Budget
from placement.model.snapshot import Allocation, Snapshot
from placement.model.vm_kinds import VmKinds, hosts_for, vm_kinds
from placement.packing.draft import Draft
from placement.packing.gangs import admit_request, fill_with_gangs
from placement.packing.overload import room_below_threshold


@dataclass(frozen=True, slots=True)
class RequestOrderPolicy:
    """A policy that places each request whole before the next; it is not fair."""

    #: places what remains of a request on some hosts, shape (L,), in order; returns those of
    #: them that may hold another VM of the same kind
    rule: Callable[[Draft, int, IntArray, np.random.Generator], IntArray]
    overload: float = 1.0  #: no host is filled above this part of its capacity

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Place the requests one after another by the rule, gangs whole."""
        del budget  # nothing is searched
        draft = Draft(snapshot, room_below_threshold(snapshot, self.overload))
        kinds = vm_kinds(snapshot)
        # Room only shrinks: a host that holds no VM of a kind never will.
        candidates = [np.flatnonzero(row) for row in hosts_for(snapshot, kinds)]
        for request in np.flatnonzero(snapshot.count).tolist():
            if admit_request(draft, request):
                kind = int(kinds.of_request[request])
                candidates[kind] = self.rule(draft, request, candidates[kind], rng)
        return draft.allocation()


@dataclass(frozen=True, slots=True)
class ProgressiveFillingPolicy:
    """A policy that gives one VM at a time to the tenant that a rule ranks lowest; gangs whole."""

    #: places what remains of single VMs
    rule: Callable[[Draft, VmKinds, np.random.Generator], None]
    overload: float = 1.0  #: no host is filled above this part of its capacity

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Fill the hosts VM by VM by the rule; every VM that fits below the threshold is placed."""
        del budget  # nothing is searched
        draft = Draft(snapshot, room_below_threshold(snapshot, self.overload))
        kinds = vm_kinds(snapshot)
        fill_with_gangs(draft, lambda: self.rule(draft, kinds, rng))
        return draft.allocation()
