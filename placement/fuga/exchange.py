"""Fair exchange: VMs of this round that a poorer tenant should have had.

Derived, not in a paper. The game trades fairness against utilisation host by
host, and quotas bound what a tenant is offered, but neither keeps one tenant's
VMs from taking the only hosts where another's would fit. Afterwards we look
for a host on which giving back VMs of a richer tenant makes room for a VM that
a poorer one still wants, and exchange them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Final, TypeAlias, TypeVar

import numpy as np

from placement.fairness.levels import in_steps, levels_of, relative_weights
from placement.fairness.shares import SHARE_TOLERANCE
from placement.filling.draft import Draft
from placement.fuga.returnable import NEVER, Parties, Returnable
from placement.round.budget import Budget
from placement.round.vm_kinds import VmKinds

Place = TypeVar("Place", bound="tuple[float, ...]")
#: Level in steps, a party, and the most VMs that it may give.
Able: TypeAlias = tuple[int, int, float]

#: So many pairs, weighed all at once, are about as much work as one combination.
_PAIRS_A_UNIT: Final = 512
#: So many of the poorest are looked at together at most.
_MOST_TOGETHER: Final = 64
#: After the richest, so many different levels are weighed at a time.
_RICHEST: Final = 32
#: More VMs than anybody can give back; below `NEVER`.
_ANY_NUMBER: Final = float(NEVER // 2)


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
        One unit for each look, and one for every 512 pairs of who takes and who
        gives that it weighs; at its end the search stops.

    Returns
    -------
    tuple of Exchange
        In the order in which they were made.
    bool
        Did the budget end the search?
    """
    made: list[Exchange] = []
    market, cut = _Market(draft, kinds, budget), False
    try:
        while (found := market.fairest()) is not None:
            market.make(found)
            made.append(found)
    except _BudgetSpentError:
        cut = True
    market.settle()
    return tuple(made), cut


class _BudgetSpentError(Exception):
    """The search must stop here."""


