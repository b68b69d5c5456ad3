"""Combinations read off a table step by step: the oracle of the fast form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from placement import Budget
from placement.fuga.combinations.reachable import Reachable, State
from placement.fuga.combinations.tables import Tables
from placement.round.arrays import IntArray

_NO_RATE = Fraction(2**63)
_LIST_LIMIT = 2_000
_IN_VAIN = 6
_DRAWN = 256
#: Of each resource that does not rank: per cell of either axis, a fraction.
Rates = list[tuple[tuple[int, int], tuple[int, int]]]


class PlainReader:
    """Reads the best combinations of one room off a table."""

    def __init__(
        self,
        tables: Tables,
        table: Reachable,
        *,
        free: IntArray,
        room: IntArray,
        most: IntArray,
        rng: np.random.Generator,
        budget: Budget,
    ) -> None:
        self._grid, self._table, self._budget = tables.grid, table, budget
        self._cells = self._grid.cells(room)
        self._kinds = len(most)
        self._demand = [tables.grid.demand[kind] for kind in table.kinds]
        self._most = [int(most[kind]) for kind in table.kinds]
        self._offered = [int(free[axis]) for axis in self._grid.axes]
        others = tables.others
        self._spare = tuple(room[list(others)].tolist())
        self._takes = [tuple(tables.demand[kind, list(others)].tolist()) for kind in table.kinds]
        self._rates = least_rates(tables, table)
        #: does every kind take something of a ranking resource?
        self._nothing_is_free = all(step != (0, 0) for step in self._demand)
        self._random = _random_numbers(rng)
        self._listed = 0

    def best(self, eta: int, pool: int) -> tuple[list[tuple[int, ...]], bool]:
        """Return combinations, of the best scores first, and were any given up?

        All of those above the ``eta``-th score, and of those with it as many
        as fill ``pool``.
        """
        found: dict[tuple[int, ...], None] = {}
        for tied in self._ranked():
            for start in range(0, len(tied), pool):
                if len(found) >= pool:
                    break
                if not self._list(tied[start : start + pool], found, eta, pool):
                    return list(found), True
            if len(found) >= eta:
                break
        return list(found), False

    def _ranked(self) -> list[list[State]]:
        """Return all states within the room, those of equal score together, the best first."""
        by_score: dict[Fraction, list[State]] = {}
        rows = self._table.layers[-1]
        # Of equals the one of more of the first resource, then of more of the second.
        for first in range(self._cells[0], -1, -1):
            for second in range(self._cells[1], -1, -1):
                if rows[first] >> second & 1:
                    by_score.setdefault(self._used((first, second)), []).append((first, second))
        return [by_score[score] for score in sorted(by_score, reverse=True)]

    def _used(self, state: State) -> Fraction:
        """Return the part of the host's ranking resources that a state uses, of the least used."""
        axes = zip(state, self._grid.unit, self._offered, strict=False)
        return min(Fraction(cells * unit, offered) for cells, unit, offered in axes)

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
            number = self._choice(layer, state, start, (least, most))
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
        return self._choices_within(layer, state, (least, most))

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
                each = takes * rate[1] - rate[0] * self._demand[layer][axis]
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
        by_c, by_m = self._demand[layer]
        takes = self._takes[layer]
        return (
            (state[0] - number * by_c, state[1] - number * by_m),
            tuple(left - number * each for left, each in zip(spare, takes, strict=True)),
        )

    def _choices_within(self, layer: int, state: State, within: tuple[int, int]) -> list[int]:
        """Return how many VMs of a layer's kind ways to a state may end with.

        ``within`` are the least and the most that are of interest.
        """
        least, most = self._possible(layer, state, within)
        (c, m), (by_c, by_m), rows = state, self._demand[layer], self._table.layers[layer]
        return [n for n in range(least, most + 1) if rows[c - n * by_c] >> (m - n * by_m) & 1]

    def _choice(self, layer: int, state: State, start: int, within: tuple[int, int]) -> int | None:
        """Return the first choice from ``start`` on, round and round; None if none."""
        least, most = self._possible(layer, state, within)
        (c, m), (by_c, by_m), rows = state, self._demand[layer], self._table.layers[layer]
        number = least + (start - least) % (most - least + 1) if least <= most else 0
        for _ in range(least, most + 1):
            if rows[c - number * by_c] >> (m - number * by_m) & 1:
                return number
            number = number + 1 if number < most else least
        return None

    def _possible(self, layer: int, state: State, within: tuple[int, int]) -> tuple[int, int]:
        (c, m), (by_c, by_m), (least, most) = state, self._demand[layer], within
        if by_c:
            most = min(most, c // by_c)
        if by_m:
            most = min(most, m // by_m)
        if layer == 0 and (by_c or by_m):  # exactly what is left, or nothing will do
            number = c // by_c if by_c else m // by_m
            return max(least, number), min(most, number)
        return least, most


def least_rates(tables: Tables, table: Reachable) -> list[Rates]:
    """Return how little of each other resource the kinds below a layer take per cell."""
    least = {(r, axis): _NO_RATE for r in tables.others for axis in (0, 1)}
    rates = []
    for kind in table.kinds:
        of_layer = [(least[r, 0], least[r, 1]) for r in tables.others]
        rates.append([(_as_fraction(first), _as_fraction(second)) for first, second in of_layer])
        for (r, axis), rate in least.items():
            if cells := tables.grid.demand[kind][axis]:
                own = Fraction(int(tables.demand[kind, r]), cells)
                least[r, axis] = min(rate, own)
    return rates


def _as_fraction(rate: Fraction) -> tuple[int, int]:
    return (0, 1) if rate == _NO_RATE else (rate.numerator, rate.denominator)


def _random_numbers(rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from rng.random(_DRAWN).tolist()
