"""Gain of the potential by one VM more of each kind on each host, kept up to date.

A move's gain is what the destination gains by the VM plus what the source gains without
it. Neither part depends on the other host, so the best destination of a kind is the same
for its VMs on all hosts, and a move changes the numbers of two hosts only.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from placement.model.arrays import BoolArray, FloatArray, IntArray
from placement.rebalancing.local_search.host_costs import HostCost
from placement.rebalancing.model import RunningState

#: The gain where a VM may not go, or is not.
INFEASIBLE: Final = -math.inf


class ArrivalGains:
    """The gain in potential of one more VM of every kind on every host, updated with moves.

    Hosts are in blocks of about the square root of their number, with the best host of
    each, so that a change of one host costs a pass over its block and over the blocks.

    Parameters
    ----------
    running : RunningState
        Where it begins.
    term : HostCost
        Of the game that is played.
    kinds : ndarray of int64, shape (K,)
        The kinds of VM that are weighed, indices of those of ``running``.
    takes : ndarray of bool, shape (H,)
        Hosts that take VMs.
    """

    def __init__(
        self, running: RunningState, term: HostCost, kinds: IntArray, takes: BoolArray
    ) -> None:
        self._term = term
        self._capacity = running.snapshot.capacity
        self.room = running.room
        self._demand = running.demand[kinds]
        self._open: BoolArray = running.eligible[kinds][:, running.snapshot.host_class] & takes
        hosts = len(self._capacity)
        self.cost = term.cost(self._capacity - self.room, self._capacity)  #: (H,) as it is now
        self._size = max(1, math.isqrt(hosts))
        blocks = -(-hosts // self._size)
        padded = np.full((len(kinds), blocks * self._size), INFEASIBLE)
        #: (K, H) gain of one VM more, `INFEASIBLE` where it may not be or has no room
        self.entering = padded[:, :hosts]
        self._blocks = padded.reshape(len(kinds), blocks, self._size)
        for kind in range(len(kinds)):
            self.entering[kind] = self._arrival_gain(np.arange(hosts), slice(kind, kind + 1))[:, 0]
        self._best_of_block = self._blocks.max(axis=2, initial=INFEASIBLE)
        #: (K,) gain of one VM more on the best host
        self.best = self._best_of_block.max(axis=1, initial=INFEASIBLE)

    def best_host(self, kind: int) -> int:
        """Return the first host that gains most by one more VM of a kind."""
        block = int(self._best_of_block[kind].argmax())
        return block * self._size + int(self._blocks[kind, block].argmax())

    def departure_gain(self, hosts: IntArray, kinds: IntArray) -> FloatArray:
        """Return the gain in potential of each host, (X,), if it loses one VM of a kind, (X,)."""
        without = self._capacity[hosts] - self.room[hosts] - self._demand[kinds]
        gain: FloatArray = self.cost[hosts] - self._term.cost(without, self._capacity[hosts])
        return gain

    def move(self, kind: int, source: int, destination: int) -> FloatArray:
        """Move a VM from one host to another, and update the gains of both hosts.

        Returns
        -------
        ndarray of float64, shape (K,)
            The best of what rose: of each kind the higher gain of the two hosts among
            those that are higher than before, else `INFEASIBLE`.
        """
        both = np.array([source, destination])
        before = self.entering[:, both]
        self.room[source] += self._demand[kind]
        self.room[destination] -= self._demand[kind]
        self.cost[both] = self._term.cost(
            self._capacity[both] - self.room[both], self._capacity[both]
        )
        now = self._arrival_gain(both, slice(None)).T
        self.entering[:, both] = now
        for block in {source // self._size, destination // self._size}:
            self._best_of_block[:, block] = self._blocks[:, block].max(axis=1)
        self.best = self._best_of_block.max(axis=1)
        rose: FloatArray = np.where(now > before, now, INFEASIBLE).max(axis=1)
        return rose

    def close(self, host: int) -> None:
        """Close a host to more VMs: its gains become `INFEASIBLE`."""
        self._open[:, host] = False
        self._update_gains(host)

    def reopen(self, host: int, kinds: BoolArray) -> None:
        """Open a closed host to these kinds of VM, shape (K,)."""
        self._open[:, host] = kinds
        self._update_gains(host)

    def open_to(self, host: int) -> BoolArray:
        """Return the kinds of VM that a host is open to, shape (K,)."""
        return self._open[:, host].copy()

    def _update_gains(self, host: int) -> None:
        """Compute the gains of a host again, and the best host of its block."""
        self.entering[:, host] = self._arrival_gain(np.array([host]), slice(None))[0]
        block = host // self._size
        self._best_of_block[:, block] = self._blocks[:, block].max(axis=1)
        self.best = self._best_of_block.max(axis=1)

    def _arrival_gain(self, hosts: IntArray, kinds: slice) -> FloatArray:
        """Return the gain in potential of one more VM of each kind on hosts, (X hosts, K)."""
        demand, room = self._demand[kinds], self.room[hosts][:, None]
        capacity = self._capacity[hosts][:, None]
        gain = self.cost[hosts][:, None] - self._term.cost(capacity - room + demand, capacity)
        fits = ((room >= demand) | (demand == 0)).all(axis=2) & self._open[kinds, hosts].T
        weighed: FloatArray = np.where(fits, gain, INFEASIBLE)
        return weighed
