"""The best combinations of VMs for one host by bounded search.

For more than two ranking resources, and where further resources or a coarse
grid keep the table of reachable amounts from an exact answer. Combinations are
built kind by kind, the largest first, whole layers at a time: partial
combinations that no longer fit are never made, those that cannot beat what is
known are pruned, and a layer too wide is thinned to its most promising rows,
equals in random order. Where thinning may have lost a better combination, the
result says that it was cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.model.arrays import FloatArray, IntArray
from placement.model.budget import Budget

#: Rows that a layer of the first, quick look may grow to, and that it keeps.
_QUICK_ROWS, _QUICK_KEPT = 3_000, 160
#: Combinations, partial ones included, that the search for better ones may look
#: at, spread over its layers.
SEARCH_LIMIT: Final = 20_000
#: Combinations built in one batch that cost about as much as one by itself.
_ROWS_A_UNIT: Final = 8
#: Bounds are computed in floats; nothing is pruned for less than this.
_SLACK: Final = 1e-12


def search_combinations(
    *,
    free: IntArray,
    room: IntArray,
    demand: IntArray,
    maximum: IntArray,
    ranking: IntArray,
    eta: int,
    kept: int,
    rng: np.random.Generator,
    budget: Budget,
) -> tuple[IntArray, FloatArray, bool]:
    """Search for the best combinations of VMs that fit into ``room``.

    Parameters are those of `placement.fuga.combinations.top_combinations.top_combinations`.
    Each ``maximum`` must be positive, and that many VMs of the kind must fit into an otherwise
    empty ``room``. At most ``kept`` combinations are returned.

    Returns
    -------
    counts : ndarray of int64, shape (K, T)
        VMs per kind.
    scores : ndarray of float64, shape (K,)
    cut : bool
        Whether the search was cut short.

    Notes
    -----
    For each ranking resource the search computes an upper bound: the remaining room of every
    other resource, times the best ratio of the two demands among the kinds not yet added.
    Partial combinations that cannot beat the best known scores are dropped; where a layer still
    has too many rows, the rows of highest bound are kept, and the search counts as cut short.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.where(free > 0, demand / free, 0.0).max(axis=1)
    order = np.argsort(-size, kind="stable")
    search = _CombinationSearch(
        free=free,
        room=_round_to_reachable(room, demand),
        demand=demand[order],
        maximum=maximum[order],
        ranking=ranking,
        eta=eta,
        kept=kept,
        rng=rng,
        budget=budget,
    )
    found, score, cut = search.run()
    counts = np.zeros_like(found)
    counts[:, order] = found
    return counts, score, cut


