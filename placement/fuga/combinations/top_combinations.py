"""The best combinations of VMs for one host: its strategies in the game.

A host of 128 cores has more combinations of 20 kinds than could ever be
listed. With one or two ranking resources a table says which amounts can be
reached at all (`placement.fuga.combinations.reachable_amounts`): its states are visited from
the best score down, and combinations are read off by walking back through the table, at
random where there are many (`placement.fuga.combinations.combination_reader`). With more
ranking resources a bounded search takes its place
(`placement.fuga.combinations.search`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.fuga.combinations.combination_reader import CombinationReader
from placement.fuga.combinations.search import search_combinations
from placement.fuga.combinations.tables import ReachableTables
from placement.model.arrays import FloatArray, IntArray
from placement.model.budget import Budget

#: Combinations found for each distinct question; hosts draw their strategies
#: from them, so that hosts alike do not all choose alike.
POOL: Final = 64
#: A score so close to the best that is possible is the best.
_SLACK: Final = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Combinations:
    """The best combinations found for one question, best first."""

    counts: IntArray  #: (K, T) VMs of each kind
    score: FloatArray  #: (K,) minimum utilization over the ranking resources
    cut: bool  #: could the limit have hidden a better one?


def minimum_utilization(amounts: IntArray, free: IntArray, ranking: IntArray) -> FloatArray:
    """Return each combination's score: min over ranking resources of ``amounts / free``, (K,).

    Parameters
    ----------
    amounts : ndarray of int64, shape (K, R)
        Amounts that each combination takes.
    free : ndarray of int64, shape (R,)
        Free vector of the host, above zero in every ranking resource.
    ranking : ndarray of int64
        Indexes of R.
    """
    score: FloatArray = (amounts[:, ranking] / free[ranking]).min(axis=1)
    return score


def top_combinations(
    *,
    free: IntArray,
    room: IntArray,
    demand: IntArray,
    maximum: IntArray,
    ranking: IntArray,
    eta: int,
    rng: np.random.Generator,
    budget: Budget,
    pool: int = POOL,
    tables: ReachableTables | None = None,
) -> Combinations:
    """Return the best combinations of one host by minimum utilization.

    Parameters
    ----------
    free : ndarray of int64, shape (R,)
        The host's free vector F(m); scores are fractions of it.
    room : ndarray of int64, shape (R,)
        Room that may be filled: at most ``free``, less under an overload threshold.
    demand : ndarray of int64, shape (T, R)
        One VM of each kind.
    maximum : ndarray of int64, shape (T,)
        VMs of each kind that may be used, 0 where the host is closed to it.
    ranking : ndarray of int64
        Indexes of R.
    eta : int
        Number of best scores that must be exact.
    rng : numpy.random.Generator
        Chooses among combinations of equal score.
    budget : Budget
        One unit for each combination evaluated, or for eight partial ones or
        rows of tables, which are built all at once.
    pool : int
        Combinations to return if more than ``eta`` are equally good.
    tables : ReachableTables, optional
        Tables shared by all searches with the same demands; they support at most two
        ranking resources.

    Returns
    -------
    Combinations
        At most ``max(pool, eta)`` combinations, none empty. Unless ``cut``, the ``eta``
        best scores are those of full enumeration.

    Notes
    -----
    The strategies of a host are its ``eta`` combinations of highest minimum
    utilization [1]_; that a table finds them without enumeration is derived.

    References
    ----------
    .. [1] X. Xu, H. Yu, "A Game Theory Approach to Fair and Efficient Resource
       Allocation in Cloud Computing", Mathematical Problems in Engineering, 2014.
    """
    alone = _max_vms_alone(room, demand)
    usable = np.minimum(alone, maximum)
    kinds = np.flatnonzero(usable > 0)
    counts, cut = np.zeros((0, len(demand)), dtype=np.int64), False
    pool = max(pool, eta)
    if len(kinds) == 0:
        return Combinations(counts, np.zeros(0), cut)
    if len(ranking) <= 2:
        tables = tables or ReachableTables(demand, ranking, room)
        # Rooms that differ only beyond what the table allows share
        # it. What another resource keeps out would make dead ends of most of its states.
        in_table = (demand[:, ranking] <= room[ranking]).all(axis=1) & (demand > 0).any(axis=1)
        limits = np.where(alone > 0, maximum, np.where(in_table, 0, 1))
        table = tables.table(limits, np.maximum(alone, 1), budget)
        if table is not None:
            reader = CombinationReader(
                tables, table, free=free, room=room, maximum=usable, rng=rng, budget=budget
            )
            rows, cut = reader.best_combinations(eta, pool)
            counts = np.array(rows, dtype=np.int64).reshape(-1, len(demand))
        cut |= table is None or not tables.grid.exact
        if cut:
            score = minimum_utilization(counts @ demand, free, ranking)
            cut = not _has_reached_ceiling(np.sort(score)[::-1], eta, free, room, ranking)
    if len(ranking) > 2 or cut:
        found, _, cut = search_combinations(
            free=free,
            room=room,
            demand=demand[kinds],
            maximum=usable[kinds],
            ranking=ranking,
            eta=eta,
            kept=pool,
            rng=rng,
            budget=budget,
        )
        more = np.zeros((len(found), len(demand)), dtype=np.int64)
        more[:, kinds] = found
        counts = np.unique(np.concatenate([counts, more]), axis=0)
        counts = rng.permutation(counts)
    score = minimum_utilization(counts @ demand, free, ranking)
    best = np.argsort(-score, kind="stable")[:pool]
    return Combinations(counts[best], score[best], bool(cut))


def _max_vms_alone(room: IntArray, demand: IntArray) -> IntArray:
    """Return how many VMs of each kind a host's room holds without other kinds, shape (T,)."""
    demanded = demand > 0
    fits = np.where(demanded, room // np.maximum(demand, 1), np.iinfo(np.int64).max).min(axis=1)
    return np.where(demanded.any(axis=1), fits, 0).astype(np.int64)


def _has_reached_ceiling(
    score: FloatArray, eta: int, free: IntArray, room: IntArray, ranking: IntArray
) -> bool:
    """Return whether no combination can beat the best scores, given in falling order."""
    ceiling = float((room[ranking] / free[ranking]).min())
    return len(score) >= eta and float(score[eta - 1]) >= ceiling - _SLACK
