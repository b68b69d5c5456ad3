"""Fair exchange, everything weighed again before each one: the oracle of the fast form."""

from __future__ import annotations

import numpy as np

from placement.fairness.levels import (
    is_poorer,
    level_in_steps,
    levels_in_steps,
    levels_of,
    relative_weights,
)
from placement.fairness.shares import dominant_shares
from placement.fuga.exchange import Exchange
from placement.model.arrays import FloatArray, IntArray
from placement.model.budget import Budget
from placement.model.reasons import hosts_open_to
from placement.model.vm_kinds import VmKinds
from placement.packing.draft import Draft


def plain_exchange(
    draft: Draft, kinds: VmKinds, budget: Budget
) -> tuple[tuple[Exchange, ...], bool]:
    made: list[Exchange] = []
    given = _Given.of(draft)
    try:
        while (found := _fairest(draft, given, kinds, budget)) is not None:
            draft.remove(found.taken_from, found.host, found.taken)
            draft.put(found.given_to, found.host)
            given.add(found.taken_from, found.host, -found.taken)
            given.add(found.given_to, found.host, 1)
            made.append(found)
    except _BudgetSpentError:
        return tuple(made), True
    return tuple(made), False


class _Given:
    """What a draft has placed, as rows of request, host, count; kept in step with it."""

    def __init__(self, rows: IntArray, places: dict[tuple[int, int], int]) -> None:
        self._rows = rows
        self._places = places

    @classmethod
    def of(cls, draft: Draft) -> _Given:
        rows = np.array(
            [(*key, count) for key, count in draft.placed_by_host.items()], dtype=np.int64
        )
        return cls(
            rows.reshape(-1, 3), {key: place for place, key in enumerate(draft.placed_by_host)}
        )

    @property
    def rows(self) -> IntArray:
        """Rows of which the count may be 0, shape (P, 3)."""
        return self._rows

    def add(self, request: int, host: int, count: int) -> None:
        place = self._places.setdefault((request, host), len(self._rows))
        if place == len(self._rows):
            self._rows = np.append(self._rows, [[request, host, 0]], axis=0)
        self._rows[place, 2] += count


class _BudgetSpentError(Exception):
    """The search must stop here."""


def _fairest(draft: Draft, rows: _Given, kinds: VmKinds, budget: Budget) -> Exchange | None:
    snapshot = draft.snapshot
    levels = levels_of(draft.held, snapshot.pool, snapshot.weight)
    weight = relative_weights(snapshot.weight)
    vm_level = dominant_shares(snapshot.demand, snapshot.pool) / weight[snapshot.tenant]
    given = rows.rows[rows.rows[:, 2] > 0]
    for poor in _waiting(draft, kinds, levels):
        one_vm = np.maximum(vm_level[given[:, 0]], vm_level[poor])
        with_one_more = levels[snapshot.tenant[poor]] + one_vm
        worth = is_poorer(with_one_more, levels[snapshot.tenant[given[:, 0]]])
        worth &= hosts_open_to(snapshot, poor)[given[:, 1]]
        candidates = given[worth]
        if not len(candidates):
            continue
        if not budget.spend(len(candidates)):
            raise _BudgetSpentError
        if (best := _best_of(draft, levels, poor, candidates)) is not None:
            return best
    return None


def _waiting(draft: Draft, kinds: VmKinds, levels: FloatArray) -> list[int]:
    """Return the requests that wait, the poorest tenant's first; of a tenant's alike the first."""
    tenants = draft.snapshot.tenant
    alike: dict[tuple[int, int], int] = {}
    asks = draft.snapshot.demand.any(axis=1)
    for request in np.flatnonzero((draft.remaining > 0) & asks).tolist():
        alike.setdefault((int(tenants[request]), int(kinds.of_request[request])), request)
    return sorted(alike.values(), key=lambda q: (level_in_steps(float(levels[tenants[q]])), q))


def _best_of(draft: Draft, levels: FloatArray, poor: int, candidates: IntArray) -> Exchange | None:
    """The best exchange in favour of one waiting request, None if there is none.

    ``candidates``, shape (P, 3), are rows of request, host, count.
    """
    snapshot, tenants = draft.snapshot, draft.snapshot.tenant
    weight = relative_weights(snapshot.weight)
    rich, hosts, counts = candidates.T
    need, back = snapshot.demand[poor], snapshot.demand[rich]
    missing = np.maximum(need - draft.room[hosts], 0)
    # VMs to take back until every resource suffices; impossible where one is
    # missing that they do not hold.
    needed = np.where(missing > 0, -(-missing // np.maximum(back, 1)), 0)
    taken = needed.max(axis=1, initial=0)
    possible = ~((missing > 0) & (back == 0)).any(axis=1) & (taken <= counts)
    # A gang keeps as many as it asked for at once.
    at_once = np.where(snapshot.min_count > 1, snapshot.min_count, 0)
    possible &= taken <= (draft.placed_counts - at_once)[rich]

    kept = draft.held[tenants[rich]] - taken[:, None] * back
    rich_after = dominant_shares(kept, snapshot.pool) / weight[tenants[rich]]
    poor_held = (draft.held[tenants[poor]] + need)[None]
    poor_after = dominant_shares(poor_held, snapshot.pool)[0] / weight[tenants[poor]]
    fair = np.flatnonzero(possible & ~is_poorer(rich_after, poor_after))
    if not len(fair):
        return None
    before = levels_in_steps(levels[tenants[rich]])
    lost = before - levels_in_steps(rich_after)
    best = fair[np.lexsort((hosts[fair], rich[fair], lost[fair], -before[fair]))[0]]
    return Exchange(
        host=int(hosts[best]), taken_from=int(rich[best]), taken=int(taken[best]), given_to=poor
    )
