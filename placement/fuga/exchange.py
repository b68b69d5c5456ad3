"""Fair exchange: give VMs of this round to poorer tenants.

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
from math import inf, nextafter
from operator import itemgetter
from typing import Final, TypeAlias, TypeVar

import numpy as np

from placement.fairness.levels import level_in_steps, levels_of, relative_weights
from placement.fairness.shares import SHARE_TOLERANCE
from placement.fuga.returnable_vms import NEVER, Parties, ReturnableVms
from placement.model.budget import Budget
from placement.model.vm_kinds import VmKinds
from placement.packing.draft import Draft

Place = TypeVar("Place", bound="tuple[float, ...]")
#: Level in steps, a party, and the most VMs that it may give.
Able: TypeAlias = tuple[int, int, float]

#: Pairs weighed in one batch that cost about as much as one combination.
_PAIRS_A_UNIT: Final = 512
#: The most of the poorest parties that are checked together.
_LARGEST_BATCH: Final = 64
#: Different levels that are weighed at a time, after the richest.
_RICHEST: Final = 32
#: More VMs than any party can give back; below `NEVER`.
_ANY_NUMBER: Final = float(NEVER // 2)
#: Parties found able within this margin are compared exactly afterwards.
_SLACK: Final = 3 * SHARE_TOLERANCE
_ROUNDING: Final = 1 - 1e-12
#: The range where no party is known to be unable to make room.
_ANYBODY: Final = (inf, inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A fair exchange on one host: VMs of one request made room for one of another."""

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
        One unit for each waiting party that is examined, and one for every 512 pairs of a
        taking and a giving party. The search stops when it is spent.

    Returns
    -------
    tuple of Exchange
        Exchanges in the order in which they were made.
    bool
        Whether the budget ended the search.
    """
    made: list[Exchange] = []
    market, cut = _ExchangeSearch(draft, kinds, budget), False
    try:
        while (found := market.fairest_exchange()) is not None:
            market.apply_exchange(found)
            made.append(found)
    except _BudgetSpentError:
        cut = True
    market.write_to_draft()
    return tuple(made), cut


class _BudgetSpentError(Exception):
    """The budget of the search for exchanges is spent."""


class _ExchangeSearch:
    """Finds the fairest exchange between tenants again and again.

    Requests that are alike, of one tenant and one kind, are one party: what one of them could
    gain or give, each could. A party without an exchange in its favour is checked again only
    after an exchange that could change this: one that touched parties on the same host, or made
    another tenant richer. The tenant that became poorer is always checked again.

    Waiting parties and parties with VMs are kept in order of levels, so that a search
    ends at the first party that can give. A tenant that could give only by falling below the
    poorer one is skipped without a search: what giving leaves a tenant at is known until it
    changes, and so is, of each kind, that no tenant of some level can be left at
    another. The result equals a search of all parties, and is charged like one.
    """

    def __init__(self, draft: Draft, kinds: VmKinds, budget: Budget) -> None:
        snapshot = draft.snapshot
        self._draft, self._budget = draft, budget
        self._parties = parties = Parties.of(snapshot, kinds)
        self._vms = ReturnableVms(draft, kinds, parties)
        pool = snapshot.pool.astype(np.float64).tolist()
        #: resources that the pool has something of, and how much
        self._pool = [(resource, amount) for resource, amount in enumerate(pool) if amount > 0]
        self._weight: list[float] = relative_weights(snapshot.weight).tolist()
        self._held = draft.held.tolist()
        self._demand = snapshot.demand.tolist()
        self._levels = levels_of(draft.held, snapshot.pool, snapshot.weight).tolist()
        self._steps = [level_in_steps(level) for level in self._levels]
        self._vm_level = [
            self._level_of_holdings(demand, tenant)
            for demand, tenant in zip(parties.demand, parties.tenant, strict=True)
        ]
        self._remaining: list[int] = draft.remaining.tolist()
        self._given: list[int] = draft.placed_counts.tolist()
        # A gang keeps its minimum.
        self._at_once: list[int] = np.where(snapshot.min_count > 1, snapshot.min_count, 0).tolist()
        wanting = set(np.flatnonzero(snapshot.demand.any(axis=1)).tolist())
        #: of each party the first request that waits, -1 for none
        self._waits = [
            next((each for each in alike if self._remaining[each] > 0 and each in wanting), -1)
            for alike in parties.requests
        ]
        self._known_after: dict[int, float] = {}  #: see `_level_after_one_more`
        #: parties without an exchange in their favour: the level that a giver must exceed
        self._without_exchange: dict[int, float] = {}
        #: the same by kind, the lowest level first
        self._without_exchange_by_kind = defaultdict[int, list[tuple[float, int]]](list)
        #: of these, those for which another party seemed able to make room
        self._seemed_able: set[int] = set()
        #: the waiting parties that may have an exchange, the poorest tenant's first
        self._queue = sorted(
            self._sort_key(party) for party, waits in enumerate(self._waits) if waits >= 0
        )
        #: the tenants, the richest first
        self._richest = sorted((-self._steps[each], each) for each in parties.of_tenant)
        #: of each tenant by kind, cached; see `_level_after_making_room`
        self._known_left: list[dict[int, float]] = [{} for _ in self._levels]
        #: of kinds: no tenant of at least this level can be left at the other by making room
        self._ruled_out: dict[int, tuple[float, float]] = {}
        self._moves: list[tuple[int, int, int]] = []

    def fairest_exchange(self) -> Exchange | None:
        """Return the fairest exchange, the poorest tenant's first; None if there is none."""
        together, parties = 1, len(self._parties)
        # Often the very first has one, so more and more are looked at together.
        while looked_at := [party for *_, party in self._queue[:together]]:
            if not self._budget.spend(1 + len(looked_at) * parties // _PAIRS_A_UNIT):
                raise _BudgetSpentError
            able = [(party, self._able_parties_by_level(party)) for party in looked_at]
            seem_able = [
                (party, [some], rest) for party, rest in able if (some := next(rest, None))
            ]
            for party in set(looked_at).difference(party for party, *_ in seem_able):
                self._mark_without_exchange(party)
            for party, first, rest in seem_able:
                best = self._best_exchange_for(party, chain(first, rest))
                if best is not None:
                    return best
                self._mark_without_exchange(party)
                self._seemed_able.add(party)
            together = min(2 * together, _LARGEST_BATCH)
        return None

    def apply_exchange(self, exchange: Exchange) -> None:
        """Make an exchange, and update levels, waiting VMs and the parties to check again."""
        rich, host, poor = exchange.taken_from, exchange.host, exchange.given_to
        self._moves += [(rich, host, -exchange.taken), (poor, host, 1)]
        of_request, tenant = self._parties.of_request, self._parties.tenant
        changes = ((rich, -exchange.taken), (poor, 1))
        both = {tenant[of_request[request]] for request, _ in changes}
        waiting = [
            party
            for each in both
            for party in self._parties.of_tenant[each]
            if self._waits[party] >= 0 and party not in self._without_exchange
        ]
        for party in waiting:
            _remove_from_order(self._queue, self._sort_key(party))
        for each in both:
            _remove_from_order(self._richest, (-self._steps[each], each))
        for request, count in changes:
            held = self._held[tenant[of_request[request]]]
            for resource, amount in enumerate(self._demand[request]):
                held[resource] += count * amount
            self._given[request] += count
            self._remaining[request] -= count
        for each in both:
            self._known_left[each].clear()
            for party in self._parties.of_tenant[each]:
                self._known_after.pop(party, None)
            self._levels[each] = self._level_of_holdings(self._held[each], each)
            self._steps[each] = level_in_steps(self._levels[each])
            insort(self._richest, (-self._steps[each], each))
        self._update_waiting(rich, poor)
        touched, opened = self._vms.record_exchange(host, rich, exchange.taken, poor)
        for party in touched:
            self._known_left[self._parties.tenant[party]].clear()
        poorer, richer = tenant[of_request[rich]], tenant[of_request[poor]]
        again = self._parties_to_recheck(touched, opened, now_poorer=poorer, now_richer=richer)
        concerned = {of_request[rich], of_request[poor], *waiting, *again}
        for party in concerned:
            if self._waits[party] >= 0 and party not in self._without_exchange:
                insort(self._queue, self._sort_key(party))

    def write_to_draft(self) -> None:
        """Write the VMs of all exchanges to the draft of the round."""
        self._draft.put_all(np.array(self._moves, dtype=np.int64).reshape(-1, 3))

    def _update_waiting(self, rich: int, poor: int) -> None:
        """Update the first waiting request of the giving and of the receiving party."""
        gave, got = self._parties.of_request[rich], self._parties.of_request[poor]
        if self._remaining[rich] > 0:
            first = self._waits[gave]
            self._waits[gave] = rich if first < 0 else min(first, rich)
        if not self._remaining[poor]:
            alike = self._parties.requests[got]
            after = islice(alike, bisect_left(alike, poor), None)
            self._waits[got] = next((each for each in after if self._remaining[each] > 0), -1)

    def _parties_to_recheck(
        self, touched: set[int], opened: Mapping[int, set[int]], *, now_poorer: int, now_richer: int
    ) -> list[int]:
        """Return the parties to check again because the last exchange may help them."""
        of_tenant = self._parties.of_tenant
        again = [party for party in of_tenant[now_poorer] if party in self._without_exchange]
        richer, no_tenant, known_after = of_tenant[now_richer], frozenset[int](), self._known_after
        # No other tenant became richer, or able with fewer VMs.
        for kind, parties in self._without_exchange_by_kind.items():
            highest, left = (
                self._levels[now_richer],
                self._level_after_making_room(kind, now_richer),
            )
            others = opened.get(kind, no_tenant)
            for rich in others:
                tenant = self._parties.tenant[rich]
                highest = max(highest, self._levels[tenant])
                left = max(left, self._level_after_making_room(kind, tenant))
            if kind in self._ruled_out:
                level, minimum = self._ruled_out[kind]
                self._ruled_out[kind] = level, max(minimum, nextafter(left, inf))
            if left < 0:
                continue
            for above, party in parties:
                if above >= highest:
                    break
                after = known_after.get(party) or self._level_after_one_more(party)
                if after * _ROUNDING - _SLACK <= left and self._has_able_party(
                    party, (*richer, *others)
                ):
                    again.append(party)
        # But for rounding and gangs these have one.
        some = touched.union(richer)
        again += [party for party in self._seemed_able if self._has_able_party(party, some)]
        for party in set(again):
            place = (self._without_exchange.pop(party), party)
            _remove_from_order(self._without_exchange_by_kind[self._parties.kind[party]], place)
        self._seemed_able.difference_update(again)
        return again

    def _mark_without_exchange(self, party: int) -> None:
        """Drop a waiting party until another exchange may help it."""
        # Its own level may have risen, which helps it nowhere.
        above = self._levels[self._parties.tenant[party]] + self._vm_level[party]
        self._without_exchange[party] = above
        insort(self._without_exchange_by_kind[self._parties.kind[party]], (above, party))
        _remove_from_order(self._queue, self._sort_key(party))

    def _sort_key(self, party: int) -> tuple[int, int, int]:
        """Return the sort key of a waiting party: the poorest tenant's comes first."""
        return self._steps[self._parties.tenant[party]], self._waits[party], party

    def _level_after_making_room(self, kind: int, tenant: int) -> float:
        """Return a tenant's highest level after it makes room for one VM of a kind.

        Returns -1 if the tenant can make no room. The value is cached until the tenant's level or
        rows change; it rules out nearly all parties.
        """
        known = self._known_left[tenant]
        left = known.get(kind)
        if left is None:
            rows_of, left = self._vms.rows_by_party(kind), -1.0
            for rich in self._parties.of_tenant[tenant]:
                if rich in rows_of:
                    left = max(left, self._level_after_giving(rich, min(rows_of[rich])))
            known[kind] = left
        return left

    def _level_after_giving(self, rich: int, taken: int) -> float:
        """Return the level of a party's tenant without ``taken`` of its VMs."""
        tenant, demand = self._parties.tenant[rich], self._parties.demand[rich]
        held = self._held[tenant]
        level = 0.0
        for resource, pool in self._pool:
            share = (held[resource] - taken * demand[resource]) / pool
            level = share if share > level else level
        return level / self._weight[tenant]

    def _has_able_party(self, poor: int, rich: Iterable[int]) -> bool:
        """Return whether one of these parties can make room for a VM of a poor one."""
        rows_of = self._vms.rows_by_party(self._parties.kind[poor])
        return any(
            min(rows_of[each]) <= self._max_vms_to_give(poor, each)
            for each in rich
            if each in rows_of
        )

    def _able_parties(self, poor: int) -> Iterator[Able]:
        """Yield level, party and largest number of VMs to give of the parties that can make room.

        The richest come first.
        """
        kind = self._parties.kind[poor]
        rows_of = self._vms.rows_by_party(kind)
        if not rows_of:
            return
        of_tenant, levels, known_left = self._parties.of_tenant, self._levels, self._known_left
        too_poor = levels[self._parties.tenant[poor]] + self._vm_level[poor] - SHARE_TOLERANCE
        left_at_least = self._level_after_one_more(poor) * _ROUNDING - _SLACK
        level, left = self._ruled_out.get(kind, _ANYBODY)
        if too_poor >= level and left_at_least >= left:
            return
        none_able = True
        for steps, tenant in self._richest:
            if levels[tenant] < too_poor:
                break  # as all that follow: in steps, they may be richer by a step at most
            left_at = known_left[tenant].get(kind)
            if (
                self._level_after_making_room(kind, tenant) if left_at is None else left_at
            ) < left_at_least:
                continue
            none_able = False
            for rich in of_tenant[tenant]:
                if rich in rows_of:
                    maximum = self._max_vms_to_give(poor, rich)
                    if min(rows_of[rich]) <= maximum:
                        yield -steps, rich, maximum
        if none_able:
            self._ruled_out[kind] = too_poor, left_at_least

    def _able_parties_by_level(self, poor: int) -> Iterator[list[Able]]:
        """Yield lists of the parties that can make room, those of one level together."""
        return (list(each) for _, each in groupby(self._able_parties(poor), key=itemgetter(0)))

    def _best_exchange_for(self, poor: int, levels: Iterator[list[Able]]) -> Exchange | None:
        """Return the best exchange in favour of a waiting party; None if there is none."""
        # The richest come first, so there is seldom need to weigh many.
        together = 1
        while some := [each for level in islice(levels, together) for each in level]:
            best = self._best_exchange_among(poor, some)
            if best is not None:
                return best
            together = _RICHEST
        return None

    def _max_vms_to_give(self, poor: int, rich: int) -> float:
        """Return the largest number of VMs that a rich party may give for one VM of a poor one.

        Returns a number below 0 if the rich tenant is not ahead by more than one VM, or would
        fall below the new level of the poor one.
        """
        levels, vm_level, tenants = self._levels, self._vm_level, self._parties.tenant
        tenant = tenants[rich]
        of_one = vm_level[rich] if vm_level[rich] > vm_level[poor] else vm_level[poor]
        if not levels[tenants[poor]] + of_one < levels[tenant] - SHARE_TOLERANCE:
            return -1.0
        # Some resource must keep the richer share up; `_best_exchange_among` then checks exactly.
        level = (self._level_after_one_more(poor) - 2 * SHARE_TOLERANCE) * self._weight[tenant]
        held, demand, maximum = self._held[tenant], self._parties.demand[rich], -1.0
        for resource, pool in self._pool:
            above, each = held[resource] - level * pool, demand[resource]
            spared = above / each if each else _ANY_NUMBER if above >= 0 else -1.0
            maximum = spared if spared > maximum else maximum
        return maximum

    def _level_after_one_more(self, poor: int) -> float:
        """Return the level of a party's tenant with one VM more."""
        after = self._known_after.get(poor)
        if after is None:
            tenant, demand = self._parties.tenant[poor], self._parties.demand[poor]
            held = [has + more for has, more in zip(self._held[tenant], demand, strict=True)]
            after = self._known_after[poor] = self._level_of_holdings(held, tenant)
        return after

    def _level_of_holdings(self, held: Sequence[int], tenant: int) -> float:
        """Return the level of a tenant that holds ``held``."""
        level = 0.0
        for resource, pool in self._pool:
            share = held[resource] / pool
            level = share if share > level else level
        return level / self._weight[tenant]

    def _best_exchange_among(self, poor: int, able: Sequence[Able]) -> Exchange | None:
        """Return the best exchange between a party and parties that can make room, or None."""
        rows_of = self._vms.rows_by_party(self._parties.kind[poor])
        found, pairs = [], 0
        for before, rich, maximum in able:
            for needed, rows in rows_of[rich].items():
                if needed <= maximum:
                    found.append((before, rich, needed, rows))
                    pairs += len(rows)
        if not self._budget.spend(1 + pairs // _PAIRS_A_UNIT):
            raise _BudgetSpentError
        poor_after = self._level_after_one_more(poor) - SHARE_TOLERANCE
        best: tuple[tuple[int, int, int], int] | None = None
        for before, rich, taken, rows in found:
            rich_after = self._level_after_giving(rich, taken)
            if rich_after < poor_after:
                continue
            richer, lost = -before, before - level_in_steps(rich_after)
            if best is not None and (richer, lost) > best[0][:2]:
                continue
            first = self._first_giving_row(rows, taken)
            if first is not None and (best is None or (richer, lost, first) < best[0]):
                best = (richer, lost, first), taken
        if best is None:
            return None
        request, host = divmod(best[0][-1], self._vms.hosts)
        return Exchange(host=host, taken_from=request, taken=best[1], given_to=self._waits[poor])

    def _first_giving_row(self, rows: Iterable[int], taken: int) -> int | None:
        """Return the first row whose request may give ``taken`` of its VMs; None if none may."""
        hosts, given, at_once = self._vms.hosts, self._given, self._at_once
        for row in rows:
            request = row // hosts
            if taken <= given[request] - at_once[request]:
                return row
        return None


def _remove_from_order(order: list[Place], place: Place) -> None:
    """Remove a party of exchanges from a sorted list."""
    del order[bisect_left(order, place)]
