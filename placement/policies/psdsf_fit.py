"""PS-DSF in whole VMs: each VM to the tenant and host of least virtual dominant share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement.model.arrays import IntArray
from placement.model.vm_kinds import VmKinds, hosts_for
from placement.packing.draft import Draft
from placement.policies.task_levels import fill_by_tasks, tasks_alone_on


def psdsf_fit(draft: Draft, kinds: VmKinds, rng: np.random.Generator) -> None:
    """Give one VM at a time to the pair (tenant, host) of least virtual dominant share.

    Notes
    -----
    Derived from PS-DSF [1]_: of all pairs of a tenant and a host on which its
    next VM fits, the one of least ``s[i, l] / w_i`` is served, ``s[i, l] = x_i /
    gamma[i, l]`` with gamma of the host's whole capacity. Ties go to the
    first request, then to the first host.

    Where x_i is above 0, the least pair of a tenant is the fitting host on which
    it could run most if it were alone; its first VM goes to the first host that
    holds it, as everything is equal then. For x_i of a tenant with several
    requests, or with VMs that run already, see `fill_by_tasks`.

    References
    ----------
    .. [1] Khamse-Ashari et al., "Per-Server Dominant-Share Fairness (PS-DSF)",
       2016.
    """
    del rng  # nothing is random
    fill_by_tasks(draft, kinds, _LargestHosts(draft, kinds))


class _LargestHosts:
    """Two pointers for each kind, along the hosts by gamma and by index; neither goes back.

    Room only shrinks: a host that holds no VM of a kind never will again.
    """

    def __init__(self, draft: Draft, kinds: VmKinds) -> None:
        snapshot = draft.snapshot
        self._room: list[list[int]] = draft.room.tolist()
        self._demand: list[list[int]] = kinds.demand.tolist()
        self._gamma: list[list[float]] = []
        self._in_order: list[_HostPointer] = []
        self._by_gamma: list[_HostPointer] = []
        counted = snapshot.resource_count
        for demand, open_to in zip(kinds.demand, hosts_for(snapshot, kinds), strict=True):
            gamma = tasks_alone_on(snapshot.capacity[:, :counted], demand[:counted])
            hosts = np.flatnonzero(open_to & (gamma > 0) & (draft.room >= demand).all(axis=1))
            self._gamma.append(gamma.tolist())
            self._in_order.append(_HostPointer(hosts))
            self._by_gamma.append(_HostPointer(hosts[np.argsort(-gamma[hosts], kind="stable")]))

    def vms_alone(self, kind: int, *, first: bool) -> float | None:
        """Return gamma of the host that is next for a kind of VM; None if none has room."""
        host = self._next_host(kind, first=first)
        return None if host is None else self._gamma[kind][host]

    def take(self, kind: int, *, first: bool) -> int | None:
        """Place one VM on the next host of its kind, and return the host; None if none has room."""
        host = self._next_host(kind, first=first)
        if host is None:
            return None
        room = self._room[host]
        for resource, amount in enumerate(self._demand[kind]):
            room[resource] -= amount
        return host

    def _next_host(self, kind: int, *, first: bool) -> int | None:
        """Return the next host for a kind: by index for a tenant's first VM, else by gamma."""
        pointers = self._in_order if first else self._by_gamma
        return pointers[kind].first_host_with_room(self._room, self._demand[kind])


class _HostPointer:
    """A pointer along hosts in some order that skips hosts without room for good."""

    def __init__(self, hosts: IntArray) -> None:
        self._hosts: list[int] = hosts.tolist()
        self._at = 0

    def first_host_with_room(
        self, room: Sequence[Sequence[int]], demand: Sequence[int]
    ) -> int | None:
        """Return the first host from the pointer on that has room for ``demand``."""
        hosts = self._hosts
        while self._at < len(hosts):
            host = hosts[self._at]
            if all(a >= b for a, b in zip(room[host], demand, strict=True)):
                return host
            self._at += 1
        return None
