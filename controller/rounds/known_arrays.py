"""Hosts as arrays, kept from one round to the next: what is not written again is not made again.

The register center hands out the same view of a host as long as nothing about it changed
(`registry.rounds.known_hosts`), so a host changed if its view is another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from placement import IntArray
from placement.round.host_classes import HostClasses
from registry.rounds import HostView

#: If more than this part of the hosts changed, all are made anew: it is no more work.
_MANY: Final = 0.5
#: What tells hosts apart where no request names or avoids single ones, numbered.
_Kinds: TypeAlias = Mapping[tuple[bool, tuple[str, ...]], int]


@dataclass(frozen=True, slots=True, eq=False)
class HostArrays:
    """Some hosts as arrays; whoever changes one makes a copy."""

    hosts: tuple[HostView, ...]
    capacity: IntArray  #: (H, R)
    committed: IntArray  #: (H, R)
    kind: IntArray  #: (H,) hosts of one kind take VMs or do not, and carry the same labels
    kinds: _Kinds
    names: tuple[tuple[str, str], ...]  #: (id, name) of each

    @classmethod
    def of(cls, hosts: tuple[HostView, ...], resources: int) -> HostArrays:
        """Make the arrays of some hosts."""
        kinds: dict[tuple[bool, tuple[str, ...]], int] = {}
        kind = [kinds.setdefault((host.accepts, host.labels), len(kinds)) for host in hosts]
        return cls(
            hosts,
            _rows([host.capacity for host in hosts], resources),
            _rows([host.committed for host in hosts], resources),
            np.array(kind, dtype=np.int64),
            kinds,
            tuple((str(host.id), host.name) for host in hosts),
        )

    def now(self, hosts: tuple[HostView, ...], resources: int) -> HostArrays:
        """Return the arrays of hosts most of which are these."""
        if self.capacity.shape != (len(hosts), resources):
            return HostArrays.of(hosts, resources)
        changed = [place for place, host in enumerate(hosts) if host is not self.hosts[place]]
        if len(changed) > _MANY * len(hosts):
            return HostArrays.of(hosts, resources)
        if not changed:
            return self
        capacity, committed, kind = (
            each.copy() for each in (self.capacity, self.committed, self.kind)
        )
        kinds = dict(self.kinds)
        capacity[changed] = _rows([hosts[place].capacity for place in changed], resources)
        committed[changed] = _rows([hosts[place].committed for place in changed], resources)
        kind[changed] = [
            kinds.setdefault((hosts[place].accepts, hosts[place].labels), len(kinds))
            for place in changed
        ]
        others = {
            place: name
            for place in changed
            if (name := (str(hosts[place].id), hosts[place].name)) != self.names[place]
        }
        names = self.names
        if others:
            names = tuple(others.get(place, name) for place, name in enumerate(names))
        return HostArrays(hosts, capacity, committed, kind, kinds, names)

    def classes(self) -> HostClasses:
        """Return the classes of hosts where no request names or avoids single hosts.

        As `placement.round.host_classes.host_classes` does, in order of first appearance.
        """
        _, first, kind = np.unique(self.kind, return_index=True, return_inverse=True)
        in_order = np.argsort(first)
        number = np.empty_like(in_order)
        number[in_order] = np.arange(len(in_order))
        return HostClasses(number[kind].astype(np.int64), tuple(first[in_order].tolist()))


class KnownArrays:
    """The arrays of the latest hosts, for any thread."""

    def __init__(self) -> None:
        self._latest = HostArrays.of((), 0)

    def of(self, hosts: tuple[HostView, ...], resources: int) -> HostArrays:
        """Return the arrays of some hosts."""
        found = self._latest = self._latest.now(hosts, resources)
        return found


def _rows(rows: Sequence[Sequence[int]], width: int) -> IntArray:
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)