def _round_to_reachable(room: IntArray, demand: IntArray) -> IntArray:
    """Round a host's room down to sums that these demands can reach, which tightens the bounds."""
    step = np.gcd.reduce(demand, axis=0)
    reachable: IntArray = np.where(step > 0, room // np.maximum(step, 1) * step, 0)
    return reachable


@dataclass(slots=True, kw_only=True)
class _CombinationSearch:
    """One bounded search for the best combinations of VMs on a host."""

    free: IntArray
    room: IntArray
    demand: IntArray
    maximum: IntArray
    ranking: IntArray
    eta: int
    kept: int
    rng: np.random.Generator
    budget: Budget

    def run(self) -> tuple[IntArray, FloatArray, bool]:
        """Search; return counts (K, T) and scores (K,) of combinations, and whether it was cut."""
        a_layer = SEARCH_LIMIT // len(self.demand)
        quick = self._build_combinations(min(a_layer, _QUICK_ROWS), _QUICK_KEPT, above=-1.0)
        counts, score = self._best_rows(quick[0], quick[1])
        if not quick[2] or self._is_at_ceiling(score):
            return counts, score, False
        known = score[self.eta - 1] if len(score) >= self.eta else -1.0
        more = self._build_combinations(a_layer, a_layer, above=known)
        both = np.concatenate([counts, more[0]])
        both, first = np.unique(both, axis=0, return_index=True)
        counts, score = self._best_rows(both, np.concatenate([score, more[1]])[first])
        return counts, score, more[2] and not self._is_at_ceiling(score)

    def _is_at_ceiling(self, score: FloatArray) -> bool:
        """Return whether no combination can beat the ``eta`` best of these scores."""
        ceiling = self._bounds(0, np.zeros((1, len(self.free)), dtype=np.int64))[0]
        return len(score) >= self.eta and bool(score[self.eta - 1] >= ceiling - _SLACK)

    def _build_combinations(
        self, rows: int, kept: int, above: float
    ) -> tuple[IntArray, FloatArray, bool]:
        """Build combinations kind by kind; drop those that cannot score more than ``above``."""
        counts = np.zeros((1, len(self.demand)), dtype=np.int64)
        taken = np.zeros((1, len(self.free)), dtype=np.int64)
        thinned = False
        for kind in range(len(self.demand)):
            fits = _fit_rows(self.room - taken, self.demand[kind], int(self.maximum[kind]))
            # The last kind only ever helps: of each row its highest counts suffice.
            last = kind == len(self.demand) - 1
            choices = np.minimum(fits + 1, self.eta + 1) if last else fits + 1
            if choices.sum() > rows:
                chosen = self._highest_bounds(kind, taken, kept)
                inside = np.cumsum(choices[chosen]) <= max(rows, int(choices[chosen[0]]))
                chosen = np.sort(chosen[inside])
                thinned |= len(chosen) < len(taken)
                counts, taken = counts[chosen], taken[chosen]
                fits, choices = fits[chosen], choices[chosen]
            total = int(choices.sum())
            if not self.budget.spend(1 + total // _ROWS_A_UNIT):
                return counts, self._scores(taken), True
            parent = np.repeat(np.arange(len(choices)), choices)
            nth = np.arange(total) - np.repeat(np.cumsum(choices) - choices, choices)
            added = fits[parent] - nth
            counts, taken = counts[parent], taken[parent] + added[:, None] * self.demand[kind]
            counts[:, kind] = added
            if not last and len(taken) > kept:
                chosen = self._highest_bounds(kind + 1, taken, kept)
                thinned = True
                counts, taken = counts[np.sort(chosen)], taken[np.sort(chosen)]
            if above >= 0 and not last:
                hopeful = self._bounds(kind + 1, taken) > above + _SLACK
                counts, taken = counts[hopeful], taken[hopeful]
            if len(taken) == 0:
                break
        return counts, self._scores(taken), thinned

    def _highest_bounds(self, kind: int, taken: IntArray, kept: int) -> IntArray:
        """Return the partial combinations of highest bound; ties are in random order."""
        shuffled = self.rng.permutation(len(taken))
        bounds = self._bounds(kind, taken)[shuffled]
        best: IntArray = shuffled[np.argsort(-bounds, kind="stable")][:kept]
        return best

    def _bounds(self, kind: int, taken: IntArray) -> FloatArray:
        """Return an upper bound on the score of each partial combination, (K, R) to (K,)."""
        left = self.room - taken
        to_come = self.demand[kind:]
        bounds = np.full(len(taken), np.inf)
        for resource in self.ranking.tolist():
            reach = left[:, resource].astype(np.float64)
            for other in range(len(self.free)):
                ratio = _best_ratio(to_come[:, resource], to_come[:, other])
                if np.isfinite(ratio):
                    reach = np.minimum(reach, left[:, other] * ratio)
            by_count = float((self.maximum[kind:] * to_come[:, resource].astype(np.float64)).sum())
            reach = np.minimum(reach, by_count)
            bounds = np.minimum(bounds, (taken[:, resource] + reach) / self.free[resource])
        return bounds

    def _scores(self, taken: IntArray) -> FloatArray:
        """Return the minimum utilization of combinations of these amounts, (K, R) to (K,)."""
        scores: FloatArray = (taken[:, self.ranking] / self.free[self.ranking]).min(axis=1)
        return scores

    def _best_rows(self, counts: IntArray, score: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return the best combinations that take a VM; ties are in random order."""
        kept = counts.any(axis=1)
        counts, score = counts[kept], score[kept]
        shuffled = self.rng.permutation(len(score))
        best = shuffled[np.argsort(-score[shuffled], kind="stable")][: self.kept]
        return counts[best], score[best]


def _fit_rows(left: IntArray, demand: IntArray, max_count: int) -> IntArray:
    """Return how many VMs of a kind fit into what each partial combination leaves, (K,)."""
    demanded = demand > 0
    fits: IntArray = np.minimum((left[:, demanded] // demand[demanded]).min(axis=1), max_count)
    return fits


def _best_ratio(gain: IntArray, cost: IntArray) -> float:
    """Return the largest demand for one resource per unit of another, over all kinds of VM."""
    if ((cost == 0) & (gain > 0)).any():
        return float("inf")
    paid = cost > 0
    if not paid.any():
        return 0.0
    return float((gain[paid] / cost[paid]).max())