class _Market:
    """Finds the fairest exchange again and again.

    Requests that are alike, of one tenant and one kind, are one party: what one
    of them could gain or give, each could. A party in whose favour there is no
    exchange stays so until what the last exchange touched could change that:
    the parties with VMs on its host, and those of the tenant who became richer.
    The one who became poorer is looked at anew.

    Who waits and who has something is kept in order of levels, so that a look
    ends at the first who can give. It is the same as a look at all parties,
    and is charged like one.
    """

    def __init__(self, draft: Draft, kinds: VmKinds, budget: Budget) -> None:
        snapshot = draft.snapshot
        self._draft, self._budget = draft, budget
        self._parties = parties = Parties.of(snapshot, kinds)
        self._vms = Returnable(draft, kinds, parties)
        self._pool = snapshot.pool.astype(np.float64).tolist()
        self._weight: list[float] = relative_weights(snapshot.weight).tolist()
        self._held = draft.held.tolist()
        self._demand = snapshot.demand.tolist()
        self._levels = levels_of(draft.held, snapshot.pool, snapshot.weight).tolist()
        self._steps = [in_steps(level) for level in self._levels]
        self._vm_level = [
            self._level_with(demand, tenant)
            for demand, tenant in zip(parties.demand, parties.tenant, strict=True)
        ]
        self._remaining: list[int] = draft.remaining.tolist()
        self._given: list[int] = draft.given.tolist()
        # A gang keeps as many as it asked for at once.
        self._at_once: list[int] = np.where(snapshot.min_count > 1, snapshot.min_count, 0).tolist()
        asks = set(np.flatnonzero(snapshot.demand.any(axis=1)).tolist())
        #: of each party the first request that waits, -1 for none
        self._waits = [
            next((each for each in alike if self._remaining[each] > 0 and each in asks), -1)
            for alike in parties.requests
        ]
        self._known_after: dict[int, float] = {}  #: see `_after`
        #: parties in whose favour there is none: the level that who gives must be above
        self._in_vain: dict[int, float] = {}
        #: the same by kind, the lowest level first
        self._vain_of_kind: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
        #: of these, those for whom somebody seemed able to make room
        self._seemed_able: set[int] = set()
        #: the parties that wait and are not in vain, the poorest tenant's first
        self._queue = sorted(
            self._place_of(party) for party, waits in enumerate(self._waits) if waits >= 0
        )
        #: the tenants, the richest first
        self._richest = sorted((-self._steps[each], each) for each in parties.of_tenant)
        self._moves: list[tuple[int, int, int]] = []

    def fairest(self) -> Exchange | None:
        """Return the fairest exchange, the poorest tenant's before all; None for none."""
        together, everybody = 1, len(self._parties)
        # Often the very first has one, so more and more are looked at together.
        while looked_at := [party for *_, party in self._queue[:together]]:
            if not self._budget.spend(1 + len(looked_at) * everybody // _PAIRS_A_UNIT):
                raise _BudgetSpentError
            able = [(party, self._able_by_level(party)) for party in looked_at]
            seem_able = [
                (party, [some], rest) for party, rest in able if (some := next(rest, None))
            ]
            for party in set(looked_at).difference(party for party, *_ in seem_able):
                self._note_in_vain(party)
            for party, first, rest in seem_able:
                best = self._in_favour_of(party, chain(first, rest))
                if best is not None:
                    return best
                self._note_in_vain(party)
                self._seemed_able.add(party)
            together = min(2 * together, _MOST_TOGETHER)
        return None

    def make(self, exchange: Exchange) -> None:
        """Make an exchange, and take note of what it changes."""
        rich, host, poor = exchange.taken_from, exchange.host, exchange.given_to
        self._moves += [(rich, host, -exchange.taken), (poor, host, 1)]
        of_request, tenant = self._parties.of_request, self._parties.tenant
        changes = ((rich, -exchange.taken), (poor, 1))
        both = {tenant[of_request[request]] for request, _ in changes}
        waiting = [
            party
            for each in both
            for party in self._parties.of_tenant[each]
            if self._waits[party] >= 0 and party not in self._in_vain
        ]
        for party in waiting:
            _take_out(self._queue, self._place_of(party))
        for each in both:
            _take_out(self._richest, (-self._steps[each], each))
        for request, count in changes:
            held = self._held[tenant[of_request[request]]]
            for resource, amount in enumerate(self._demand[request]):
                held[resource] += count * amount
            self._given[request] += count
            self._remaining[request] -= count
        for each in both:
            for party in self._parties.of_tenant[each]:
                self._known_after.pop(party, None)
            self._levels[each] = self._level_with(self._held[each], each)
            self._steps[each] = in_steps(self._levels[each])
            insort(self._richest, (-self._steps[each], each))
        self._note_who_waits(rich, poor)
        touched, opened = self._vms.exchange(host, rich, exchange.taken, poor)
        poorer, richer = tenant[of_request[rich]], tenant[of_request[poor]]
        again = self._look_again(touched, opened, now_poorer=poorer, now_richer=richer)
        concerned = {of_request[rich], of_request[poor], *waiting, *again}
        for party in concerned:
            if self._waits[party] >= 0 and party not in self._in_vain:
                insort(self._queue, self._place_of(party))

    def settle(self) -> None:
        """Place in the draft what was exchanged."""
        self._draft.put_all(np.array(self._moves, dtype=np.int64).reshape(-1, 3))

    def _note_who_waits(self, rich: int, poor: int) -> None:
        """Note the first request that waits of the party that gave and of the one that got."""
        gave, got = self._parties.of_request[rich], self._parties.of_request[poor]
        if self._remaining[rich] > 0:
            first = self._waits[gave]
            self._waits[gave] = rich if first < 0 else min(first, rich)
        if not self._remaining[poor]:
            alike = self._parties.requests[got]
            after = islice(alike, bisect_left(alike, poor), None)
            self._waits[got] = next((each for each in after if self._remaining[each] > 0), -1)

    def _look_again(
        self,
        touched: set[int],
        opened: Mapping[int, set[int]],
        *,
        now_poorer: int,
        now_richer: int,
    ) -> list[int]:
        """Give another chance to whom the last exchange may have opened one; return them."""
        of_tenant = self._parties.of_tenant
        again = [party for party in of_tenant[now_poorer] if party in self._in_vain]
        richer = of_tenant[now_richer]
        # Nobody else became richer, or able with fewer VMs.
        for kind, parties in self._vain_of_kind.items():
            some = self._with_least(kind, [*richer, *opened.get(kind, ())])
            if some:
                highest = max(self._levels[self._parties.tenant[rich]] for rich, _ in some)
                poorer = islice(parties, bisect_left(parties, (highest, -1)))
                again += [party for _, party in poorer if self._is_able(party, some)]
        # But for rounding and gangs these have one.
        for party in self._seemed_able:
            some = self._with_least(self._parties.kind[party], touched.union(richer))
            if self._is_able(party, some):
                again.append(party)
        for party in set(again):
            place = (self._in_vain.pop(party), party)
            _take_out(self._vain_of_kind[self._parties.kind[party]], place)
        self._seemed_able.difference_update(again)
        return again

    def _note_in_vain(self, party: int) -> None:
        # Its own level may rise meanwhile, which helps it nowhere.
        above = self._levels[self._parties.tenant[party]] + self._vm_level[party]
        self._in_vain[party] = above
        insort(self._vain_of_kind[self._parties.kind[party]], (above, party))
        _take_out(self._queue, self._place_of(party))

    def _place_of(self, party: int) -> tuple[int, int, int]:
        """Return what a party that waits is ordered by."""
        return self._steps[self._parties.tenant[party]], self._waits[party], party

    def _with_least(self, kind: int, rich: Iterable[int]) -> list[tuple[int, int]]:
        """Return of some parties those who can make room for a kind, with the least VMs of each."""
        rows_of = self._vms.by_party(kind)
        return [(each, min(rows_of[each])) for each in rich if each in rows_of]

    def _is_able(self, poor: int, some: Sequence[tuple[int, int]]) -> bool:
        return any(least <= self._could_spare(poor, rich) for rich, least in some)

    def _able(self, poor: int) -> Iterator[Able]:
        """Yield level in steps, party and the most VMs it may give, of those who can make room.

        The richest come first.
        """
        rows_of = self._vms.by_party(self._parties.kind[poor])
        if not rows_of:
            return
        of_tenant = self._parties.of_tenant
        too_poor = self._levels[self._parties.tenant[poor]] + self._vm_level[poor]
        for steps, tenant in self._richest:
            if self._levels[tenant] < too_poor - SHARE_TOLERANCE:
                return  # as all that follow: in steps, they may be richer by a step at most
            for rich in of_tenant[tenant]:
                if rich in rows_of:
                    most = self._could_spare(poor, rich)
                    if min(rows_of[rich]) <= most:
                        yield -steps, rich, most

    def _able_by_level(self, poor: int) -> Iterator[list[Able]]:
        return (list(each) for _, each in groupby(self._able(poor), key=itemgetter(0)))

    def _in_favour_of(self, poor: int, levels: Iterator[list[Able]]) -> Exchange | None:
        """Return the best exchange in favour of a party, None if there is none."""
        # The richest come first, so there is seldom need to weigh many.
        together = 1
        while some := [each for level in islice(levels, together) for each in level]:
            best = self._best_of(poor, some)
            if best is not None:
                return best
            together = _RICHEST
        return None

    def _could_spare(self, poor: int, rich: int) -> float:
        """Return at most how many VMs a rich party may give for one VM of a poor one.

        Below 0 where the richer's tenant is not richer by more than a VM, or would not stay
        as rich as the poorer one becomes.
        """
        levels, vm_level, tenants = self._levels, self._vm_level, self._parties.tenant
        tenant = tenants[rich]
        of_one = vm_level[rich] if vm_level[rich] > vm_level[poor] else vm_level[poor]
        if not levels[tenants[poor]] + of_one < levels[tenant] - SHARE_TOLERANCE:
            return -1.0
        # Some resource must keep the richer tenant's share up; rounding is for `_best_of`.
        level = (self._after(poor) - 2 * SHARE_TOLERANCE) * self._weight[tenant]
        held, demand, most = self._held[tenant], self._parties.demand[rich], -1.0
        for resource, pool in enumerate(self._pool):
            if pool > 0:
                above, each = held[resource] - level * pool, demand[resource]
                spared = above / each if each else _ANY_NUMBER if above >= 0 else -1.0
                most = spared if spared > most else most
        return most

    def _after(self, poor: int) -> float:
        """Return the level of a party's tenant with one VM more."""
        after = self._known_after.get(poor)
        if after is None:
            tenant, demand = self._parties.tenant[poor], self._parties.demand[poor]
            held = [has + more for has, more in zip(self._held[tenant], demand, strict=True)]
            after = self._known_after[poor] = self._level_with(held, tenant)
        return after

    def _level_with(self, held: Sequence[int], tenant: int) -> float:
        """Return the level of a tenant that holds so much."""
        shares = (has / pool for has, pool in zip(held, self._pool, strict=True) if pool > 0)
        return max(shares, default=0.0) / self._weight[tenant]

    def _best_of(self, poor: int, able: Sequence[Able]) -> Exchange | None:
        """The best exchange of a party with some who can make room, None if there is none."""
        rows_of = self._vms.by_party(self._parties.kind[poor])
        found = [
            (before, rich, needed, rows)
            for before, rich, most in able
            for needed, rows in rows_of[rich].items()
            if needed <= most
        ]
        if not self._budget.spend(1 + sum(len(rows) for *_, rows in found) // _PAIRS_A_UNIT):
            raise _BudgetSpentError
        poor_after = self._after(poor) - SHARE_TOLERANCE
        best: tuple[tuple[int, int, int], int] | None = None
        for before, rich, taken, rows in found:
            tenant, demand = self._parties.tenant[rich], self._parties.demand[rich]
            kept = [
                has - taken * each for has, each in zip(self._held[tenant], demand, strict=True)
            ]
            rich_after = self._level_with(kept, tenant)
            first = next((row for row in rows if self._gives(row, taken)), None)
            if rich_after < poor_after or first is None:
                continue
            order = (-before, before - in_steps(rich_after), first)
            if best is None or order < best[0]:
                best = order, taken
        if best is None:
            return None
        request, host = divmod(best[0][-1], self._vms.hosts)
        return Exchange(host=host, taken_from=request, taken=best[1], given_to=self._waits[poor])

    def _gives(self, row: int, taken: int) -> bool:
        request = row // self._vms.hosts
        return taken <= self._given[request] - self._at_once[request]


def _take_out(order: list[Place], place: Place) -> None:
    del order[bisect_left(order, place)]
