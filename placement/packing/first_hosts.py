"""First-Fit for VMs that come one by one: a pointer for each kind, which never goes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from placement.model.arrays import IntArray
from placement.model.vm_kinds import VmKinds

#: Hosts that a pointer checks at once; then twice as many, and so on.
_FIRST_LOOK: Final = 16


class FirstHosts:
    """Finds the first host, in order, that holds one more VM of a kind.

    Parameters
    ----------
    room : ndarray of int64, shape (H, R)
        What may be filled on each host.
    host_class : ndarray of int64, shape (H,)
    kinds : VmKinds

    Notes
    -----
    Room only shrinks: a host that holds no VM of a kind never will again, so
    that all pointers together pass T H hosts, whatever the number of VMs. Each
    VM is settled in plain lists; the array that pointers look ahead in lags
    behind them, above what is true, and is put right where it is found wrong.
    """

    def __init__(self, room: IntArray, host_class: IntArray, kinds: VmKinds) -> None:
        self._room = room.tolist()
        self._at_most = room.copy()
        self._demand = kinds.demand
        self._demand_of = kinds.demand.tolist()
        open_to = kinds.eligible[:, host_class] & (kinds.demand > 0).any(axis=1, keepdims=True)
        self._open_to = [np.flatnonzero(row) for row in open_to]
        self._at = [-1] * len(kinds)
        #: the host that each pointer stands at, None before it moves and at the end
        self._host: list[int | None] = [None] * len(kinds)

    def fill(self, order: Sequence[int]) -> list[int]:
        """Return each VM's first fitting host, given its kind, up to one that fits nowhere."""
        chosen: list[int] = []
        for kind in order:
            demand = self._demand_of[kind]
            host = self._host[kind]
            if host is None or not self._host_has_room(host, demand):
                host = self._host[kind] = self._advance_pointer(kind)
                if host is None:
                    break
            room = self._room[host]
            for resource, amount in enumerate(demand):
                room[resource] -= amount
            chosen.append(host)
        return chosen

    def _host_has_room(self, host: int, demand: Sequence[int]) -> bool:
        """Return whether a host has room for one VM of a demand."""
        return all(a >= b for a, b in zip(self._room[host], demand, strict=True))

    def _advance_pointer(self, kind: int) -> int | None:
        """Move the pointer of a kind to the next host that holds one of its VMs."""
        hosts, demand = self._open_to[kind], self._demand[kind]
        start, width = self._at[kind] + 1, _FIRST_LOOK
        while start < len(hosts):
            look = hosts[start : start + width]
            for place in np.flatnonzero((self._at_most[look] >= demand).all(axis=1)).tolist():
                host = int(look[place])
                if self._host_has_room(host, self._demand_of[kind]):
                    self._at[kind] = start + place
                    return host
                self._at_most[host] = self._room[host]
            start += width
            width *= 2
        self._at[kind] = len(hosts)
        return None
