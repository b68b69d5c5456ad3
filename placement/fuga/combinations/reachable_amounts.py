"""The amounts of two resources that whole VMs can add up to, and their combinations.

Unbounded knapsack reachability with integers as sets of bits: bit m of row c
says that some combination takes exactly c cells of one resource and m of the
other. One row is shifted and joined at once, so that a table over 64 cores and
256 GiB takes a few hundred operations, whatever the number of combinations.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from placement.model.arrays import IntArray

State: TypeAlias = tuple[int, int]  #: cells of the first and of the second axis
Scored: TypeAlias = tuple[float, State]

#: Rows of a table, and bits of all rows of all layers; grids are coarser beyond.
MAX_ROWS: Final = 1_024
MAX_BITS: Final = 2**27


@dataclass(frozen=True, slots=True, eq=False)
class AmountGrid:
    """Cells in which amounts of one or two ranking resources are counted.

    Attributes
    ----------
    axes : tuple of int
        Indexes of R: the axis of rows, then, where two rank, the axis of bits.
    unit : tuple of int
        Amount of one cell on each axis.
    demand : list of (int, int)
        Cells that one VM of each kind takes, rounded up.
    size : (int, int)
        Cells of the largest room, rounded down.
    exact : bool
        Is nothing lost by rounding?
    """

    axes: tuple[int, ...]
    unit: tuple[int, ...]
    demand: list[State]
    size: State
    exact: bool

    @classmethod
    def of(cls, demand: IntArray, ranking: IntArray, largest: IntArray) -> AmountGrid:
        """Choose cells: the greatest common divisor of all demands (T, R), coarser where too many.

        ``ranking`` has the indices of two resources, ``largest`` the largest room, shape (R,).
        """
        gcd = {r: int(np.gcd.reduce(demand[:, r], initial=0)) for r in ranking.tolist()}
        steps = {r: int(largest[r]) // gcd[r] if gcd[r] else 0 for r in gcd}
        axes = tuple(sorted(gcd, key=lambda r: (steps[r], r)))
        rows = min(steps[axes[0]], MAX_ROWS)
        limits = (rows, max(MAX_BITS // ((rows + 1) * (len(demand) + 1)), MAX_ROWS))
        unit = []
        for axis, limit in zip(axes, limits, strict=False):
            coarser = -(-steps[axis] // limit) if steps[axis] else 1
            unit.append(max(gcd[axis], 1) * max(coarser, 1))
        columns = [
            [-(-amount // size) for amount in demand[:, axis].tolist()]
            for axis, size in zip(axes, unit, strict=True)
        ]
        # Of what no kind demands nothing can be reached.
        cells = [
            int(largest[axis]) // size if gcd[axis] else 0
            for axis, size in zip(axes, unit, strict=True)
        ]
        if len(axes) == 1:
            columns.append([0] * len(demand))
            cells.append(0)
        return cls(
            axes,
            tuple(unit),
            list(zip(*columns, strict=True)),
            (cells[0], cells[1]),
            all(size == max(gcd[axis], 1) for axis, size in zip(axes, unit, strict=True)),
        )

    def cells(self, room: IntArray) -> State:
        """Return the cells of a room, shape (R,), rounded down."""
        first, *second = (int(room[a]) // u for a, u in zip(self.axes, self.unit, strict=True))
        return min(first, self.size[0]), min(second[0], self.size[1]) if second else 0


class ReachableStates:
    """All states that combinations of some kinds reach, and how to reach each.

    Parameters
    ----------
    kinds : sequence of int
        In the order of layers; few VMs are left to choose from in the last, so
        the largest kind should be there.
    demand : sequence of (int, int)
        Cells of one VM of each kind.
    bounds : sequence of int or None
        Most VMs of each kind, None for as many as fit.
    size : (int, int)
        Cells of the largest queried room.

    Attributes
    ----------
    kinds : tuple of int
    layers : list of list of int
        The rows that the kinds before each layer reach, then those that all do.
    """

    def __init__(
        self,
        kinds: Sequence[int],
        demand: Sequence[State],
        bounds: Sequence[int | None],
        size: State,
    ) -> None:
        self.kinds = tuple(kinds)
        rows = [0] * (size[0] + 1)
        rows[0] = 1
        self.layers = [rows]
        mask = (1 << (size[1] + 1)) - 1
        for kind in kinds:
            step, bound = demand[kind], bounds[kind]
            if step == (0, 0):
                self.layers.append(self.layers[-1])
            elif bound is None:
                self.layers.append(_reach_any_number(self.layers[-1], step, mask))
            else:
                self.layers.append(_reach_bounded_number(self.layers[-1], step, bound, mask))

    @staticmethod
    def count_rows(kinds: Sequence[int], size: State) -> int:
        """Return the number of rows of a table for these kinds and this size."""
        return len(kinds) * (size[0] + 1)

    def states(self, room: State, score: Callable[[int, int], float]) -> Iterator[Scored]:
        """Yield the reachable states within a room, sorted by score, highest first.

        Parameters
        ----------
        room : (int, int)
            Cells.
        score : callable
            Returns the score of a state; it grows with both amounts.

        Yields
        ------
        (float, (int, int))
            Score and state. Ties go to the state with more of the first resource,
            then with more of the second.
        """
        rows, within = self.layers[-1], (1 << (room[1] + 1)) - 1
        heap: list[tuple[float, int, int, int]] = []
        row = room[0]

        def push(row: int, bits: int) -> None:
            """Queue the state of a row with the most of the second resource."""
            if bits:
                second = bits.bit_length() - 1
                heapq.heappush(heap, (-score(row, second), -row, -second, bits))

        while True:
            # A row that cannot be better than what is known can wait.
            while row >= 0 and (not heap or score(row, room[1]) >= -heap[0][0]):
                push(row, rows[row] & within)
                row -= 1
            if not heap:
                return
            negative, first, second, bits = heapq.heappop(heap)
            yield -negative, (-first, -second)
            push(-first, bits ^ (1 << -second))


def _reach_any_number(rows: list[int], step: State, mask: int) -> list[int]:
    """Return the rows that any number of VMs reach that take ``step`` cells each."""
    reached = rows.copy()
    by_c, by_m = step
    if by_c == 0:
        for c, bits in enumerate(rows):
            shift, joined = by_m, bits
            while shift < mask.bit_length() and bits:
                joined |= joined << shift & mask
                shift *= 2
            reached[c] = joined
        return reached
    for c in range(by_c, len(rows)):
        if reached[c - by_c]:
            reached[c] |= reached[c - by_c] << by_m & mask
    return reached


def _reach_bounded_number(rows: list[int], step: State, bound: int, mask: int) -> list[int]:
    """Return the rows that 0 to ``bound`` VMs reach, added in packs of 1, 2, 4, ... and a rest."""
    reached = rows.copy()
    by_c, by_m = step
    pack = 1
    while bound > 0:
        taken = min(pack, bound)
        for c in range(len(rows) - 1, taken * by_c - 1, -1):
            if bits := reached[c - taken * by_c]:
                reached[c] |= bits << taken * by_m & mask
        bound -= taken
        pack *= 2
    return reached
