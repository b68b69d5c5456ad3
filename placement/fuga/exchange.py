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

from placement.fairness.levels import all_in_steps, is_poorer, levels_of, relative_weights
from placement.fairness.shares import SHARE_TOLERANCE, dominant_shares
from placement.filling.draft import Draft
from placement.fuga.returnable import NEVER, Parties, Returnable
from placement.round.arrays import FloatArray, IntArray
from placement.round.budget import Budget
from placement.round.vm_kinds import VmKinds

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
    market = _Market(draft, kinds, budget)
    try:
        while (found := market.fairest()) is not None:
            market.make(found)
            made.append(found)
    except _BudgetSpentError:
        return tuple(made), True
    return tuple(made), False


class _BudgetSpentError(Exception):
    """The search must stop here."""


class _Market:
    """Finds the fairest exchange again and again.

    Requests that are alike, of one tenant and one kind, are one party: what one
    of them could gain or give, each could. A party in whose favour there is no
    exchange stays so until what the last exchange touched could change that:
    the parties with VMs on its host, and those of the tenant who became richer.
    The one who became poorer is looked at anew.
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
        poorest_first = parties[np.lexsort((self._waits[parties], all_in_steps(levels)))]
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
            together = min(2 * together, _MOST_TOGETHER)
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
        levels = all_in_steps(self._levels[self._parties.tenant[rich]])
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
        before = all_in_steps(self._levels[tenants])
        lost = before - all_in_steps(rich_after)
        best = fair[np.lexsort((hosts[fair], rich[fair], lost[fair], -before[fair]))[0]]
        return Exchange(
            host=int(hosts[best]),
            taken_from=int(rich[best]),
            taken=int(taken[best]),
            given_to=poor,
        )
