"""The hosts of a simulation: what they offer, what is committed, who takes VMs now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from placement import BoolArray, IntArray


class Happening(StrEnum):
    """What may befall a host at a time."""

    JOIN = "join"  #: it is there from now on
    DRAIN = "drain"  #: it takes no more VMs; those that run stay
    FAIL = "fail"  #: its VMs are lost and wait again; it stays in the pool
    RETURN = "return"  #: it takes VMs again
    LEAVE = "leave"  #: it is gone for good; its VMs wait again


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvent:
    """Something that befalls one host."""

    at_s: float
    host: str
    what: Happening


@dataclass(frozen=True, slots=True, kw_only=True)
class SimHost:
    """A host as requests tell it from others."""

    name: str
    labels: tuple[str, ...] = ()
    accepts: bool = True

    @property
    def id(self) -> str:
        """Its name: nothing else identifies it here."""
        return self.name


class Cluster:
    """Hosts in order of name, as a round sees them.

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
        self.version = 0  #: raised by whatever requests may tell hosts apart by
        self._read()

    @property
    def present(self) -> BoolArray:
        """Which hosts are in the pool, shape (H,)."""
        return self._present

    def all_hosts(self) -> Sequence[SimHost]:
        """Return every host, there or not."""
        return self._hosts

    def befalls(self, what: Happening, host: int) -> bool:
        """Change a host; return whether the VMs that run there are lost."""
        match what:
            case Happening.JOIN:
                self._present[host] = True
                self._accept(host, accepts=True)
            case Happening.RETURN:
                self._accept(host, accepts=True)
            case Happening.DRAIN | Happening.FAIL:
                self._accept(host, accepts=False)
            case Happening.LEAVE:
                self._present[host] = False
        self._read()
        return what in (Happening.FAIL, Happening.LEAVE)

    def _accept(self, host: int, *, accepts: bool) -> None:
        self._hosts[host] = replace(self._hosts[host], accepts=accepts)

    def _read(self) -> None:
        """Keep what a round reads of hosts until one of them changes."""
        self.version += 1
        self.rows = np.flatnonzero(self._present).astype(np.int64)  #: (H',) those in the pool
        self._everybody = len(self.rows) == len(self._hosts)
        self.hosts = [self._hosts[row] for row in self.rows.tolist()]  #: in order of name
        self._place = np.cumsum(self._present) - 1
        self._offered = self.capacity[self.rows]

    def offered(self) -> IntArray:
        """Return what each host of the pool offers, shape (H', R); a snapshot may own it."""
        return self._offered

    def free(self) -> IntArray:
        """Return what is not committed on hosts of the pool, shape (H', R), newly made."""
        committed = self.committed if self._everybody else self.committed[self.rows]
        free: IntArray = np.maximum(self._offered - committed, 0)
        return free

    def places(self, hosts: Sequence[int]) -> tuple[int, ...]:
        """Return where hosts stand in the pool, in order; those outside it do not."""
        there = [int(self._place[host]) for host in hosts if self._present[host]]
        return tuple(sorted(there))

    def numbers(self, names: Sequence[str | None]) -> list[int]:
        """Return the number of each host that is in the pool, -1 for others."""
        found = [-1 if name is None else self.index.get(name, -1) for name in names]
        return [host if host >= 0 and self._present[host] else -1 for host in found]

    def commit(self, hosts: IntArray, amounts: IntArray) -> None:
        """Take amounts (P, R) of hosts (P,); below zero gives back."""
        np.add.at(self.committed, hosts, amounts)
