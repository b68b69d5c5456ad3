"""Combinations read off a table of reachable amounts, by walking back through it.

This is where most of a round of the game goes. The innermost steps are
therefore written out where they are needed, without calls of functions as small
as `min`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import Final, TypeAlias

import numpy as np

from placement.fuga.combinations.reachable_amounts import ReachableStates, State
from placement.fuga.combinations.tables import ReachableTables, TableLayer
from placement.model.arrays import IntArray
from placement.model.budget import Budget

#: Steps of listing all combinations of some states, before the search takes over.
_LIST_LIMIT: Final = 2_000
#: Walks in a row without a new combination after which the search ends.
_MAX_MISSES: Final = 6
#: Random numbers that are drawn at once.
_DRAWN: Final = 256
#: A layer, the rows that the layers below it reach, and the most VMs of its kind.
_Step: TypeAlias = tuple[TableLayer, list[int], int]
#: What is left of each resource that does not rank.
_Spare: TypeAlias = tuple[int, ...]


class CombinationReader:
    """Reads the best combinations of VMs for one host from a table of reachable amounts.

    Parameters
    ----------
    tables : ReachableTables
    table : ReachableStates
        One of them.
    free, room : ndarray of int64, shape (R,)
    maximum : ndarray of int64, shape (T,)
        VMs of each kind that may be used.
    rng : numpy.random.Generator
    budget : Budget
        One unit for each walk and for each end, dead or not, of listing them all.
    """

    def __init__(
        self,
        tables: ReachableTables,
        table: ReachableStates,
        *,
        free: IntArray,
        room: IntArray,
        maximum: IntArray,
        rng: np.random.Generator,
        budget: Budget,
    ) -> None:
        self._grid, self._table, self._budget = tables.grid, table, budget
        self._cells = self._grid.cells(room)
        self._kinds = len(maximum)
        self._offered = free[list(self._grid.axes)].tolist()
        self._spare: _Spare = tuple(room[list(tables.others)].tolist()) if tables.others else ()
        usable = maximum.tolist()
        layers = tables.layers(table)
        self._steps: list[_Step] = [
            (layer, rows, usable[layer.kind])
            for layer, rows in zip(layers, table.layers, strict=False)
        ]
        self._from_the_last = [*enumerate(self._steps)][::-1]
        #: does every kind take something of a ranking resource?
        self._nothing_is_free = all(layer.cells != (0, 0) for layer in layers)
        self._random = _random_numbers(rng)
        self._listed = 0

    def best_combinations(self, eta: int, pool: int) -> tuple[list[tuple[int, ...]], bool]:
        """Return combinations, best score first, and whether any were dropped.

        The result has every combination above the ``eta``-th score. Combinations at
        exactly that score fill the rest of ``pool``.
        """
        found: dict[tuple[int, ...], None] = {}
        for _, tied in groupby(self._table.states(self._cells, self._score), lambda each: each[0]):
            for states in _state_chunks((state for _, state in tied), pool):
                if not self._list_combinations(states, found, eta, pool):
                    return list(found), True
                if len(found) >= pool:
                    break
            if len(found) >= eta:
                break
        return list(found), False

    def _score(self, first: int, second: int) -> float:
        """Return the minimum utilization of a state, given its cells of both resources."""
        unit, offered = self._grid.unit, self._offered
        score: float = first * unit[0] / offered[0]
        return score if len(unit) == 1 else min(score, second * unit[1] / offered[1])

    def _list_combinations(
        self, states: Sequence[State], found: dict[tuple[int, ...], None], eta: int, pool: int
    ) -> bool:
        """Add the combinations that reach these states; return False if some are missing."""
        # Where other resources are used up nearly all states are dead from the start.
        dead = [self._is_dead_end(state) for state in states]
        spend, walks, misses = self._budget.spend, 0, 0
        while misses < _MAX_MISSES:
            if len(found) >= pool:
                return True
            if not spend(1):
                return False
            place = walks % len(states)
            combination = None if dead[place] else self._random_combination(states[place])
            if combination is None or combination in found:
                misses += 1
            else:
                found[combination] = None
                misses = 0
            walks += 1
        if len(found) >= eta:
            return True
        for state, is_dead in zip(states, dead, strict=True):
            for combination in (None,) if is_dead else self._all_combinations(state):
                self._listed += 1
                if self._listed > _LIST_LIMIT or not spend(1):
                    return False
                if combination is not None:
                    found[combination] = None
                if len(found) >= pool:
                    return True
        return True

    def _is_dead_end(self, state: State) -> bool:
        """Return whether resources outside the table forbid every count of the last kind."""
        if not self._spare:
            return False
        layer, _, maximum = self._steps[-1]
        minimum, maximum = _allowed_counts(layer, maximum, state, self._spare)
        return minimum > maximum

    def _random_combination(self, state: State) -> tuple[int, ...] | None:
        """Return a random combination of VMs that reaches a state; None at a dead end."""
        counts, spare, (c, m) = [0] * self._kinds, self._spare, state
        draw, nothing_is_free = self._random.__next__, self._nothing_is_free
        for place, (layer, rows, maximum) in self._from_the_last:
            if nothing_is_free and c == 0 and m == 0:
                break
            minimum = 0
            if spare:
                minimum, maximum = _allowed_counts(layer, maximum, (c, m), spare)  # noqa: PLW2901
                if minimum > maximum:
                    return None
            start = minimum + int(draw() * (maximum - minimum + 1))
            by_c, by_m = layer.cells
            if by_c and c // by_c < maximum:
                maximum = c // by_c  # noqa: PLW2901 - no more would fit the state
            if by_m and m // by_m < maximum:
                maximum = m // by_m  # noqa: PLW2901
            if place == 0 and (by_c or by_m):  # exactly what is left, or nothing will do
                number = c // by_c if by_c else m // by_m
                minimum, maximum = max(minimum, number), min(maximum, number)  # noqa: PLW2901
            if minimum > maximum:
                return None
            # The first number from there on, round and round, that the others can complete.
            first = number = minimum + (start - minimum) % (maximum - minimum + 1)
            while not rows[c - number * by_c] >> (m - number * by_m) & 1:
                number = number + 1 if number < maximum else minimum
                if number == first:
                    return None
            if number:
                counts[layer.kind] = number
                c, m = c - number * by_c, m - number * by_m
                if spare:
                    spare = _spare_after(spare, number, layer.takes)
        return tuple(counts) if any(counts) else None

    def _all_combinations(self, state: State) -> Iterator[tuple[int, ...] | None]:
        """Yield every combination of VMs that reaches a state, and None at every dead end."""
        steps, counts = self._steps, [0] * self._kinds
        stack = [(len(steps) - 1, *state, self._spare, counts)]
        while stack:
            place, c, m, spare, counts = stack.pop()
            if place < 0:
                yield tuple(counts) if any(counts) else None
                continue
            layer, rows, maximum = steps[place]
            minimum, (by_c, by_m) = 0, layer.cells
            if spare:
                minimum, maximum = _allowed_counts(layer, maximum, (c, m), spare)
            if by_c and c // by_c < maximum:
                maximum = c // by_c
            if by_m and m // by_m < maximum:
                maximum = m // by_m
            if place == 0 and (by_c or by_m):  # exactly what is left, or nothing will do
                number = c // by_c if by_c else m // by_m
                minimum, maximum = max(minimum, number), min(maximum, number)
            is_dead = True
            for number in range(minimum, maximum + 1):
                left_c, left_m = c - number * by_c, m - number * by_m
                if rows[left_c] >> left_m & 1:
                    is_dead = False
                    then, left = counts, spare
                    if number:
                        then = counts.copy()
                        then[layer.kind] = number
                        left = _spare_after(spare, number, layer.takes)
                    stack.append((place - 1, left_c, left_m, left, then))
            if is_dead:
                yield None


def _allowed_counts(
    layer: TableLayer, maximum: int, state: State, spare: _Spare
) -> tuple[int, int]:
    """Return the smallest and largest number of VMs of a table layer's kind that fit."""
    minimum = 0
    for place, takes in layer.caps:
        fit = spare[place] // takes
        if fit < maximum:  # noqa: PLR1730 - a third of the time of this function
            maximum = fit
    for place, over, under, axis, each in layer.bounds:
        room = spare[place] * under - over * state[axis]
        if each > 0:
            fit = room // each
            if fit < maximum:  # noqa: PLR1730
                maximum = fit
        elif each < 0:
            fit = -(room // -each)
            if fit > minimum:  # noqa: PLR1730
                minimum = fit
        elif room < 0:
            return 1, 0
    return minimum, maximum


def _spare_after(spare: _Spare, number: int, takes: tuple[int, ...]) -> _Spare:
    """Return what is left of the resources outside the table after ``number`` VMs of a kind."""
    return tuple([left - number * each for left, each in zip(spare, takes, strict=True)])


def _state_chunks(states: Iterator[State], size: int) -> Iterator[list[State]]:
    """Yield the states in lists of at most ``size``."""
    while chunk := list(islice(states, size)):
        yield chunk


def _random_numbers(rng: np.random.Generator) -> Iterator[float]:
    """Yield random numbers in [0, 1), drawn many at a time."""
    while True:
        yield from rng.random(_DRAWN).tolist()
