"""VMs placed in this round that could be returned to make room for others."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from placement.model.arrays import IntArray
from placement.model.snapshot import Snapshot
from placement.model.vm_kinds import VmKinds
from placement.packing.draft import Draft

#: VMs needed where no number of them makes room.
NEVER: Final = 2**62

#: Rows of a party by how many VMs of each make room: request and host as one number, in order.
Rows: TypeAlias = "dict[int, array[int]]"


@dataclass(frozen=True, slots=True, eq=False)
class Parties:
    """The G parties of fair exchanges: the requests of one tenant and one kind of VM are one.

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
        """Find the parties of exchanges among the requests, in order of tenant and kind."""
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


@dataclass(frozen=True, slots=True)
class _NeededCounts:
    """The VMs of each kind to take back on hosts of one class with equal room."""

    room: tuple[int, ...]
    open_to: Sequence[bool]  #: of each kind
    #: by the kind that is taken back, for each known kind
    of_kind: dict[int, tuple[int, ...]] = field(default_factory=dict)


class ReturnableVms:
    """The rows of request, host and VMs that an exchange can take back, updated by exchanges.

    For each queried kind it knows how many VMs of each row make
    room for one of that kind, and the rows of each party by that number. Both depend
    on what the kind demands and where it may go alone.
    """

    def __init__(self, draft: Draft, kinds: VmKinds, parties: Parties) -> None:
        snapshot, self._rows = draft.snapshot, draft.rows
        self._parties = parties
        self._party_of = np.array(parties.of_request, dtype=np.int64)
        self._demand, self._of_host = snapshot.demand, snapshot.host_class
        self._kinds, self._kind_demand = kinds, kinds.demand.tolist()
        self._kind_of, self._open_to = kinds.of_request.tolist(), kinds.eligible.T.tolist()
        self._room = draft.room.copy()
        #: room of hosts where something was exchanged
        self._room_now: dict[int, tuple[int, ...]] = {}
        #: see `_needed_counts_on`; few rooms are different, as little is left in any
        self._known_needed: dict[tuple[int, ...], _NeededCounts] = {}
        self._by_host = np.argsort(self._rows[:, 1], kind="stable")
        hosts = np.arange(len(draft.room) + 1)
        self._bounds = np.searchsorted(self._rows[self._by_host, 1], hosts)
        #: VMs by request of hosts where something was exchanged
        self._there: dict[int, dict[int, int]] = {}
        self._of_party: dict[int, dict[int, Rows]] = {}
        self._known: list[int] = []

    @property
    def hosts(self) -> int:
        """The number of hosts: a row's number is ``request * hosts + host``."""
        return len(self._room)

    def rows_by_party(self, kind: int) -> Mapping[int, Rows]:
        """Return the rows of each party whose VMs could make room for one VM of a kind."""
        if kind not in self._of_party:
            self._of_party[kind] = self._find_rows(kind)
            self._known.append(kind)
            self._known_needed.clear()
        return self._of_party[kind]

    def record_exchange(
        self, host: int, rich: int, taken: int, poor: int
    ) -> tuple[set[int], Mapping[int, set[int]]]:
        """Record an exchange: VMs of one request are given back on a host for one of another.

        Returns the parties that have or had VMs there, and each kind with the parties of
        which fewer VMs may make room for it than before.
        """
        there, of_request, hosts = self._vms_on_host(host), self._parties.of_request, self.hosts
        room = self._room_now.get(host) or tuple(self._room[host].tolist())
        back, wanted = self._demand_of(rich), self._demand_of(poor)
        left = tuple(
            has + taken * each - want for has, each, want in zip(room, back, wanted, strict=True)
        )
        there.setdefault(poor, 0)
        remaining = {**there, rich: there[rich] - taken}
        remaining[poor] += 1
        of_class = int(self._of_host[host])
        before, after = (
            self._needed_counts_on(of_class, room),
            self._needed_counts_on(of_class, left),
        )
        opened: defaultdict[int, set[int]] = defaultdict(set)
        for request, count in there.items():
            kind, remains = self._kind_of[request], remaining[request]
            was = before.of_kind.get(kind) or self._compute_needed(before, kind)
            now = after.of_kind.get(kind) or self._compute_needed(after, kind)
            if was == now and count == remains:
                continue
            party, row = of_request[request], request * hosts + host
            for known, old, new in zip(self._known, was, now, strict=True):
                had, has = 0 < count >= old, 0 < remains >= new
                if had is has and (old == new or not has):
                    continue
                rows_of = self._of_party[known]
                rows = rows_of.setdefault(party, {})
                if has and new < min(rows, default=NEVER):
                    opened[known].add(party)
                if had:
                    _remove_row(rows, old, row)
                if has:
                    insort(rows.setdefault(new, array("q")), row)
                if not rows:
                    del rows_of[party]
        self._there[host], self._room_now[host] = remaining, left
        return {of_request[request] for request in remaining}, opened

    def _vms_on_host(self, host: int) -> dict[int, int]:
        """Return the VMs of each request on a host, with the exchanges so far."""
        if host not in self._there:
            places = self._by_host[self._bounds[host] : self._bounds[host + 1]]
            requests, _, counts = self._rows[places].T.tolist()
            self._there[host] = dict(zip(requests, counts, strict=True))
        return self._there[host]

    def _demand_of(self, request: int) -> Sequence[int]:
        """Return the demand of one VM of a request."""
        return self._parties.demand[self._parties.of_request[request]]

    def _needed_counts_on(self, of_class: int, room: tuple[int, ...]) -> _NeededCounts:
        """Return the VMs to take back on a host to make room for one VM, by the kind taken back.

        The result has a number for each known kind, computed at its first use.
        """
        key = (of_class, *room)
        needed = self._known_needed.get(key)
        if needed is None:
            needed = self._known_needed[key] = _NeededCounts(room, self._open_to[of_class])
        return needed

    def _compute_needed(self, needed: _NeededCounts, back: int) -> tuple[int, ...]:
        """Return how many VMs of the kind ``back`` make room for one VM of each queried kind."""
        demand, room = self._kind_demand, needed.room
        found = needed.of_kind[back] = tuple(
            _vms_to_take_back(demand[kind], room, demand[back]) if needed.open_to[kind] else NEVER
            for kind in self._known
        )
        return found

    def _find_rows(self, kind: int) -> dict[int, Rows]:
        """Find the rows of each party whose VMs could make room for one VM of a kind."""
        rows = self._current_rows()
        if self._room_now:
            self._room[list(self._room_now)] = [*self._room_now.values()]
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
        ends = np.append(starts[1:], len(row)) * row.itemsize
        found: dict[int, Rows] = {}
        in_bytes = memoryview(row.tobytes())
        for which, number, start, end in zip(
            party[starts].tolist(),
            needed[starts].tolist(),
            (starts * row.itemsize).tolist(),
            ends.tolist(),
            strict=False,  # of no row there is no start, and one end
        ):
            found.setdefault(which, {})[number] = array("q", in_bytes[start:end].tobytes())
        return found

    def _current_rows(self) -> IntArray:
        """Return all rows with the exchanges applied, shape (P, 3)."""
        if not self._there:
            return self._rows
        unchanged = self._rows[~np.isin(self._rows[:, 1], list(self._there))]
        changed = [
            (request, host, count)
            for host, there in self._there.items()
            for request, count in there.items()
        ]
        return np.concatenate([unchanged, np.array(changed, dtype=np.int64).reshape(-1, 3)])


def _vms_to_take_back(wanted: Sequence[int], room: Sequence[int], back: Sequence[int]) -> int:
    """Return how many VMs of one demand make room for one of another; NEVER if none do."""
    needed = 0
    for want, left, each in zip(wanted, room, back, strict=True):
        if want > left:
            if not each:
                return NEVER
            needed = max(needed, -((left - want) // each))
    return needed


def _remove_row(rows: Rows, needed: int, row: int) -> None:
    """Remove a row from the rows of a party that need this number of VMs."""
    found = rows[needed]
    del found[bisect_left(found, row)]
    if not found:
        del rows[needed]
