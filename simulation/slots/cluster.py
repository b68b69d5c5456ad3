"""The hosts of a simulation: capacity, committed amounts, and whether they take VMs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from placement import BoolArray, IntArray
from simulation.checkpoint import CheckpointData, read_array
from simulation.topology.hosts import HostEventKind, SimHost
from simulation.topology.inventory import HostInventory


class Cluster:
    """The simulated hosts in order of name, as a round sees them.

    Parameters
    ----------
    hosts : sequence of SimHost
        In order of name, each name once.
    capacity : ndarray of int64, shape (H, R)
    absent : collection of str
        Names of hosts that join later.

    Notes
    -----
    Kept as arrays from slot to slot: a slot costs what changes in it, and the
    sum over hosts that a policy needs anyway.
    """

    def __init__(
        self, hosts: Sequence[SimHost], capacity: IntArray, absent: frozenset[str] = frozenset()
    ) -> None:
        self._hosts = list(hosts)
        self.index = {host.name: index for index, host in enumerate(hosts)}
        self.capacity = capacity
        self.committed = np.zeros_like(capacity)
        self._present = np.array([host.name not in absent for host in hosts], dtype=np.bool_)
        self.version = 0  #: raised by changes of traits by which requests distinguish hosts
        self._cache_arrays()

    @classmethod
    def of(cls, inventory: HostInventory, resources: Sequence[str]) -> Cluster:
        """Return the simulated cluster of an inventory; hosts that join later are not there yet."""
        rows = [[host.capacity.get(name, 0) for name in resources] for host in inventory.hosts]
        first: dict[str, HostEventKind] = {}
        for event in inventory.events:
            first.setdefault(event.host, event.what)
        return cls(
            [SimHost(name=host.name, labels=host.labels) for host in inventory.hosts],
            np.array(rows, dtype=np.int64).reshape(len(rows), len(resources)),
            frozenset(host for host, what in first.items() if what is HostEventKind.JOIN),
        )

    @property
    def present(self) -> BoolArray:
        """Which simulated hosts are in the pool, shape (H,)."""
        return self._present

    def all_hosts(self) -> Sequence[SimHost]:
        """Return every simulated host, including hosts outside the pool."""
        return self._hosts

    def apply_event(self, what: HostEventKind, host: int) -> bool:
        """Apply an event to a simulated host; return whether the VMs that run there are lost."""
        match what:
            case HostEventKind.JOIN:
                self._present[host] = True
                self._set_host_accepting(host, accepts=True)
            case HostEventKind.RETURN:
                self._set_host_accepting(host, accepts=True)
            case HostEventKind.DRAIN | HostEventKind.FAIL:
                self._set_host_accepting(host, accepts=False)
            case HostEventKind.LEAVE:
                self._present[host] = False
        self._cache_arrays()
        return what in (HostEventKind.FAIL, HostEventKind.LEAVE)

    def set_accepting(self, accepts: Mapping[int, bool]) -> None:
        """Set whether simulated hosts take VMs, by host."""
        for host, takes in accepts.items():
            self._set_host_accepting(host, accepts=takes)
        self._cache_arrays()

    def _set_host_accepting(self, host: int, *, accepts: bool) -> None:
        """Set whether one simulated host takes VMs."""
        self._hosts[host] = replace(self._hosts[host], accepts=accepts)

    def state(self) -> CheckpointData:
        """Return the state of the simulated hosts for a checkpoint."""
        return {
            "committed": self.committed,
            "present": self._present,
            "accepts": np.array([host.accepts for host in self._hosts], dtype=np.bool_),
        }

    def restore(self, kept: CheckpointData) -> None:
        """Restore the state of the simulated hosts from a checkpoint."""
        hosts = (len(self._hosts),)
        self.committed = read_array(kept, "committed", "int", self.capacity.shape)
        self._present = read_array(kept, "present", "bool", hosts)
        for host, accepts in enumerate(read_array(kept, "accepts", "bool", hosts).tolist()):
            self._set_host_accepting(host, accepts=accepts)
        self._cache_arrays()

    def _cache_arrays(self) -> None:
        """Cache the arrays of the pool that a round reads, until a host changes."""
        self.version += 1
        self.rows = np.flatnonzero(self._present).astype(np.int64)  #: (H',) those in the pool
        self._everybody = len(self.rows) == len(self._hosts)
        self.hosts = [self._hosts[row] for row in self.rows.tolist()]  #: in order of name
        self._place = np.cumsum(self._present) - 1
        self._offered = self.capacity[self.rows]

    def pool_capacity(self) -> IntArray:
        """Return the capacity of each host in the pool, shape (H', R); do not change it."""
        return self._offered

    def free(self) -> IntArray:
        """Return the free amounts of each host in the pool as a new array, shape (H', R)."""
        committed = self.committed if self._everybody else self.committed[self.rows]
        free: IntArray = np.maximum(self._offered - committed, 0)
        return free

    def positions_in_pool(self, hosts: Sequence[int]) -> tuple[int, ...]:
        """Return the sorted pool positions of hosts; hosts outside the pool are left out."""
        there = [int(self._place[host]) for host in hosts if self._present[host]]
        return tuple(sorted(there))

    def pool_numbers(self, names: Sequence[str | None]) -> list[int]:
        """Return the number of each named host; -1 for a host outside the pool."""
        found = [-1 if name is None else self.index.get(name, -1) for name in names]
        return [host if host >= 0 and self._present[host] else -1 for host in found]

    def commit(self, hosts: IntArray, amounts: IntArray) -> None:
        """Commit amounts (P, R) on hosts (P,); negative amounts are released."""
        np.add.at(self.committed, hosts, amounts)
