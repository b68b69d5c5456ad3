"""Fair exchange: VMs of this round that a poorer tenant should have had.

Derived, not in a paper. The game trades fairness against utilisation host by
host, and quotas bound what a tenant is offered, but neither keeps one tenant's
VMs from taking the only hosts where another's would fit. Afterwards we look
for a host on which giving back VMs of a richer tenant makes room for a VM that
a poorer one still wants, and exchange them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.budget import Budget
from placement.draft import Draft
from placement.model import BoolArray, FloatArray, IntArray
from placement.reasons import hosts_open_to
from placement.shares import SHARE_TOLERANCE, dominant_shares
from placement.vm_kinds import VmKinds

#: Rows that are added where there were none.
_FIRST_ROWS: Final = 16
#: So many rows, weighed all at once, are about as much work as one combination.
_PAIRS_A_UNIT: Final = 64
#: So many different levels are weighed at a time, the richest first.
_RICHEST: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """On one host, VMs of one request made room for one VM of another."""

    host: int
    taken_from: int  #: request of the richer tenant
    taken: int  #: how many of its VMs
    given_to: int  #: request of the poorer tenant


def exchange_unfair(
    draft: Draft, kinds: VmKinds, budget: Budget
) -> tuple[tuple[Exchange, ...], bool]:
    """Exchange VMs between tenants until no single exchange is fairer.

    An exchange is made if the poorer tenant (by dominant share per weight) is
    more than one VM's share behind, and is not above the richer one afterwards.
    Each raises the sorted vector of shares lexicographically, so the sequence
    ends. Of the possible exchanges the poorest tenant's come first, then those
    against the richest, then those that take least, then the least index.

    Parameters
    ----------
    draft : Draft
        Changed in place. Only VMs of this round are taken; what ran before stays.
    kinds : VmKinds
        Of the draft's snapshot.
    budget : Budget
        One unit for each look in favour of a request, and one for every 64 pairs
        of request and host that it weighs; at its end the search stops.

    Returns
    -------
    tuple of Exchange
        In the order in which they were made.
    bool
        Did the budget end the search?
    """
    made: list[Exchange] = []
    market = _Market(draft, kinds, budget)
    try:
        while (found := market.fairest()) is not None:
            market.make(found)
            made.append(found)
    except _BudgetSpentError:
        return tuple(made), True
    return tuple(made), False


class _Given:
    """What a draft has placed, as rows of request, host, count; kept in step with it."""

    def __init__(self, rows: IntArray) -> None:
        self._rows = rows.copy()
        self._used = len(rows)
        self._places = {
            (request, host): place for place, (request, host) in enumerate(rows[:, :2].tolist())
        }

    @property
    def rows(self) -> IntArray:
        """Rows of which the count may be 0, shape (P, 3)."""
        return self._rows[: self._used]

    def add(self, request: int, host: int, count: int) -> None:
        place = self._places.setdefault((request, host), self._used)
        if place == self._used:
            if self._used == len(self._rows):
                more = np.zeros((max(len(self._rows), _FIRST_ROWS), 3), dtype=np.int64)
                self._rows = np.concatenate([self._rows, more])
            self._rows[place] = request, host, 0
            self._used += 1
        self._rows[place, 2] += count


class _BudgetSpentError(Exception):
    """The search must stop here."""


class _Market:
    """Finds the fairest exchange again and again.

    A request in whose favour there is none stays so until one of the rows that
    the last exchange touched could change that: those on its host, and those of
    the tenant who became richer. The one who became poorer is looked at anew.
    """

    def __init__(self, draft: Draft, kinds: VmKinds, budget: Budget) -> None:
        snapshot = draft.snapshot
        self._draft, self._kinds, self._budget = draft, kinds, budget
        self._tenants = snapshot.tenant
        self._levels = dominant_shares(draft.held, snapshot.pool) / snapshot.weight
        self._vm_level = (
            dominant_shares(snapshot.demand, snapshot.pool) / snapshot.weight[snapshot.tenant]
        )
        self._asks = snapshot.demand.any(axis=1)
        self._given = _Given(draft.rows)
        self._alike: dict[tuple[int, int], list[int]] = {}
        of_kind = kinds.of_request.tolist()
        for request in np.flatnonzero(self._asks).tolist():
            self._alike.setdefault((int(self._tenants[request]), of_kind[request]), []).append(
                request
            )
        #: of the requests of a tenant that are alike, the first that waits
        self._waits: dict[tuple[int, int], int] = {}
        for key in self._alike:
            self._look_who_waits(key)
        self._in_vain: set[int] = set()
        #: of each kind that was asked about, see `_needed_for`
        self._needed: dict[int, IntArray] = {}
        self._first_of_kind = np.unique(kinds.of_request, return_index=True)[1]
        self._open_to: dict[int, BoolArray] = {}

    def fairest(self) -> Exchange | None:
        """Return the fairest exchange, the poorest tenant's before all; None for none."""
        waiting = np.array(
            [each for each in self._waits.values() if each not in self._in_vain], dtype=np.int64
        )
        poorest_first = waiting[np.lexsort((waiting, self._levels[self._tenants[waiting]]))]
        for poor in poorest_first.tolist():
            best = self._in_favour_of(poor)
            if best is not None:
                return best
            self._in_vain.add(poor)
        return None

    def make(self, exchange: Exchange) -> None:
        """Make an exchange, and take note of what it changes."""
        rich, host, poor = exchange.taken_from, exchange.host, exchange.given_to
        self._draft.take_back(rich, host, exchange.taken)
        self._draft.put(poor, host)
        self._given.add(rich, host, -exchange.taken)
        self._given.add(poor, host, 1)
        snapshot = self._draft.snapshot
        both = self._tenants[[rich, poor]]
        shares = dominant_shares(self._draft.held[both], snapshot.pool)
        self._levels[both] = shares / snapshot.weight[both]
        of_kind = self._kinds.of_request
        for request in (rich, poor):
            self._look_who_waits((int(self._tenants[request]), int(of_kind[request])))
        self._count_again(host)
        self._look_again(host, now_poorer=int(both[0]), now_richer=int(both[1]))

    def _look_who_waits(self, key: tuple[int, int]) -> None:
        remaining = self._draft.remaining
        for request in self._alike[key]:
            if remaining[request] > 0:
                self._waits[key] = request
                return
        self._waits.pop(key, None)

    def _look_again(self, host: int, *, now_poorer: int, now_richer: int) -> None:
        """Give another chance to whom the last exchange may have opened one."""
        in_vain = np.array(sorted(self._in_vain), dtype=np.int64)
        if not len(in_vain):
            return
        rows = self._given.rows
        touched = (rows[:, 1] == host) | (self._tenants[rows[:, 0]] == now_richer)
        rich = np.unique(rows[touched & (rows[:, 2] > 0), 0])
        again = self._worth(in_vain[:, None], rich).any(axis=1)
        again |= self._tenants[in_vain] == now_poorer
        self._in_vain.difference_update(in_vain[again].tolist())

    def _worth(self, poor: int | IntArray, rich: IntArray) -> BoolArray:
        """Which requests' tenants are richer by more than one VM?"""
        gap = self._levels[self._tenants[rich]] - self._levels[self._tenants[poor]]
        one_vm = np.maximum(self._vm_level[rich], self._vm_level[poor])
        worth: BoolArray = gap > one_vm + SHARE_TOLERANCE
        return worth

    def _in_favour_of(self, poor: int) -> Exchange | None:
        """Return the best exchange in favour of one waiting request, None if there is none."""
        spared = self._could_spare(poor)
        if not spared.any():
            return None
        everything, needed = self._given.rows, self._needed_for(poor)
        places = np.flatnonzero((needed >= 0) & (needed <= spared[everything[:, 0]]))
        # The richest come first, so there is seldom need to weigh many.
        levels = self._levels[self._tenants[everything[places, 0]]]
        while len(places):
            now = levels >= np.unique(levels)[-_RICHEST:][0]
            weighed = places[now]
            if not self._budget.spend(1 + len(weighed) // _PAIRS_A_UNIT):
                raise _BudgetSpentError
            rows = everything[weighed]
            best = _best_of(self._draft, self._levels, poor, rows, needed[weighed])
            if best is not None:
                return best
            places, levels = places[~now], levels[~now]
        return None

    def _could_spare(self, poor: int) -> FloatArray:
        """Return at most how many VMs of each request may make room for one of the poor's.

        Shape (Q,); below 0 where its tenant is not richer by more than a VM, or
        would not stay as rich as the poorer one becomes.
        """
        snapshot, held = self._draft.snapshot, self._draft.held
        tenant = int(self._tenants[poor])
        then = held[tenant] + snapshot.demand[poor]
        after = dominant_shares(then[None], snapshot.pool)[0] / snapshot.weight[tenant]
        most = np.full(len(self._tenants), -1.0)
        # Some resource must keep the richer tenant's share up; rounding is for `_best_of`.
        keeps = (after - 2 * SHARE_TOLERANCE) * snapshot.weight
        for resource, pool in enumerate(snapshot.pool.tolist()):
            if pool > 0:
                above = (held[:, resource] - keeps * pool)[self._tenants]
                each = snapshot.demand[:, resource]
                beyond = np.where(above >= 0, np.inf, -1.0)
                np.maximum(most, np.divide(above, each, out=beyond, where=each > 0), out=most)
        most[~self._worth(poor, np.arange(len(self._tenants)))] = -1.0
        return most

    def _needed_for(self, request: int) -> IntArray:
        """Return how many VMs of each row make room for one of a request, -1 for not possible.

        Shape (P,). It depends on what the request demands and where it may go
        alone, so all that are alike share it.
        """
        kind = int(self._kinds.of_request[request])
        rows = self._given.rows
        known = self._needed.get(kind, np.zeros(0, dtype=np.int64))
        if len(known) < len(rows):
            more = self._count_needed(request, rows[len(known) :])
            known = self._needed[kind] = np.concatenate([known, more])
        return known

    def _count_needed(self, request: int, rows: IntArray) -> IntArray:
        snapshot, (rich, hosts, counts) = self._draft.snapshot, rows.T
        needed = np.zeros(len(rows), dtype=np.int64)
        possible = self._hosts_of(request)[hosts] & (counts > 0)
        for resource, demand in enumerate(snapshot.demand[request].tolist()):
            missing = demand - self._draft.room[hosts, resource]
            back = snapshot.demand[rich, resource]
            # VMs to take back until it suffices; impossible if they hold nothing of it.
            possible &= (missing <= 0) | (back > 0)
            np.maximum(needed, -(-missing // np.maximum(back, 1)), out=needed)
        return np.where(possible & (needed <= counts), needed, -1)

    def _count_again(self, host: int) -> None:
        """Count anew what is needed on a host, for all kinds that were asked about."""
        rows = self._given.rows
        there = np.flatnonzero(rows[:, 1] == host)
        for kind, known in self._needed.items():
            inside = there[there < len(known)]
            known[inside] = self._count_needed(int(self._first_of_kind[kind]), rows[inside])

    def _hosts_of(self, request: int) -> BoolArray:
        kind = int(self._kinds.of_request[request])
        if kind not in self._open_to:
            self._open_to[kind] = hosts_open_to(self._draft.snapshot, request)
        return self._open_to[kind]


def _best_of(
    draft: Draft, levels: FloatArray, poor: int, candidates: IntArray, taken: IntArray
) -> Exchange | None:
    """The best exchange in favour of one waiting request, None if there is none.

    ``candidates``, shape (P, 3), are rows of request, host, count; ``taken``,
    shape (P,), how many of their VMs make room.
    """
    snapshot, tenants = draft.snapshot, draft.snapshot.tenant
    rich, hosts, _ = candidates.T
    need, back = snapshot.demand[poor], snapshot.demand[rich]
    # A gang keeps as many as it asked for at once.
    at_once = np.where(snapshot.min_count > 1, snapshot.min_count, 0)
    possible = taken <= (draft.given - at_once)[rich]

    kept = draft.held[tenants[rich]] - taken[:, None] * back
    rich_after = dominant_shares(kept, snapshot.pool) / snapshot.weight[tenants[rich]]
    poor_held = (draft.held[tenants[poor]] + need)[None]
    poor_after = dominant_shares(poor_held, snapshot.pool)[0] / snapshot.weight[tenants[poor]]
    fair = np.flatnonzero(possible & (poor_after <= rich_after + SHARE_TOLERANCE))
    if not len(fair):
        return None
    before = levels[tenants[rich]]
    lost = before - rich_after
    best = fair[np.lexsort((hosts[fair], rich[fair], lost[fair], -before[fair]))[0]]
    return Exchange(
        host=int(hosts[best]),
        taken_from=int(rich[best]),
        taken=int(taken[best]),
        given_to=poor,
    )
