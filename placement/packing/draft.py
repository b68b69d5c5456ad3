"""A draft of an allocation: the placed VMs, the free vectors and the remaining counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from placement.fairness.shares import fractions_of_pool
from placement.model.arrays import BoolArray, IntArray
from placement.model.reasons import unplaced_vms
from placement.model.row_groups import join_rows
from placement.model.snapshot import Allocation, Snapshot


class Draft:
    """Keeps free vectors and remaining counts up to date as VMs are placed.

    Parameters
    ----------
    snapshot : Snapshot
    room : ndarray of int64, shape (H, R), optional
        What may be filled on each host; default its free vector. Smaller under
        an overload threshold.

    Notes
    -----
    A gang, a request of more than one VM or none, has nothing ``remaining``
    until `placement.packing.gangs` has begun it: a policy that knows nothing of gangs
    leaves them out, and never places a part of one.
    """

    def __init__(self, snapshot: Snapshot, room: IntArray | None = None) -> None:
        self.snapshot = snapshot
        self.free = snapshot.free.copy()
        self.room = snapshot.free.copy() if room is None else room.copy()
        #: (Q,) VMs of each gang that has not begun, 0 for all other requests
        self.not_begun = np.where(snapshot.min_count > 1, snapshot.count, 0)
        self.remaining = snapshot.count - self.not_begun
        self.held = snapshot.held.copy()
        self._rows = np.zeros((0, 3), dtype=np.int64)
        self._moves: list[IntArray] = []

    def put(self, request: int, host: int, count: int = 1) -> None:
        """Place VMs of a request on a host that has the room."""
        self.put_all(np.array([[request, host, count]], dtype=np.int64))

    def remove(self, request: int, host: int, count: int = 1) -> None:
        """Undo the placement of VMs."""
        self.put_all(np.array([[request, host, -count]], dtype=np.int64))

    def put_all(self, rows: IntArray) -> None:
        """Place many VMs at once.

        Parameters
        ----------
        rows : ndarray of int64, shape (P, 3)
            Request, host and count; a pair may occur in several rows. Counts
            below zero undo a placement.
        """
        requests, hosts, counts = rows.T
        amounts = counts[:, None] * self.snapshot.demand[requests]
        np.subtract.at(self.free, hosts, amounts)
        np.subtract.at(self.room, hosts, amounts)
        np.subtract.at(self.remaining, requests, counts)
        np.add.at(self.held, self.snapshot.tenant[requests], amounts)
        self._moves.append(rows)

    @property
    def rows(self) -> IntArray:
        """Request, host and VMs placed, as `Allocation.placed` has them, shape (P, 3)."""
        if self._moves:
            self._rows, self._moves = join_rows([self._rows, *self._moves]), []
        return self._rows

    def hosts_kept_empty(self, fraction: float) -> BoolArray:
        """Return the empty hosts that take VMs last, shape (H,).

        Of each host class at most ``fraction`` of its hosts, rounded up, the largest first;
        an empty host is one of which nothing is used. None are kept if what remains needs more
        than the room of the others.
        """
        snapshot, counted = self.snapshot, self.snapshot.resource_count
        kept = np.zeros(len(self.free), dtype=np.bool_)
        empty = np.flatnonzero((self.free == snapshot.capacity)[:, :counted].all(axis=1))
        if fraction == 0 or not len(empty):
            return kept
        of_class = snapshot.host_class[empty]
        size = fractions_of_pool(snapshot.capacity[empty], snapshot.pool).max(axis=1, initial=0.0)
        largest = np.lexsort((-empty, -size, of_class))
        of_class = of_class[largest]
        rank = np.arange(len(empty)) - np.searchsorted(of_class, of_class)
        most = np.ceil(np.bincount(snapshot.host_class) * fraction)
        kept[empty[largest[rank < most[of_class]]]] = True
        needed = (self.remaining @ snapshot.demand)[:counted]
        if (needed > self.room[~kept, :counted].sum(axis=0)).any():
            kept[:] = False
        return kept

    def begin_gang(self, request: int) -> None:
        """Allow VMs of a gang to be placed; the caller ensures the minimum."""
        self.remaining[request] += self.not_begun[request]
        self.not_begun[request] = 0

    @property
    def unplaced_counts(self) -> IntArray:
        """VMs of each request that are not placed, shape (Q,)."""
        missing: IntArray = self.remaining + self.not_begun
        return missing

    @property
    def placed_counts(self) -> IntArray:
        """VMs of each request that are placed, shape (Q,)."""
        given: IntArray = self.snapshot.count - self.unplaced_counts
        return given

    @property
    def placed_by_host(self) -> Mapping[tuple[int, int], int]:
        """VMs by (request, host), counts above zero."""
        return {(request, host): count for request, host, count in self.rows.tolist()}

    def allocation(
        self, *, work: int = 0, cut: bool = False, details: Mapping[str, Any] | None = None
    ) -> Allocation:
        """Return the allocation, with the reasons of the VMs that were not placed."""
        return Allocation(
            placed=self.rows,
            left_out=unplaced_vms(self.snapshot, self.unplaced_counts, self.free),
            work=work,
            cut=cut,
            details=details or {},
        )
