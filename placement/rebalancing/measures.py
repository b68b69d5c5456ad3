"""A state of the cluster in numbers, move by move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from placement.fairness.shares import dominant_shares, fair_distance, fractions_of_pool
from placement.metrics.fair_holdings import target_holdings
from placement.model.arrays import BoolArray, FloatArray, IntArray
from placement.rebalancing.model import Measures, RebalanceMove, RunningState

#: Ranking resources where none are named: CPU and memory.
RANKING: Final = (0, 1)
_MIB_PER_GIB: Final = 1024


def skewness_of(room: IntArray, capacity: IntArray) -> FloatArray:
    """Return FUGA's skewness ske(m) of hosts, shape (H,).

    Parameters
    ----------
    room : ndarray of int64, shape (H, J)
        What is left of each ranking resource, below 0 where too much is committed.
    capacity : ndarray of int64, shape (H, J)
        A resource of which a host has nothing does not count there.

    Notes
    -----
    ``ske(m) = sqrt(sum_j (u_j/mean(u) - 1)^2)`` of `placement.fuga.strategies.skewness`, with
    ``u_j`` what is committed in parts of the capacity; 0 for an unused host.
    """
    there = capacity > 0
    parts = np.divide(capacity - room, capacity, out=np.zeros(capacity.shape), where=there)
    number = np.maximum(there.sum(axis=1), 1)
    mean = (parts.sum(axis=1) / number)[:, None]
    relative = np.divide(parts, mean, out=np.ones_like(parts), where=there & (mean > 0))
    skew: FloatArray = np.sqrt(((relative - 1) ** 2).sum(axis=1))
    return skew


class MoveMeasures:
    """Measures of a cluster, updated as VMs move one after the other.

    Moves change neither what tenants hold nor what would be fair, so v(A) and
    the fairness distance are found once; of skewness a move changes two hosts.

    Parameters
    ----------
    running : RunningState
    ranking : sequence of int
        Indices of R that skewness runs over; those beyond R are left out.
    alpha : float
        Of v(A), above 1.

    Notes
    -----
    ``v(A) = sgn(1-alpha) (sum_ij |phi[i,j]/T_j - target[i,j]|^(alpha-1))^(1/alpha)`` with tenants
    as the users i, phi what they hold and the fair target of a round
    (`placement.metrics.fair_holdings.target_holdings`) in place of ``d* g``.
    """

    def __init__(
        self, running: RunningState, ranking: Sequence[int] = RANKING, alpha: float = 2.0
    ) -> None:
        snapshot = running.snapshot
        self._running = running
        self._ranking = [each for each in ranking if each < len(snapshot.resources)]
        self._room = running.room
        self._skewness = self._skewness_on(np.arange(len(self._room)))
        self._in_use: BoolArray = np.any(snapshot.capacity > self._room, axis=1)
        # Both are kept as sums, so that a move costs no pass over all hosts.
        self._total = float(self._skewness.sum())
        self._hosts = int(self._in_use.sum())
        targets = target_holdings(snapshot)
        away = np.abs(fractions_of_pool(snapshot.held, snapshot.pool) - targets)
        self._fairness = 0.0 - float((away ** (alpha - 1)).sum() ** (1 / alpha))
        self._distance = fair_distance(
            dominant_shares(snapshot.held, snapshot.pool), targets.max(axis=1, initial=0.0)
        )
        self._moved_mib = 0

    def current_measures(self) -> Measures:
        """Return the measures of the cluster after the moves that were applied."""
        return Measures(
            potential=self._fairness - self._total,
            fairness_distance=self._distance,
            mean_skewness=self._total / self._hosts if self._hosts else 0.0,
            hosts_in_use=self._hosts,
            moved_gib=self._moved_mib / _MIB_PER_GIB,
        )

    def apply(self, move: RebalanceMove) -> Measures:
        """Apply a move, and return the measures of the cluster after it."""
        demand = self._running.demand[self._running.kind[move.vm]]
        both = np.array([move.source, move.destination])
        self._room[move.source] += demand
        self._room[move.destination] -= demand
        new = self._skewness_on(both)
        used = (self._running.snapshot.capacity[both] > self._room[both]).any(axis=1)
        self._total += float((new - self._skewness[both]).sum())
        self._hosts += int(used.sum()) - int(self._in_use[both].sum())
        self._skewness[both], self._in_use[both] = new, used
        self._moved_mib += move.transfer_mib
        return self.current_measures()

    def _skewness_on(self, hosts: IntArray) -> FloatArray:
        """Return the skewness of these hosts, (X,)."""
        capacity = self._running.snapshot.capacity[hosts][:, self._ranking]
        return skewness_of(self._room[hosts][:, self._ranking], capacity)


def measure_moves(
    running: RunningState,
    moves: Sequence[RebalanceMove],
    ranking: Sequence[int] = RANKING,
    alpha: float = 2.0,
) -> tuple[Measures, ...]:
    """Return the measures of the cluster before the first of some moves and after each."""
    gauge = MoveMeasures(running, ranking, alpha)
    return (gauge.current_measures(), *(gauge.apply(move) for move in moves))
