"""The best combinations of VMs for one host: its strategies in the game.

A host of 128 cores has more combinations of 20 kinds than could ever be
listed. With one or two ranking resources a table says which amounts can be
reached at all (`placement.reachable`): its states are visited from the best
score down, and combinations are read off by walking back through the table, at
random where there are many. With more ranking resources a bounded search takes
its place (`placement.combination_search`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby, islice
from typing import Final, TypeAlias

import numpy as np

from placement.budget import Budget
from placement.combination_search import search_combinations
from placement.model import FloatArray, IntArray
from placement.reachable import Grid, Reachable, State

#: Combinations found for each distinct question; hosts draw their strategies
#: from them, so that hosts alike do not all choose alike.
POOL: Final = 64
#: Steps of listing all combinations of some states, before the search takes over.
_LIST_LIMIT: Final = 2_000
#: A score so close to the best that is possible is the best.
_SLACK: Final = 1e-12
#: As many rows of a table are about as much work as one combination.
_ROWS_A_UNIT: Final = 8
#: Above every rate that a kind takes a resource at.
_NO_RATE: Final = Fraction(2**63)
#: Of each resource that does not rank: per cell of either axis, a fraction.
Rates: TypeAlias = list[tuple[tuple[int, int], tuple[int, int]]]
#: After so many walks in a row that found nothing new there is little left to find.
_IN_VAIN: Final = 6
#: Random numbers that are drawn at once.
_DRAWN: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class Combinations:
    """The best combinations found for one question, best first."""

    counts: IntArray  #: (K, T) VMs of each kind
    score: FloatArray  #: (K,) minimum utilization over the ranking resources
    cut: bool  #: could the limit have hidden a better one?


def minimum_utilization(amounts: IntArray, free: IntArray, ranking: IntArray) -> FloatArray:
    """Return min over ranking resources of ``amounts / free``, shape (K,).

    Parameters
    ----------
    amounts : ndarray of int64, shape (K, R)
        What each combination takes.
    free : ndarray of int64, shape (R,)
        Free vector of the host, above zero in every ranking resource.
    ranking : ndarray of int64
        Indexes of R.
    """
    score: FloatArray = (amounts[:, ranking] / free[ranking]).min(axis=1)
    return score


class Tables:
    """Tables of reachable amounts for hosts up to a size, made when first asked for.

    One table serves every smaller room; there is one for each set of kinds and
    of the numbers to which they are limited.

    Parameters
    ----------
    demand : ndarray of int64, shape (T, R)
    ranking : ndarray of int64
        Indexes of R, one or two.
    largest : ndarray of int64, shape (R,)
        At least every room that will be asked about.
    """

    def __init__(self, demand: IntArray, ranking: IntArray, largest: IntArray) -> None:
        self.grid = Grid.of(demand, ranking, largest)
        #: resources that do not rank, only constrain: of those with a demand
        self.others = tuple(
            r for r in range(demand.shape[1]) if r not in self.grid.axes and demand[:, r].any()
        )
        self._demand = demand
        self._order = sorted(range(len(demand)), key=lambda kind: (max(self._part(kind)), kind))
        self._made: dict[tuple[int | None, ...], Reachable] = {}
        self._rates: dict[tuple[int, ...], list[Rates]] = {}

    def _part(self, kind: int) -> tuple[float, float]:
        (c, m), (of_c, of_m) = self.grid.demand[kind], self.grid.size
        return c / (of_c + 1), m / (of_m + 1)

    def table(self, most: IntArray, alone: IntArray, budget: Budget) -> Reachable | None:
        """Return the table for so many VMs of each kind, None if the budget is spent.

        ``alone``, shape (T,), is what the room in question holds of a kind by
        itself: who may use that many is not limited.
        """
        bounds = tuple(
            None if few >= fit else few
            for few, fit in zip(most.tolist(), alone.tolist(), strict=True)
        )
        table = self._made.get(bounds)
        if table is None:
            kinds = [kind for kind in self._order if bounds[kind] != 0]
            if not budget.spend(1 + Reachable.rows(kinds, self.grid.size) // _ROWS_A_UNIT):
                return None
            table = self._made[bounds] = Reachable(kinds, self.grid.demand, bounds, self.grid.size)
        return table

    def least_rates(self, table: Reachable) -> list[Rates]:
        """Return how little of each other resource the kinds below a layer take per cell."""
        rates = self._rates.get(table.kinds)
        if rates is None:
            least = {(r, axis): _NO_RATE for r in self.others for axis in (0, 1)}
            rates = []
            for kind in table.kinds:
                of_layer = [(least[r, 0], least[r, 1]) for r in self.others]
                rates.append(
                    [(_as_fraction(first), _as_fraction(second)) for first, second in of_layer]
                )
                for (r, axis), rate in least.items():
                    if cells := self.grid.demand[kind][axis]:
                        own = Fraction(int(self._demand[kind, r]), cells)
                        least[r, axis] = min(rate, own)
            self._rates[table.kinds] = rates
        return rates


def _as_fraction(rate: Fraction) -> tuple[int, int]:
    return (0, 1) if rate == _NO_RATE else (rate.numerator, rate.denominator)


def top_combinations(
    *,
    free: IntArray,
    room: IntArray,
    demand: IntArray,
    most: IntArray,
    ranking: IntArray,
    eta: int,
    rng: np.random.Generator,
    budget: Budget,
    pool: int = POOL,
    tables: Tables | None = None,
) -> Combinations:
    """Return the best combinations of one host by minimum utilization.

    Parameters
    ----------
    free : ndarray of int64, shape (R,)
        The host's free vector F(m); scores are fractions of it.
    room : ndarray of int64, shape (R,)
        What may be filled: at most ``free``, less under an overload threshold.
    demand : ndarray of int64, shape (T, R)
        One VM of each kind.
    most : ndarray of int64, shape (T,)
        VMs of each kind that may be used, 0 where the host is closed to it.
    ranking : ndarray of int64
        Indexes of R.
    eta : int
        How many best scores must be right.
    rng : numpy.random.Generator
        Which of many equals are kept.
    budget : Budget
        One unit for each combination evaluated, or for eight partial ones or
        rows of tables, which are built all at once.
    pool : int
        Combinations to return if more than ``eta`` are equally good.
    tables : Tables, optional
        Shared by questions about the same demands; for no more than two
        ranking resources.

    Returns
    -------
    Combinations
        At most ``max(pool, eta)``, none empty. Unless ``cut``, the ``eta`` best
        scores are those of full enumeration.

    Notes
    -----
    The strategies of a host are its ``eta`` combinations of highest minimum
    utilization [1]_; that a table finds them without enumeration is derived.

    References
    ----------
    .. [1] X. Xu, H. Yu, "A Game Theory Approach to Fair and Efficient Resource
       Allocation in Cloud Computing", Mathematical Problems in Engineering, 2014.
    """
    alone = _fit(room, demand)
    usable = np.minimum(alone, most)
    kinds = np.flatnonzero(usable > 0)
    counts, cut = np.zeros((0, len(demand)), dtype=np.int64), False
    pool = max(pool, eta)
    if len(kinds) == 0:
        return Combinations(counts, np.zeros(0), cut)
    if len(ranking) <= 2:
        tables = tables or Tables(demand, ranking, room)
        # What does not fit anyway need not be told apart: more rooms share a table.
        limits = np.where(alone > 0, most, 1)
        table = tables.table(limits, np.maximum(alone, 1), budget)
        if table is not None:
            reader = _Reader(
                tables,
                table,
                free=free,
                room=room,
                demand=demand,
                most=usable,
                rng=rng,
                budget=budget,
            )
            rows, cut = reader.best(eta, pool)
            counts = np.array(rows, dtype=np.int64).reshape(-1, len(demand))
        cut |= table is None or not tables.grid.exact
        score = minimum_utilization(counts @ demand, free, ranking)
        cut &= not _is_ceiling(np.sort(score)[::-1], eta, free, room, ranking)
    if len(ranking) > 2 or cut:
        found, _, cut = search_combinations(
            free=free,
            room=room,
            demand=demand[kinds],
            most=usable[kinds],
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


def _fit(room: IntArray, demand: IntArray) -> IntArray:
    """How many VMs of each kind the room holds by themselves."""
    asked = demand > 0
    fits = np.where(asked, room // np.maximum(demand, 1), np.iinfo(np.int64).max).min(axis=1)
    return np.where(asked.any(axis=1), fits, 0).astype(np.int64)


def _is_ceiling(
    score: FloatArray, eta: int, free: IntArray, room: IntArray, ranking: IntArray
) -> bool:
    """Do the best scores, in falling order, leave nothing to be better?"""
    ceiling = float((room[ranking] / free[ranking]).min())
    return len(score) >= eta and float(score[eta - 1]) >= ceiling - _SLACK


class _Reader:
    """Reads the best combinations of one room off a table."""

    def __init__(
        self,
        tables: Tables,
        table: Reachable,
        *,
        free: IntArray,
        room: IntArray,
        demand: IntArray,
        most: IntArray,
        rng: np.random.Generator,
        budget: Budget,
    ) -> None:
        self._grid, self._table, self._budget = tables.grid, table, budget
        self._cells = self._grid.cells(room)
        self._kinds = len(demand)
        self._most = [int(most[kind]) for kind in table.kinds]
        self._offered = [int(free[axis]) for axis in self._grid.axes]
        others, rates = tables.others, tables.least_rates(table)
        self._spare = tuple(room[list(others)].tolist())
        self._takes = [tuple(demand[kind, list(others)].tolist()) for kind in table.kinds]
        self._rates = rates
        #: does every kind take something of a ranking resource?
        self._nothing_is_free = all(step != (0, 0) for step in table.demand)
        self._random = _random_numbers(rng)
        self._listed = 0

    def best(self, eta: int, pool: int) -> tuple[list[tuple[int, ...]], bool]:
        """Return combinations, of the best scores first, and were any given up?

        All of those above the ``eta``-th score, and of those with it as many
        as fill ``pool``.
        """
        found: dict[tuple[int, ...], None] = {}
        for _, tied in groupby(self._table.states(self._cells, self._score), lambda each: each[0]):
            for states in _in_chunks((state for _, state in tied), pool):
                if not self._list(states, found, eta, pool):
                    return list(found), True
                if len(found) >= pool:
                    break
            if len(found) >= eta:
                break
        return list(found), False

    def _score(self, first: int, second: int) -> float:
        unit, offered = self._grid.unit, self._offered
        score = first * unit[0] / offered[0]
        return score if len(unit) == 1 else min(score, second * unit[1] / offered[1])

    def _list(
        self, states: Sequence[State], found: dict[tuple[int, ...], None], eta: int, pool: int
    ) -> bool:
        """Add combinations of these states; False if not all that matter could be listed."""
        walks, in_vain = 0, 0
        while in_vain < _IN_VAIN:
            if len(found) >= pool:
                return True
            if not self._budget.spend(1):
                return False
            combination = self._walk(states[walks % len(states)])
            if combination is None or combination in found:
                in_vain += 1
            else:
                found[combination] = None
                in_vain = 0
            walks += 1
        if len(found) >= eta:
            return True
        for state in states:
            for combination in self._all(state):
                self._listed += 1
                if self._listed > _LIST_LIMIT or not self._budget.spend(1):
                    return False
                if combination is not None:
                    found[combination] = None
                if len(found) >= pool:
                    return True
        return True

    def _walk(self, state: State) -> tuple[int, ...] | None:
        """Return one combination that ends in a state, at random; None for a dead end."""
        counts, spare = [0] * self._kinds, self._spare
        for layer in range(len(self._most) - 1, -1, -1):
            if self._nothing_is_free and state == (0, 0):
                break
            least, most = self._range(layer, state, spare) if spare else (0, self._most[layer])
            if least > most:
                return None
            start = least + int(next(self._random) * (most - least + 1))
            number = self._table.choice(layer, state, start, (least, most))
            if number is None:
                return None
            if number:
                counts[self._table.kinds[layer]] = number
                state, spare = self._back(layer, number, state, spare)
        return tuple(counts) if any(counts) else None

    def _all(self, state: State) -> Iterator[tuple[int, ...] | None]:
        """Yield every combination that ends in a state, and None at every dead end."""
        counts = [0] * self._kinds
        line = [(len(self._most) - 1, state, self._spare, counts)]
        while line:
            layer, state, spare, counts = line.pop()
            if layer < 0:
                yield tuple(counts) if any(counts) else None
                continue
            choices = self._choices(layer, state, spare)
            if not choices:
                yield None
            for number in choices:
                then = counts.copy()
                then[self._table.kinds[layer]] = number
                line.append((layer - 1, *self._back(layer, number, state, spare), then))

    def _choices(self, layer: int, state: State, spare: tuple[int, ...]) -> list[int]:
        least, most = self._range(layer, state, spare)
        return self._table.choices(layer, state, (least, most))

    def _range(self, layer: int, state: State, spare: tuple[int, ...]) -> tuple[int, int]:
        """Return the least and most VMs of a layer's kind that the other resources allow.

        What is left of them must suffice for the rest of the state, at the best
        rate of the kinds to come.
        """
        least, most = 0, self._most[layer]
        for place, left in enumerate(spare):
            takes = self._takes[layer][place]
            if takes:
                most = min(most, left // takes)
            for axis in (0, 1):
                rate = self._rates[layer][place][axis]
                # left - n takes >= rate (state - n cells), in whole numbers
                over = left * rate[1] - rate[0] * state[axis]
                each = takes * rate[1] - rate[0] * self._table.demand[layer][axis]
                if each > 0:
                    most = min(most, over // each)
                elif each < 0:
                    least = max(least, -(over // -each))
                elif over < 0:
                    return 1, 0
        return least, most

    def _back(
        self, layer: int, number: int, state: State, spare: tuple[int, ...]
    ) -> tuple[State, tuple[int, ...]]:
        by_c, by_m = self._table.demand[layer]
        takes = self._takes[layer]
        return (
            (state[0] - number * by_c, state[1] - number * by_m),
            tuple(left - number * each for left, each in zip(spare, takes, strict=True)),
        )


def _in_chunks(states: Iterator[State], size: int) -> Iterator[list[State]]:
    while chunk := list(islice(states, size)):
        yield chunk


def _random_numbers(rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from rng.random(_DRAWN).tolist()
