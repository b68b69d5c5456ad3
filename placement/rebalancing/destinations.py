"""Find the best host for a unit without ranking all hosts again for each."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

import numpy as np

from placement.model.arrays import BoolArray, IntArray
from placement.rebalancing.measures import RANKING, skewness_of
from placement.rebalancing.placement_state import PlacementState
from placement.rebalancing.units import MoveUnit

#: A unit's key, and the zone.
_Key: TypeAlias = tuple[bytes, bytes, int]
#: By how much skewness rises, what is left in parts of the capacity, and the host.
_Row: TypeAlias = tuple[float, float, int]
#: Scores that differ by less are equal.
_DIGITS: Final = 9


class DestinationCriterion(StrEnum):
    """The criterion by which a host is chosen."""

    #: the host's utility in the FUGA game: where the potential rises most. v(A) is the same
    #: wherever the unit goes, so that is where skewness rises least; ties go to the tightest
    UTILITY = "utility"
    #: what is left on it in parts of its capacity: it packs better and is tried where
    #: utility leaves a unit without a destination
    TIGHTEST = "tightest"


@dataclass(slots=True, eq=False)
class _HostRanking:
    """Hosts ranked for alike units: sorted once, with a heap of the changed hosts."""

    rows: list[_Row]  #: best first; a row counts unless its host changed since
    open_to: BoolArray  #: (H,)
    demand: IntArray
    sorted_at: int  #: length of the log of changes when rows were sorted
    read: int  #: so much of the log is in the heap
    at: int = 0  #: the hosts of all rows before changed since
    changed: list[tuple[float, float, int, int]] = field(default_factory=list)


class Destinations:
    """Ranks hosts as destinations of units; after a change only those that changed.

    Parameters
    ----------
    where : PlacementState
        What it ranks by; its changes are followed.
    choice : DestinationCriterion
    ranking : sequence of int
        Indices of R that skewness runs over.

    Notes
    -----
    For units alike the hosts are sorted once, in O(H log H). A change of a host is
    an entry of a heap at the next query for alike units, so that n units of K
    kinds cost O(K H log H + n K log n), without looking at rules.
    """

    def __init__(
        self, where: PlacementState, choice: DestinationCriterion, ranking: Sequence[int] = RANKING
    ) -> None:
        self._where = where
        self._choice = choice
        self._ranking = [each for each in ranking if each < where.room.shape[1]]
        self._ranked: dict[_Key, _HostRanking] = {}
        #: length of the log after a host's last change
        self._version = [0] * len(where.room)
        self._read = 0
        self.weighed = 0  #: hosts looked at: units of work

    def choose_host(self, unit: MoveUnit, without: Collection[int] = ()) -> int | None:
        """Return the best destination of a unit now, or None.

        Soft groups count as long as they leave a host; those of ``without`` will not do.
        """
        ruled = any(map(self._where.is_ruled, unit.vms))
        found = self._best_host(unit, without, ruled=ruled, soft=ruled)
        if found is None and ruled:
            found = self._best_host(unit, without, ruled=True, soft=False)
        return found

    def _best_host(
        self, unit: MoveUnit, without: Collection[int], *, ruled: bool, soft: bool
    ) -> int | None:
        """Return the best destination of a unit, with groups and spreads kept if ``ruled``."""
        where, source = self._where, self._where.host[unit.vms[0]]

        def takes(host: int) -> bool:
            """Return whether a host may take the unit."""
            if host == source or host in without:
                return False
            return not ruled or not where.is_kept_apart(unit.vms, host, soft=soft)

        if unit.hosts is not None:
            allowed = [h for h in unit.hosts if takes(h) and where.allows(unit.vms, h, soft=soft)]
            rows = self._ranked_rows(
                unit.demand, where.open_to(unit.eligible), np.array(allowed, int)
            )
            return rows[0][2] if rows else None
        zones = where.zones_open_to(unit.vms) if ruled else None
        best: _Row | None = None
        for zone in [-1] if zones is None else zones:
            found = self._first_host_that_takes(self._ranking_for(unit, zone), takes)
            if found is not None and (best is None or found < best):
                best = found
        return None if best is None else best[2]

    def _first_host_that_takes(
        self, ranked: _HostRanking, takes: Callable[[int], bool]
    ) -> _Row | None:
        """Return the best-ranked host that takes the unit, as its row; None if there is none."""
        rows, changed, version = ranked.rows, ranked.changed, self._version
        deferred: list[tuple[float, float, int, int]] = []
        place, found = ranked.at, None
        while found is None:
            while place < len(rows) and version[rows[place][2]] > ranked.sorted_at:
                ranked.at += place == ranked.at
                place += 1
            while changed and changed[0][3] != version[changed[0][2]]:
                heapq.heappop(changed)
            if place == len(rows) and not changed:
                break
            self.weighed += 1
            if place == len(rows) or (changed and changed[0][:3] < rows[place]):
                found = changed[0][:3]
                if not takes(found[2]):
                    deferred.append(heapq.heappop(changed))
                    found = None
            elif takes(rows[place][2]):
                found = rows[place]
            else:
                place += 1
        for each in deferred:
            heapq.heappush(changed, each)
        return found

    def _ranking_for(self, unit: MoveUnit, zone: int) -> _HostRanking:
        """Return the ranking of destinations for units like this one, in a zone or (-1) in all."""
        log = self._where.changed
        for place in range(self._read, len(log)):
            self._version[log[place]] = place + 1
        self._read = len(log)
        key = (*unit.key, zone)
        ranked = self._ranked.get(key)
        if ranked is None:
            open_to = self._where.open_to(unit.eligible)
            if zone >= 0:
                open_to = open_to & (self._where.running.zones == zone)
            rows = self._ranked_rows(unit.demand, open_to, np.flatnonzero(open_to))
            ranked = self._ranked[key] = _HostRanking(
                rows, open_to, unit.demand, len(log), len(log)
            )
        elif ranked.read < len(log):
            hosts = np.unique(np.array(log[ranked.read :], dtype=np.int64))
            ranked.read = len(log)
            for row in self._ranked_rows(ranked.demand, ranked.open_to, hosts):
                heapq.heappush(ranked.changed, (*row, self._version[row[2]]))
        return ranked

    def _ranked_rows(self, demand: IntArray, open_to: BoolArray, hosts: IntArray) -> list[_Row]:
        """Return the hosts among some, (X,), with room for a moving demand, best first."""
        hosts = hosts[open_to[hosts]]
        left = self._where.room[hosts] - demand
        fits = ((left >= 0) | (demand == 0)).all(axis=1)
        hosts, left = hosts[fits], left[fits]
        self.weighed += len(hosts)
        capacity = self._where.running.snapshot.capacity[hosts]
        parts = np.divide(left, capacity, out=np.zeros(left.shape), where=capacity > 0)
        tight = np.round(parts.sum(axis=1), _DIGITS)
        rise = np.zeros(len(hosts))
        if self._choice is DestinationCriterion.UTILITY:
            of, ranking = capacity[:, self._ranking], self._ranking
            now = skewness_of(self._where.room[hosts][:, ranking], of)
            rise = np.round(skewness_of(left[:, ranking], of) - now, _DIGITS)
        order = np.lexsort((hosts, tight, rise))
        return list(
            zip(rise[order].tolist(), tight[order].tolist(), hosts[order].tolist(), strict=True)
        )
