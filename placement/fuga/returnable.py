"""What a round has placed, as VMs that could be given back to make room for others."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from placement.filling.draft import Draft
from placement.round.arrays import IntArray
from placement.round.model import Snapshot
from placement.round.vm_kinds import VmKinds

#: VMs needed where no number of them makes room.
NEVER: Final = 2**62

#: Rows of a party by how many VMs of each make room: request and host as one number, in order.
Rows: TypeAlias = "dict[int, array[int]]"


@dataclass(frozen=True, slots=True, eq=False)
class Parties:
    """The G parties of a snapshot: requests of one tenant and one kind are one.

    Plain numbers, not arrays: an exchange touches a few parties, thousands of times.
    """

    tenant: Sequence[int]  #: (G,)
    kind: Sequence[int]  #: (G,)
    demand: Sequence[Sequence[int]]  #: (G, R)
    of_request: Sequence[int]  #: (Q,)
    requests: Sequence[Sequence[int]]  #: of each party, in order
    of_tenant: Mapping[int, Sequence[int]]  #: of each tenant, in order of kinds

    def __len__(self) -> int:
        return len(self.tenant)

    @classmethod
    def of(cls, snapshot: Snapshot, kinds: VmKinds) -> Parties:
        """Find the parties, in order of tenant, then kind."""
        key = snapshot.tenant * max(len(kinds), 1) + kinds.of_request
        _, first, of_request = np.unique(key, return_index=True, return_inverse=True)
        requests: list[list[int]] = [[] for _ in first]
        for request, party in enumerate(of_request.tolist()):
            requests[party].append(request)
        of_tenant: defaultdict[int, list[int]] = defaultdict(list)
        for party, tenant in enumerate(snapshot.tenant[first].tolist()):
            of_tenant[tenant].append(party)
        return cls(
            tenant=snapshot.tenant[first].tolist(),
            kind=kinds.of_request[first].tolist(),
            demand=snapshot.demand[first].tolist(),
            of_request=of_request.tolist(),
            requests=requests,
            of_tenant=of_tenant,
        )


class Returnable:
    """Rows of request, host, VMs, kept in step while VMs are exchanged.

    For each kind that was asked about it knows how many VMs of each row make
    room for one of that kind, and the rows of each party by that number. Both depend
    on what the kind demands and where it may go alone.
    """

    def __init__(self, draft: Draft, kinds: VmKinds, parties: Parties) -> None:
        snapshot, self._rows = draft.snapshot, draft.rows
        self._parties = parties
        self._party_of = np.array(parties.of_request, dtype=np.int64)
        self._demand, self._of_host = snapshot.demand, snapshot.host_class
        self._kinds, self._kind_demand = kinds, kinds.demand.tolist()
        self._room = draft.room.copy()
        self._by_host = np.argsort(self._rows[:, 1], kind="stable")
        hosts = np.arange(len(draft.room) + 1)
        self._bounds = np.searchsorted(self._rows[self._by_host, 1], hosts)
        #: VMs by request of hosts where something was exchanged
        self._there: dict[int, dict[int, int]] = {}
        self._of_party: dict[int, dict[int, Rows]] = {}
        self._known: list[int] = []

    @property
    def hosts(self) -> int:
        """By which the number of a row is divided: request, and the rest is the host."""
        return len(self._room)

    def by_party(self, kind: int) -> Mapping[int, Rows]:
        """Return of each party its rows that could make room for one VM of a kind."""
        if kind not in self._of_party:
            self._of_party[kind] = self._look_at(kind)
            self._known.append(kind)
        return self._of_party[kind]

    def exchange(
        self, host: int, rich: int, taken: int, poor: int
    ) -> tuple[set[int], Mapping[int, set[int]]]:
        """Count VMs of one request on a host as given back, and one more of another.

        Returns the parties with VMs there, or who had some, and each kind with the parties of
        which fewer VMs may make room for it than before.
        """
        there = self._on(host)
        before = self._count(host, there)
        demand = self._demand
        self._room[host] += taken * demand[rich] - demand[poor]
        there[rich] -= taken
        there[poor] = there.get(poor, 0) + 1
        after = self._count(host, there)
        of_request = self._parties.of_request
        opened: defaultdict[int, set[int]] = defaultdict(set)
        for kind, was, now in zip(self._known, before, after, strict=True):
            rows_of = self._of_party[kind]
            for request in was.keys() | now.keys():
                old, new = was.get(request), now.get(request)
                if old == new:
                    continue
                party = of_request[request]
                rows = rows_of.setdefault(party, {})
                if new is not None and new < min(rows, default=NEVER):
                    opened[kind].add(party)
                row = request * self.hosts + host
                if old is not None:
                    _remove(rows, old, row)
                if new is not None:
                    insort(rows.setdefault(new, array("q")), row)
                if not rows:
                    del rows_of[party]
        return {of_request[request] for request in there}, opened

    def _on(self, host: int) -> dict[int, int]:
        if host not in self._there:
            places = self._by_host[self._bounds[host] : self._bounds[host + 1]]
            requests, _, counts = self._rows[places].T.tolist()
            self._there[host] = dict(zip(requests, counts, strict=True))
        return self._there[host]

    def _count(self, host: int, there: Mapping[int, int]) -> list[dict[int, int]]:
        """Return for each known kind how many VMs of a request on a host make room for one."""
        room, parties = self._room[host].tolist(), self._parties
        counted: list[dict[int, int]] = []
        open_to = self._kinds.eligible[:, self._of_host[host]].tolist()
        for kind in self._known:
            makes_room: dict[int, int] = {}
            if open_to[kind]:
                wanted = zip(self._kind_demand[kind], room, strict=True)
                missing = [
                    (at, want - left) for at, (want, left) in enumerate(wanted) if want > left
                ]
                for request, count in there.items():
                    needed = _needed(missing, parties.demand[parties.of_request[request]])
                    if needed <= count and count > 0:
                        makes_room[request] = needed
            counted.append(makes_room)
        return counted

    def _look_at(self, kind: int) -> dict[int, Rows]:
        """Look at all rows for a kind."""
        rows = self._now()
        open_to = self._kinds.eligible[kind][self._of_host[rows[:, 1]]]
        rich, hosts, counts = rows[open_to & (rows[:, 2] > 0)].T
        needed = np.zeros(len(rich), dtype=np.int64)
        for resource, want in enumerate(self._kind_demand[kind]):
            missing = want - self._room[hosts, resource]
            back = self._demand[rich, resource]
            # VMs to take back until it suffices; impossible if they hold nothing of it.
            each = np.where(back > 0, -(-missing // np.maximum(back, 1)), NEVER)
            np.maximum(needed, np.where(missing > 0, each, 0), out=needed)
        able = needed <= counts
        needed, row = needed[able], rich[able] * self.hosts + hosts[able]
        party = self._party_of[rich[able]]
        order = np.lexsort((row, needed, party))
        needed, row, party = needed[order], row[order], party[order]
        changes = (np.diff(party, prepend=-1) != 0) | (np.diff(needed, prepend=-1) != 0)
        starts = np.flatnonzero(changes)
        found: dict[int, Rows] = {}
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(row)], strict=False):
            rows_of = found.setdefault(int(party[start]), {})
            rows_of[int(needed[start])] = array("q", row[start:end].tobytes())
        return found

    def _now(self) -> IntArray:
        """Return all rows, with what was exchanged meanwhile, shape (P, 3)."""
        if not self._there:
            return self._rows
        unchanged = self._rows[~np.isin(self._rows[:, 1], list(self._there))]
        changed = [
            (request, host, count)
            for host, there in self._there.items()
            for request, count in there.items()
        ]
        return np.concatenate([unchanged, np.array(changed, dtype=np.int64).reshape(-1, 3)])


def _needed(missing: Iterable[tuple[int, int]], back: Sequence[int]) -> int:
    needed = 0
    for resource, amount in missing:
        if not back[resource]:
            return NEVER
        needed = max(needed, -(-amount // back[resource]))
    return needed


def _remove(rows: Rows, needed: int, row: int) -> None:
    found = rows[needed]
    del found[bisect_left(found, row)]
    if not found:
        del rows[needed]
