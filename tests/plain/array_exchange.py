"""Fair exchange over arrays of all parties: the oracle of each look, and of what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.fairness.levels import is_poorer, levels_in_steps, levels_of, relative_weights
from placement.fairness.shares import dominant_shares
from placement.fuga.exchange import Exchange
from placement.model.arrays import SHARE_TOLERANCE, FloatArray, IntArray
from placement.model.budget import Budget
from placement.model.snapshot import Snapshot
from placement.model.vm_kinds import VmKinds
from placement.packing.draft import Draft

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
        """Count again what is needed on a host; return the parties with VMs there, shape (X,)."""
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


#: So many pairs, weighed all at once, are about as much work as one combination.
_PAIRS_A_UNIT: Final = 512
#: So many of the poorest are looked at together at most.
_MAX_TOGETHER: Final = 64
#: After the richest, so many different levels are weighed at a time.
_RICHEST: Final = 32
#: More VMs than anybody can give back; below `NEVER`.
_ANY_NUMBER: Final = float(NEVER // 2)


def array_exchange(
    draft: Draft, kinds: VmKinds, budget: Budget
) -> tuple[tuple[Exchange, ...], bool]:
    made: list[Exchange] = []
    market = _ExchangeSearch(draft, kinds, budget)
    try:
        while (found := market.fairest()) is not None:
            market.make(found)
            made.append(found)
    except _BudgetSpentError:
        return tuple(made), True
    return tuple(made), False


class _BudgetSpentError(Exception):
    """The search must stop here."""


class _ExchangeSearch:
    """Finds the fairest exchange again and again.

    Requests that are alike, of one tenant and one kind, are one party: what one
    of them could gain or give, each could. A party in whose favour there is no
    exchange stays so until what the last exchange touched could change that:
    the parties with VMs on its host, and those of the tenant who became richer.
    The one who became poorer is looked at again.
    """

    def __init__(self, draft: Draft, kinds: VmKinds, budget: Budget) -> None:
        snapshot = draft.snapshot
        self._draft, self._budget = draft, budget
        self._parties = parties = Parties.of(snapshot, kinds)
        self._vms = Returnable(draft, parties)
        self._weight = relative_weights(snapshot.weight)
        self._levels = levels_of(draft.held, snapshot.pool, snapshot.weight)
        of_one_vm = dominant_shares(parties.demand, snapshot.pool)
        self._vm_level = of_one_vm / self._weight[parties.tenant]
        # A gang keeps as many as it asked for at once.
        self._at_once = np.where(snapshot.min_count > 1, snapshot.min_count, 0)
        #: of each party the first request that waits, -1 for none
        self._waits = np.full(len(parties), -1, dtype=np.int64)
        waiting = np.flatnonzero((draft.remaining > 0) & snapshot.demand.any(axis=1))[::-1]
        self._waits[parties.of_request[waiting]] = waiting
        self._in_vain = np.zeros(len(parties), dtype=np.bool_)

    def fairest(self) -> Exchange | None:
        """Return the fairest exchange, the poorest tenant's before all; None for none."""
        parties = np.flatnonzero((self._waits >= 0) & ~self._in_vain)
        levels = self._levels[self._parties.tenant[parties]]
        poorest_first = parties[np.lexsort((self._waits[parties], levels_in_steps(levels)))]
        everybody = np.arange(len(self._parties))
        # Often the very first has one, so more and more are looked at together.
        together = 1
        while len(poorest_first):
            looked_at, poorest_first = poorest_first[:together], poorest_first[together:]
            if not self._budget.spend(1 + len(looked_at) * len(everybody) // _PAIRS_A_UNIT):
                raise _BudgetSpentError
            spared = self._could_spare(looked_at, everybody)
            able = self._least_needed(looked_at, everybody) <= spared
            self._in_vain[looked_at] = ~able.any(axis=1)
            for poor in np.flatnonzero(able.any(axis=1)).tolist():
                rich = np.flatnonzero(able[poor])
                best = self._in_favour_of(int(looked_at[poor]), rich, spared[poor, rich])
                if best is not None:
                    return best
                self._in_vain[looked_at[poor]] = True
            together = min(2 * together, _MAX_TOGETHER)
        return None

    def make(self, exchange: Exchange) -> None:
        """Make an exchange, and take note of what it changes."""
        rich, host, poor = exchange.taken_from, exchange.host, exchange.given_to
        self._draft.put_all(np.array([[rich, host, -exchange.taken], [poor, host, 1]]))
        self._vms.add(rich, host, -exchange.taken)
        self._vms.add(poor, host, 1)
        snapshot = self._draft.snapshot
        poorer, richer = snapshot.tenant[[rich, poor]].tolist()
        both = [poorer, richer]
        shares = dominant_shares(self._draft.held[both], snapshot.pool)
        self._levels[both] = shares / self._weight[both]
        for party in self._parties.of_request[[rich, poor]].tolist():
            alike = self._parties.requests(party)
            waiting = alike[self._draft.remaining[alike] > 0]
            self._waits[party] = waiting[0] if len(waiting) else -1
        touched = self._vms.count_again(host)
        self._look_again(touched, now_poorer=poorer, now_richer=richer)

    def _look_again(self, touched: IntArray, *, now_poorer: int, now_richer: int) -> None:
        """Give another chance to whom the last exchange may have opened one."""
        tenant = self._parties.tenant
        self._in_vain &= tenant != now_poorer
        rich = np.union1d(touched, np.flatnonzero(tenant == now_richer))
        in_vain = np.flatnonzero(self._in_vain & (self._waits >= 0))
        # But for rounding and gangs these have one.
        able = self._least_needed(in_vain, rich) <= self._could_spare(in_vain, rich)
        self._in_vain[in_vain[able.any(axis=1)]] = False

    def _least_needed(self, poor: IntArray, rich: IntArray) -> IntArray:
        """Return the least VMs of rich parties that make room for poor ones, (poor, rich)."""
        needed = np.empty((len(poor), len(rich)), dtype=np.int64)
        of_kind = self._parties.kind[poor]
        for kind in np.unique(of_kind).tolist():
            needed[of_kind == kind] = self._vms.least_needed(kind)[rich]
        return needed

    def _in_favour_of(self, poor: int, rich: IntArray, spared: FloatArray) -> Exchange | None:
        """Return the best exchange with one of some rich parties, None if there is none.

        ``spared``, shape (rich,), are the most VMs that each may give.
        """
        kind = int(self._parties.kind[poor])
        # The richest come first, so there is seldom need to weigh many.
        levels = levels_in_steps(self._levels[self._parties.tenant[rich]])
        together = 1
        while len(rich):
            now = levels >= np.unique(levels)[-together:][0]
            rows, needed = self._vms.rows_of(rich[now], kind, spared[now])
            if not self._budget.spend(1 + len(rows) // _PAIRS_A_UNIT):
                raise _BudgetSpentError
            best = self._best_of(int(self._waits[poor]), rows, needed)
            if best is not None:
                return best
            rich, spared, levels = rich[~now], spared[~now], levels[~now]
            together = _RICHEST
        return None

    def _could_spare(self, poor: IntArray, rich: IntArray) -> FloatArray:
        """Return at most how many VMs rich parties may give for one VM of poor ones.

        Shape (poor, rich); below 0 where the richer's tenant is not richer by
        more than a VM, or would not stay as rich as the poorer one becomes.
        """
        snapshot, held, parties = self._draft.snapshot, self._draft.held, self._parties
        weight_of_poor = self._weight[parties.tenant[poor]]
        weight_of_rich = self._weight[parties.tenant[rich]]
        then = held[parties.tenant[poor]] + parties.demand[poor]
        after = dominant_shares(then, snapshot.pool) / weight_of_poor
        # Some resource must keep the richer tenant's share up; rounding is for `_best_of`.
        keeps = (after - 2 * SHARE_TOLERANCE)[:, None] * weight_of_rich
        most = np.full(keeps.shape, -1.0)
        of_rich = held[parties.tenant[rich]]
        for resource, pool in enumerate(snapshot.pool.tolist()):
            if pool > 0:
                above = of_rich[:, resource] - keeps * pool
                each = parties.demand[rich, resource]
                spared = above / np.maximum(each, 1)
                if not each.all():
                    spared = np.where(each > 0, spared, np.where(above >= 0, _ANY_NUMBER, -1.0))
                np.maximum(most, spared, out=most)
        levels = self._levels
        one_vm = np.maximum(self._vm_level[rich], self._vm_level[poor][:, None])
        with_one_more = levels[parties.tenant[poor]][:, None] + one_vm
        most[~is_poorer(with_one_more, levels[parties.tenant[rich]])] = -1.0
        return most

    def _best_of(self, poor: int, candidates: IntArray, taken: IntArray) -> Exchange | None:
        """The best exchange in favour of one waiting request, None if there is none.

        ``candidates``, shape (P, 2), are rows of request and host; ``taken``,
        shape (P,), how many of their VMs make room.
        """
        draft, snapshot = self._draft, self._draft.snapshot
        rich, hosts = candidates.T
        tenants, tenant = snapshot.tenant[rich], int(snapshot.tenant[poor])
        given = snapshot.count[rich] - draft.remaining[rich] - draft.not_begun[rich]
        possible = taken <= given - self._at_once[rich]

        kept = draft.held[tenants] - taken[:, None] * snapshot.demand[rich]
        rich_after = dominant_shares(kept, snapshot.pool) / self._weight[tenants]
        poor_held = (draft.held[tenant] + snapshot.demand[poor])[None]
        poor_after = dominant_shares(poor_held, snapshot.pool)[0] / self._weight[tenant]
        fair = np.flatnonzero(possible & ~is_poorer(rich_after, poor_after))
        if not len(fair):
            return None
        before = levels_in_steps(self._levels[tenants])
        lost = before - levels_in_steps(rich_after)
        best = fair[np.lexsort((hosts[fair], rich[fair], lost[fair], -before[fair]))[0]]
        return Exchange(
            host=int(hosts[best]), taken_from=int(rich[best]), taken=int(taken[best]), given_to=poor
        )
