"""Private terms of a potential game of moves: the cost of a host's own load.

In FUGA a host's utility is ``U(m) = v(A) - ske(m)``: v is common to all hosts and
``ske(m)`` private. Moves change nothing that tenants hold, so v(A) does not change and a
move of a VM from one host to another raises the potential ``v(A) - sum_m cost(m)`` by
what the private terms of these two hosts fall. That holds for any private term, so
another one makes another game with the same machinery. The terms here are exact
potentials for the same reason as the paper's skewness: they depend on their host alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from placement.model.arrays import BoolArray, FloatArray, IntArray
from placement.rebalancing.model import RunningState


class HostCost(Protocol):
    """The cost of a host's load to that host. The potential is minus the sum over hosts."""

    @property
    def ranking(self) -> IntArray:
        """The resources that count, indices of R, shape (J,)."""
        ...

    def cost(self, used: IntArray, capacity: IntArray) -> FloatArray:
        """Return the cost of hosts.

        Parameters
        ----------
        used : ndarray of int64, shape (..., R)
            What is committed on each; above the capacity where a host shrank.
        capacity : ndarray of int64, shape (..., R)
            A shape that goes with that of ``used``.

        Returns
        -------
        ndarray of float64, shape (...)
        """
        ...


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LoadImbalance:
    """The distance of a host's load from that of the whole pool, which balancing lowers.

    Notes
    -----
    ``cost(m) = sum_j (u_j(m) - t_j)^2 + skewness * ske(m)`` with ``u_j(m)`` what is committed
    of resource j in parts of the capacity of m, and ``t_j`` the same of the whole pool. A
    resource that a host lacks does not count there. Moves change no ``t_j``, so the cost
    depends on the host alone. Its sum is H times the variance of the load over hosts,
    plus a constant, where hosts are alike.
    """

    ranking: IntArray  #: (J,) the resources that count, indices of R
    target: FloatArray  #: (J,) load of the pool
    skewness: float = 0.0  #: weight of FUGA's skewness relative to it, 0 or more

    @classmethod
    def of_pool(
        cls, running: RunningState, ranking: IntArray, *, skewness: float = 0.0
    ) -> LoadImbalance:
        """Return the term whose target is the load of all hosts together; ``ranking`` is (J,)."""
        capacity = running.snapshot.capacity[:, ranking]
        used = capacity - running.room[:, ranking]
        target = _load_fractions(used.sum(axis=0), capacity.sum(axis=0))
        return cls(ranking=ranking, target=target, skewness=skewness)

    def cost(self, used: IntArray, capacity: IntArray) -> FloatArray:
        """Return the cost of hosts, shape (...); see `HostCost.cost`."""
        capacity = capacity[..., self.ranking]
        there = capacity > 0
        parts = _load_fractions(used[..., self.ranking], capacity)
        away = np.where(there, parts - self.target, 0.0)
        cost: FloatArray = (away * away).sum(axis=-1)
        if self.skewness:
            cost = cost + self.skewness * _skewness(parts, there)
        return cost


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Emptiness:
    """The cost of a host in use less its fill, which packing lowers.

    Notes
    -----
    ``cost(m) = 1 - f(m)^2`` of a host in use, 0 of an empty one, with ``f(m)`` the mean of
    ``u_j(m)`` over the resources that count, at most 1. It falls by nearly 1 when the last VM
    leaves, and, since the square grows faster the fuller a host is, where VMs go from
    emptier hosts to fuller ones. `LoadImbalance` explains the symbols.
    """

    ranking: IntArray  #: (J,) the resources that count, indices of R

    def cost(self, used: IntArray, capacity: IntArray) -> FloatArray:
        """Return the cost of hosts, shape (...); see `HostCost.cost`."""
        ranked = capacity[..., self.ranking]
        number = np.maximum((ranked > 0).sum(axis=-1), 1)
        fill = np.minimum(
            _load_fractions(used[..., self.ranking], ranked).sum(axis=-1) / number, 1.0
        )
        cost: FloatArray = np.where((used > 0).any(axis=-1), 1.0 - fill * fill, 0.0)
        return cost


def _load_fractions(used: IntArray, capacity: IntArray) -> FloatArray:
    """Return the used fraction of each host's capacity; 0 for a resource that it lacks."""
    parts: FloatArray = used / np.maximum(capacity, 1) * (capacity > 0)
    return parts


def _skewness(parts: FloatArray, there: BoolArray) -> FloatArray:
    """Return FUGA's skewness of hosts from their used fractions; lacking resources do not count."""
    number = np.maximum(there.sum(axis=-1, keepdims=True), 1)
    mean = parts.sum(axis=-1, keepdims=True) / number
    relative = np.divide(parts, mean, out=np.ones_like(parts), where=there & (mean > 0))
    skew: FloatArray = np.sqrt(((relative - 1.0) ** 2).sum(axis=-1))
    return skew
