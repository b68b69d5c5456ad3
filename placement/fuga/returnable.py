"""What a round has placed, as VMs that could be given back to make room for others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.filling.draft import Draft
from placement.round.arrays import FloatArray, IntArray
from placement.round.model import Snapshot
from placement.round.vm_kinds import VmKinds

#: VMs needed where no number of them makes room.
NEVER: Final = 2**62
#: Room for so many new rows, and an eighth more than there are.
_MORE_ROWS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Parties:
    """The G parties of a snapshot: requests of one tenant and one kind are one."""

    tenant: IntArray  #: (G,)
    kind: IntArray  #: (G,)
    demand: IntArray  #: (G, R)
    of_request: IntArray  #: (Q,)
    first: IntArray  #: (T,) the first request of each kind
    _members: _Grouped

    def __len__(self) -> int:
        return len(self.tenant)

    @classmethod
    def of(cls, snapshot: Snapshot, kinds: VmKinds) -> Parties:
        """Find the parties, in order of tenant, then kind."""
        key = snapshot.tenant * max(len(kinds), 1) + kinds.of_request
        _, first, of_request = np.unique(key, return_index=True, return_inverse=True)
        return cls(
            tenant=snapshot.tenant[first],
            kind=kinds.of_request[first],
            demand=snapshot.demand[first],
            of_request=of_request,
            first=np.unique(kinds.of_request, return_index=True)[1],
            _members=_Grouped(of_request, len(first)),
        )

    def requests(self, party: int) -> IntArray:
        """Return the requests of a party, shape (X,), in order."""
        return self._members.of(party)


class Returnable:
    """Rows of request, host, VMs, kept in step with a draft while VMs are exchanged.

    For each kind that was asked about it knows how many VMs of each row make
    room for one of that kind, and the least of them for each party. Both depend
    on what the kind demands and where it may go alone.
    """

    def __init__(self, draft: Draft, parties: Parties) -> None:
        rows = draft.rows
        self._draft, self._parties = draft, parties
        self._used = len(rows)
        self._rows = np.zeros((len(rows) * 9 // 8 + _MORE_ROWS, 3), dtype=np.int64)
        self._rows[: self._used] = rows
        self._on_host = _Grouped(rows[:, 1], len(draft.free))
        self._of_party = _Grouped(parties.of_request[rows[:, 0]], len(parties))
        self._needed: dict[int, IntArray] = {}
        self._least: dict[int, IntArray] = {}

    def add(self, request: int, host: int, count: int) -> None:
        """Count VMs placed on a host, or below zero given back."""
        there = self._on_host.of(host)
        found = there[self._rows[there, 0] == request]
        place = int(found[0]) if len(found) else self._new_row(request, host)
        self._rows[place, 2] += count

    def _new_row(self, request: int, host: int) -> int:
        if self._used == len(self._rows):
            more = len(self._rows) // 8 + _MORE_ROWS
            self._rows = np.pad(self._rows, ((0, more), (0, 0)))
            for kind, known in self._needed.items():
                self._needed[kind] = np.pad(known, (0, more), constant_values=NEVER)
        place, self._used = self._used, self._used + 1
        self._rows[place] = request, host, 0
        self._on_host.add(host, place)
        self._of_party.add(int(self._parties.of_request[request]), place)
        return place

    def least_needed(self, kind: int) -> IntArray:
        """Return the least VMs of each party that make room for a kind's on some host, (G,)."""
        if kind not in self._least:
            needed = np.full(len(self._rows), NEVER, dtype=np.int64)
            needed[: self._used] = self._count([kind], self._rows[: self._used])[0]
            least = np.full(len(self._parties), NEVER, dtype=np.int64)
            parties = self._parties.of_request[self._rows[: self._used, 0]]
            np.minimum.at(least, parties, needed[: self._used])
            self._needed[kind], self._least[kind] = needed, least
        return self._least[kind]

    def rows_of(self, parties: IntArray, kind: int, most: FloatArray) -> tuple[IntArray, IntArray]:
        """Return rows where at most so many VMs of each party make room, and how many.

        Request and host, shape (P, 2), and VMs needed, shape (P,).
        """
        self.least_needed(kind)
        by_party = [self._of_party.of(party) for party in parties.tolist()]
        places = np.concatenate(by_party)
        needed = self._needed[kind][places]
        enough = needed <= np.repeat(most, [len(each) for each in by_party])
        return self._rows[places[enough], :2], needed[enough]

    def count_again(self, host: int) -> IntArray:
        """Count anew what is needed on a host; return the parties with VMs there, shape (X,)."""
        places = self._on_host.of(host)
        parties = self._parties.of_request[self._rows[places, 0]]
        kinds = list(self._needed)
        for kind, now in zip(kinds, self._count(kinds, self._rows[places]), strict=True):
            needed, least = self._needed[kind], self._least[kind]
            before = needed[places]
            needed[places] = now
            for changed in np.flatnonzero(before != now).tolist():
                party, fewer = int(parties[changed]), int(now[changed])
                if fewer <= least[party]:
                    least[party] = fewer
                elif before[changed] == least[party]:
                    least[party] = needed[self._of_party.of(party)].min()
        return np.unique(parties)

    def _count(self, kinds: list[int], rows: IntArray) -> IntArray:
        """Return how many VMs of each row make room for one of each kind, shape (K, P)."""
        snapshot, (rich, hosts, counts) = self._draft.snapshot, rows.T
        firsts = self._parties.first[kinds]
        needed = np.zeros((len(kinds), len(rows)), dtype=np.int64)
        for resource in range(len(snapshot.resources)):
            missing = snapshot.demand[firsts, resource][:, None] - self._draft.room[hosts, resource]
            back = snapshot.demand[rich, resource]
            # VMs to take back until it suffices; impossible if they hold nothing of it.
            each = np.where(back > 0, -(-missing // np.maximum(back, 1)), NEVER)
            np.maximum(needed, np.where(missing > 0, each, 0), out=needed)
        possible = (needed <= counts) & (counts > 0)
        possible &= snapshot.eligible[firsts][:, snapshot.host_class[hosts]]
        counted: IntArray = np.where(possible, needed, NEVER)
        return counted


class _Grouped:
    """Places by a group each, to which more may be added."""

    def __init__(self, of_place: IntArray, groups: int) -> None:
        self._order = np.argsort(of_place, kind="stable")
        self._bounds = np.searchsorted(of_place[self._order], np.arange(groups + 1)).tolist()
        self._more: dict[int, list[int]] = {}

    def add(self, group: int, place: int) -> None:
        self._more.setdefault(group, []).append(place)

    def of(self, group: int) -> IntArray:
        """Return the places of a group, in the order in which they came."""
        places = self._order[self._bounds[group] : self._bounds[group + 1]]
        more = self._more.get(group)
        return places if more is None else np.append(places, more)
