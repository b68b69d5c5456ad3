"""The order in which requests are served when hosts take VMs of a kind, and its fairness v(A).

Hosts choose how many VMs of each kind they take; a VM of a kind goes to the
pending tenant of least dominant share per weight. That order is fixed when the
game begins, so the fairness of any choice is a sum of table entries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from placement.fairness.service_order import service_order_of_vms
from placement.fairness.shares import fractions_of_pool
from placement.model.arrays import FloatArray, IntArray
from placement.model.snapshot import Snapshot
from placement.model.vm_kinds import VmKinds


def target_distances(
    snapshot: Snapshot, tasks: FloatArray | IntArray, targets: FloatArray, alpha: float
) -> FloatArray:
    """Return how far each request is from its fair target, shape (Q,).

    The terms ``sum_j |phi[i,j]/T_j - target[i,j]|^(alpha-1)`` of v(A), one for
    each request i: ``tasks`` and ``targets``, both shape (Q,), are in VMs.
    """
    demand = fractions_of_pool(snapshot.demand, snapshot.pool)
    of_one_vm: FloatArray = (demand ** (alpha - 1)).sum(axis=1)
    away: FloatArray = np.abs(tasks - targets) ** (alpha - 1)
    return away * of_one_vm


def fairness_of(
    snapshot: Snapshot, tasks: FloatArray | IntArray, targets: FloatArray, alpha: float
) -> float:
    """Return the fairness v(A) if requests get ``tasks`` VMs, shape (Q,).

    Notes
    -----
    ``v(A) = sgn(1-alpha) (sum_ij |phi[i,j]/T_j - d* g[i,j]|^(alpha-1))^(1/alpha)``
    for alpha > 1, with the fair target in place of ``d* g`` and requests as the
    users i: a user of the paper requests one type (derived).
    """
    # Subtracted: the negative of nothing would be -0.0, which people read as a fault.
    return 0.0 - float(target_distances(snapshot, tasks, targets, alpha).sum() ** (1 / alpha))


class ServiceOrder:
    """The order of service of one game, and the fairness v(A) of serving VMs of each kind.

    Parameters
    ----------
    snapshot : Snapshot
    kinds : VmKinds
    targets : ndarray of float64, shape (Q,)
        Fair target of each request in VMs.
    offered : ndarray of int64, shape (Q,)
        VMs that this game may place.
    given : ndarray of int64, shape (Q,)
        VMs that an earlier game of the round has placed.
    held : ndarray of int64, shape (N, R)
        Amounts that each tenant holds, including those VMs.
    alpha : float

    Notes
    -----
    The order is that of progressive filling without regard to room: VMs sorted
    by the level that their tenant has reached before them, equals by request.
    Where a tenant requests several kinds and room runs out for one of them, the
    order for the others stays; the next game begins from true shares.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        kinds: VmKinds,
        *,
        targets: FloatArray,
        offered: IntArray,
        given: IntArray,
        held: IntArray,
        alpha: float,
    ) -> None:
        self._alpha = alpha
        order = service_order_of_vms(snapshot, offered, held)
        of_kind = kinds.of_request[order]
        #: requests in order of service, one entry for each VM, for each kind
        self.order = [order[of_kind == kind] for kind in range(len(kinds))]
        #: VMs of each kind that there are to serve
        self.maximum = tuple(len(each) for each in self.order)
        #: the same, shape (T,)
        self.available = np.array(self.maximum, dtype=np.int64)
        self._one_request = [bool(len(each) and (each == each[0]).all()) for each in self.order]
        steps = _distance_changes(snapshot, order, given, targets, alpha)
        # Of each kind: the change of the sum of distances by 0, 1, 2, ... VMs.
        self._changes = [
            np.concatenate([[0.0], np.cumsum(steps[of_kind == kind])]) for kind in range(len(kinds))
        ]
        # The same memory, read one number at a time.
        self._views = [memoryview(each.data) for each in self._changes]
        self._at_start = float(target_distances(snapshot, given, targets, alpha).sum())

    def fairness(self, totals: IntArray) -> FloatArray:
        """Return the fairness v(A) if ``totals`` VMs of each kind are served.

        Parameters
        ----------
        totals : ndarray of int64, shape (..., T)

        Returns
        -------
        ndarray of float64, shape (...)
        """
        return self.fairness_of_distances(self.sum_of_distances(totals))

    def sum_of_distances(self, totals: IntArray) -> FloatArray:
        """Return the sum of the requests' distances from fair targets, for ``totals`` (..., T)."""
        # Kind by kind, as `fairness_of_one` adds them: to the last bit the same.
        change = np.zeros(totals.shape[:-1])
        for kind, changes in enumerate(self._changes):
            change += changes[totals[..., kind]]
        away: FloatArray = np.maximum(self._at_start + change, 0.0)
        return away

    def fairness_of_distances(self, away: FloatArray) -> FloatArray:
        """Return the fairness v(A) of sums of distances, (...): the negative root of alpha."""
        fairness: FloatArray = 0.0 - away ** (1 / self._alpha)
        return fairness

    def fairness_of_one(self, totals: Sequence[int]) -> float:
        """Return the fairness v(A) if ``totals`` VMs of each kind are served; T numbers."""
        change = 0.0
        for view, number in zip(self._views, totals, strict=True):
            change += view[number]
        return 0.0 - float(max(self._at_start + change, 0.0) ** (1 / self._alpha))

    def fairness_of_each(
        self, rows: Sequence[Sequence[int]], others: Sequence[Sequence[int]]
    ) -> list[float]:
        """Return v(A) of each strategy (K, T), given the VMs (K, T) that the other players take."""
        root, start, views = 1 / self._alpha, self._at_start, self._views
        fairness = []
        for row, taken in zip(rows, others, strict=True):
            change = 0.0
            for view, number, more in zip(views, row, taken, strict=True):
                change += view[number + more]
            fairness.append(-(max(start + change, 0.0) ** root))
        return fairness

    def requests_served(self, kind: int, first: int, count: int) -> dict[int, int]:
        """Return the requests that the VMs ``first`` to ``first + count`` of a kind go to."""
        requests = self.order[kind][first : first + count]
        if self._one_request[kind]:
            return {int(requests[0]): len(requests)} if len(requests) else {}
        return dict(sorted(Counter(requests.tolist()).items()))


def _distance_changes(
    snapshot: Snapshot, order: IntArray, given: IntArray, targets: FloatArray, alpha: float
) -> FloatArray:
    """Return how each VM served changes the sum of distances from fair targets, shape (V,)."""
    nth = np.zeros(len(order), dtype=np.int64)
    by_request = np.argsort(order, kind="stable")
    starts = np.flatnonzero(np.diff(order[by_request], prepend=-1))
    lengths = np.diff(np.append(starts, len(order)))
    nth[by_request] = np.arange(len(order)) - np.repeat(starts, lengths)
    demand = fractions_of_pool(snapshot.demand, snapshot.pool)
    of_one_vm = (demand ** (alpha - 1)).sum(axis=1)
    before = given[order] + nth - targets[order]
    steps: FloatArray = of_one_vm[order] * (
        np.abs(before + 1) ** (alpha - 1) - np.abs(before) ** (alpha - 1)
    )
    return steps
