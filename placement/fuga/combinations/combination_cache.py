"""Find the best combinations of hosts, and cache them for later rounds.

Most hosts do not change between two rounds, so most queries repeat. The random numbers of a query
are seeded by the query alone, so its answer is the same in every round and can be cached. What a
budget is charged does not depend on the cache either, so a replay decides as its round did.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.fuga.combinations.tables import ReachableTables
from placement.fuga.combinations.top_combinations import Combinations, top_combinations
from placement.model.arrays import IntArray
from placement.model.budget import Budget

#: Bytes of answers kept before the oldest of twice as many are forgotten. Most answers are a
#: kilobyte; where few hosts choose among a hundred kinds of VM, fifty.
MAX_KEPT: Final = 2**25
#: What an answer takes in addition to its query and its arrays.
_ENTRY_OVERHEAD_BYTES: Final = 600


@dataclass(frozen=True, slots=True, eq=False)
class BestCombinations:
    """The best combinations, and the budget units that the search spent."""

    found: Combinations  #: counts of the queried kinds, in their order
    units: int


class CombinationCache:
    """A cache of hosts' best combinations by query, in two generations of bounded size."""

    def __init__(self, maximum: int = MAX_KEPT) -> None:
        self._maximum, self._size = maximum, 0
        self._newer: dict[bytes, BestCombinations] = {}
        self._older: dict[bytes, BestCombinations] = {}

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def clear(self) -> None:
        """Drop all cached combinations."""
        self._newer, self._older, self._size = {}, {}, 0

    def get(self, query: bytes) -> BestCombinations | None:
        """Return the cached combinations of a query, or None."""
        answer = self._newer.get(query)
        if answer is None and (answer := self._older.pop(query, None)) is not None:
            self.store(query, answer)
        return answer

    def store(self, query: bytes, answer: BestCombinations) -> None:
        """Store the combinations of a query; when a generation is full, drop the older one."""
        size = (
            len(query)
            + answer.found.counts.nbytes
            + answer.found.score.nbytes
            + _ENTRY_OVERHEAD_BYTES
        )
        if self._size + size > self._maximum:
            self._older, self._newer, self._size = self._newer, {}, 0
        self._newer[query] = answer
        self._size += size


#: Of this process, whichever rounds it decides.
KEPT: Final = CombinationCache()


class CombinationFinder:
    """Finds combinations for the hosts of one round.

    A query has a normal form that does not depend on the rest of the round: only the kinds that
    the host could take, in order of their demands.

    Parameters
    ----------
    demand : ndarray of int64, shape (T, R)
    ranking : ndarray of int64
        Indexes of R.
    eta : int
    largest : ndarray of int64, shape (R,)
        No smaller than any queried room.
    budget : Budget
    kept : CombinationCache, optional
    """

    def __init__(
        self,
        demand: IntArray,
        ranking: IntArray,
        eta: int,
        largest: IntArray,
        budget: Budget,
        *,
        kept: CombinationCache = KEPT,
    ) -> None:
        self._demand, self._ranking, self._eta = demand, ranking, eta
        self._largest, self._budget, self._kept = largest, budget, kept
        self._in_order = sorted(range(len(demand)), key=lambda kind: tuple(demand[kind].tolist()))
        self._about: dict[tuple[int, ...], tuple[ReachableTables | None, bytes]] = {}

    def find(
        self, *, free: IntArray, room: IntArray, fits: IntArray, maximum: IntArray, pool: int
    ) -> Combinations:
        """Return the best combinations of one host; see `top_combinations`.

        Parameters
        ----------
        free, room : ndarray of int64, shape (R,)
        fits : ndarray of int64, shape (T,)
            VMs of each kind that the room holds without other kinds; 0 if the host is
        closed to the kind.
        maximum : ndarray of int64, shape (T,)
            VMs of each kind that may be used, at most those that fit.
        pool : int
        """
        usable = maximum.tolist()
        kinds = tuple(kind for kind in self._in_order if usable[kind] > 0)
        if not kinds:
            nothing = np.zeros((0, len(usable)), dtype=np.int64)
            return Combinations(nothing, np.zeros(0), cut=False)
        tables, about = self._about.get(kinds) or self._tables_for(kinds)
        numbers = [usable[kind] for kind in kinds]
        query = b"".join(
            (about, free.tobytes(), room.tobytes(), np.array([*numbers, pool]).tobytes())
        )
        answer = self._kept.get(query)
        if tables is not None:
            charged = tables.charge(numbers, fits[list(kinds)].tolist(), self._budget)
            answer = None if charged is None else answer
        left = self._budget.left
        if answer is None or (left is not None and left < answer.units):
            answer = self._search_best(kinds, np.stack([free, room]), [*numbers, pool], query)
        else:
            self._budget.spend(answer.units)
        return _expand_to_all_kinds(answer.found, kinds, len(self._demand))

    def _tables_for(self, kinds: tuple[int, ...]) -> tuple[ReachableTables | None, bytes]:
        """Return the tables of reachable amounts for some kinds, and what their queries share."""
        demand, tables = self._demand[list(kinds)], None
        key = [self._eta, *self._ranking.tolist(), len(kinds), *demand.ravel().tolist()]
        if len(self._ranking) <= 2:
            tables = ReachableTables(demand, self._ranking, self._largest)
            key += [*tables.grid.unit, *tables.grid.size]
        ready = self._about[kinds] = (tables, np.array(key, dtype=np.int64).tobytes())
        return ready

    def _search_best(
        self, kinds: tuple[int, ...], amounts: IntArray, numbers: Sequence[int], query: bytes
    ) -> BestCombinations:
        """Search the best combinations of VMs for the host of a query.

        ``amounts`` are free and room, ``numbers`` end with the pool.
        """
        demand, (free, room), (*maximum, pool) = self._demand[list(kinds)], amounts, numbers
        tables, _ = self._about[kinds]
        before, refused = self._budget.spent, self._budget.refused
        found = top_combinations(
            free=free,
            room=room,
            demand=demand,
            maximum=np.array(maximum, dtype=np.int64),
            ranking=self._ranking,
            eta=self._eta,
            rng=np.random.default_rng(self._query_seed(tables, demand, amounts, numbers)),
            budget=self._budget,
            pool=pool,
            tables=tables,
        )
        answer = BestCombinations(found, self._budget.spent - before)
        if self._budget.refused == refused:  # what a budget cuts is no answer to the query
            self._kept.store(query, answer)
        return answer

    def _query_seed(
        self,
        tables: ReachableTables | None,
        demand: IntArray,
        amounts: IntArray,
        numbers: Sequence[int],
    ) -> int:
        """Return the random seed of a query, which does not depend on the units of resources."""
        all_amounts = np.concatenate([demand, amounts])
        unit = np.maximum(np.gcd.reduce(all_amounts, axis=0), 1)
        text = [
            self._eta,
            *self._ranking.tolist(),
            *numbers,
            *(all_amounts // unit).ravel().tolist(),
        ]
        if tables is not None:
            text += tables.grid.size
        digest = hashlib.blake2b(np.array(text, dtype=np.int64).tobytes(), digest_size=16)
        return int.from_bytes(digest.digest())


def _expand_to_all_kinds(found: Combinations, kinds: Sequence[int], number: int) -> Combinations:
    """Return combinations of some kinds as combinations of all kinds of the round."""
    counts = np.zeros((len(found.counts), number), dtype=np.int64)
    counts[:, list(kinds)] = found.counts
    return Combinations(counts, found.score, found.cut)
