"""DRFH by two choices: of two random hosts the better one takes the VM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from placement.model.arrays import FloatArray, IntArray
from placement.model.snapshot import Snapshot
from placement.model.vm_kinds import VmKinds, hosts_for
from placement.packing.buckets import mismatch
from placement.packing.draft import Draft
from placement.packing.progressive_filling import fill_in_turn

#: Random numbers that are drawn at once.
_DRAWN: Final = 4096


def two_choices_drfh(draft: Draft, kinds: VmKinds, rng: np.random.Generator) -> None:
    """Fill progressively, probing two random hosts for each VM; all probes come from ``rng``.

    Notes
    -----
    The order: see `placement.packing.progressive_filling.fill_in_turn`. Two different hosts
    are drawn of those that the VM may use (one where there is one only); of
    those that hold it the one of lower H takes it (`placement.packing.buckets.mismatch`);
    ties go to the host drawn first. Where neither does, the host of least H of all
    takes it; ties go to the first (derived). So nothing that fits is left out.

    References
    ----------
    Wang, Li, Liang, "Multi-Resource Fair Allocation in Heterogeneous Cloud
    Computing Systems", TPDS 2015, section 5.
    """
    fill_in_turn(draft, kinds, lambda: TwoChoices(draft.room, draft.snapshot, kinds, rng))


class TwoChoices:
    """Probes two hosts for each VM, and scans where neither holds it.

    Parameters
    ----------
    room : ndarray of int64, shape (H, R)
        What may be filled on each host.
    snapshot : Snapshot
    kinds : VmKinds
    rng : Generator
        Gives two numbers for each VM that fits somewhere.

    Notes
    -----
    A scan checks the hosts that held the kind at its last scan. Two probes
    fail often only when those are few, so that a VM costs O(1) on the whole.
    """

    def __init__(
        self, room: IntArray, snapshot: Snapshot, kinds: VmKinds, rng: np.random.Generator
    ) -> None:
        self._room = room.copy()
        self._pool = snapshot.pool.tolist()
        self._demand = kinds.demand
        self._demand_of = kinds.demand.tolist()
        demanded = (kinds.demand > 0).any(axis=1, keepdims=True)
        self._open_to = [np.flatnonzero(row) for row in hosts_for(snapshot, kinds) & demanded]
        self._may_hold = list(self._open_to)
        self._rooms = room.tolist()
        self._rng = rng
        self._drawn: list[float] = []

    def fill(self, order: Sequence[int]) -> list[int]:
        """Return the host of each VM, given its kind, up to the first that fits nowhere."""
        chosen: list[int] = []
        for kind in order:
            numbers = self._draw_two_numbers()
            host = self._probe_two_hosts(kind, *numbers)
            if host is None:
                host = self._scan_all_hosts(kind)
            if host is None:
                self._drawn += reversed(numbers)  # for the next VM: this one needs none
                break
            self._take_room(host, kind)
            chosen.append(host)
        return chosen

    def _probe_two_hosts(self, kind: int, first: float, second: float) -> int | None:
        """Choose between two random hosts, None if neither holds a VM of the kind."""
        hosts = self._open_to[kind]
        if len(hosts) == 0:
            return None
        one = int(first * len(hosts))
        probed = [int(hosts[one])]
        if len(hosts) > 1:
            other = int(second * (len(hosts) - 1))
            probed.append(int(hosts[other + (other >= one)]))
        demand = self._demand_of[kind]
        fitting = [
            host
            for host in probed
            if all(a >= b for a, b in zip(self._rooms[host], demand, strict=True))
        ]
        if len(fitting) < 2:
            return fitting[0] if fitting else None
        return min(fitting, key=lambda host: mismatch(demand, self._rooms[host], self._pool))

    def _scan_all_hosts(self, kind: int) -> int | None:
        """Choose among all hosts that hold a VM of the kind."""
        demand = self._demand[kind]
        hosts = self._may_hold[kind]
        hosts = self._may_hold[kind] = hosts[(self._room[hosts] >= demand).all(axis=1)]
        if len(hosts) == 0:
            return None
        scores = mismatches(self._demand_of[kind], self._room[hosts], self._pool)
        return int(hosts[scores.argmin()])

    def _take_room(self, host: int, kind: int) -> None:
        """Take the room of one VM of a kind on the host that was chosen."""
        self._room[host] -= self._demand[kind]
        room = self._rooms[host]
        for resource, amount in enumerate(self._demand_of[kind]):
            room[resource] -= amount

    def _draw_two_numbers(self) -> tuple[float, float]:
        """Return two random numbers in [0, 1), drawn many at a time."""
        if not self._drawn:
            self._drawn = self._rng.random(_DRAWN)[::-1].tolist()
        return self._drawn.pop(), self._drawn.pop()


def mismatches(demand: Sequence[int], free: IntArray, pool: Sequence[int]) -> FloatArray:
    """Return H of many hosts at once, (H, R) to (H,); see `placement.packing.buckets.mismatch`.

    The same operations in the same order: hosts that tie there tie here.
    """
    reference = next(r for r, amount in enumerate(demand) if amount > 0)
    scores = np.zeros(len(free))
    for r in range(len(demand)):
        if pool[r] > 0:
            ratio = demand[r] / demand[reference] - free[:, r] / free[:, reference]
            scores += np.abs(ratio) * (pool[reference] / pool[r])
    return scores
