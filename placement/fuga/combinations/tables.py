"""Tables of reachable amounts, and how to walk back through them kind by kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

from placement.fuga.combinations.reachable_amounts import AmountGrid, ReachableStates
from placement.model.arrays import IntArray
from placement.model.budget import Budget

#: As many rows of a table are about as much work as one combination.
_ROWS_A_UNIT: Final = 8
#: Above every rate that a kind takes a resource at.
_NO_RATE: Final = Fraction(2**63)
#: What a layer's kind takes of another resource: place of the resource, amount.
Takes: TypeAlias = tuple[int, int]
#: Most VMs of each kind, None for as many as fit.
_Bounds: TypeAlias = tuple[int | None, ...]
#: A bound by what the kinds to come need of another resource; see `TableLayer.bounds`.
Bound: TypeAlias = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class TableLayer:
    """A table's layer for one kind of VM, with the bounds for tracing combinations back.

    Attributes
    ----------
    bounds : tuple
        Rows (place, over, under, axis, each): with ``n`` VMs of the kind, ``left``
        of a resource and ``cells`` of an axis before them, ``n * each`` may be at
        most ``left * under - over * cells``. What is left must suffice for the
        rest of the cells at the best rate of the kinds to come, ``over / under``.
    """

    kind: int
    cells: tuple[int, int]  #: that one VM takes of each axis
    takes: tuple[int, ...]  #: of each resource that does not rank
    caps: tuple[Takes, ...]  #: those of them that are above zero
    bounds: tuple[Bound, ...]


class ReachableTables:
    """Tables of reachable amounts for hosts up to a size, made on first use.

    One table serves every smaller room; there is one for each set of kinds and
    of the numbers to which they are limited.

    Parameters
    ----------
    demand : ndarray of int64, shape (T, R)
    ranking : ndarray of int64
        Indexes of R, one or two.
    largest : ndarray of int64, shape (R,)
        No smaller than any queried room.
    """

    def __init__(self, demand: IntArray, ranking: IntArray, largest: IntArray) -> None:
        self.grid = AmountGrid.of(demand, ranking, largest)
        #: resources that do not rank, only constrain: of those with a demand
        self.others = tuple(
            r for r in range(demand.shape[1]) if r not in self.grid.axes and demand[:, r].any()
        )
        self.demand = demand
        self._takes: list[list[int]] = demand[:, list(self.others)].tolist()
        self._order = sorted(
            range(len(demand)), key=lambda kind: (max(self._fraction_of_grid(kind)), kind)
        )
        self._made: dict[_Bounds, ReachableStates] = {}
        self._charged: set[_Bounds] = set()
        self._layers: dict[tuple[int, ...], tuple[TableLayer, ...]] = {}

    def _fraction_of_grid(self, kind: int) -> tuple[float, float]:
        """Return the part of the grid's two axes that one VM of a kind takes."""
        (c, m), (of_c, of_m) = self.grid.demand[kind], self.grid.size
        return c / (of_c + 1), m / (of_m + 1)

    def table(self, maximum: IntArray, alone: IntArray, budget: Budget) -> ReachableStates | None:
        """Return the table of amounts that up to ``maximum`` VMs of each kind reach, or None.

        ``alone``, shape (T,), is what the room in question holds of a kind by
        itself: a host that may use that many is not limited.
        """
        bounds = self.charge(maximum.tolist(), alone.tolist(), budget)
        if bounds is None:
            return None
        table = self._made.get(bounds)
        if table is None:
            kinds = self._kinds_of(bounds)
            table = self._made[bounds] = ReachableStates(
                kinds, self.grid.demand, bounds, self.grid.size
            )
        return table

    def charge(
        self, maximum: Sequence[int], alone: Sequence[int], budget: Budget
    ) -> _Bounds | None:
        """Charge a table to the budget, once per table; return None if too little is left.

        A cached answer costs as much of the budget as a computed one: what is spent must not
        depend on the cache. ``maximum`` and ``alone`` are those of `table`.
        """
        bounds = tuple(None if few >= fit else few for few, fit in zip(maximum, alone, strict=True))
        if bounds not in self._charged:
            rows = ReachableStates.count_rows(self._kinds_of(bounds), self.grid.size)
            if not budget.spend(1 + rows // _ROWS_A_UNIT):
                return None
            self._charged.add(bounds)
        return bounds

    def _kinds_of(self, bounds: _Bounds) -> list[int]:
        """Return the kinds of VM that a table with these bounds has, in the order of its layers."""
        return [kind for kind in self._order if bounds[kind] != 0]

    def layers(self, table: ReachableStates) -> tuple[TableLayer, ...]:
        """Return a table's layers of reachable amounts, with bounds for walking back."""
        layers = self._layers.get(table.kinds)
        if layers is None:
            minimum = {
                (place, axis): _NO_RATE for place in range(len(self.others)) for axis in (0, 1)
            }
            made = []
            for kind in table.kinds:
                made.append(self._layer(kind, minimum))
                for (place, axis), rate in minimum.items():
                    if cells := self.grid.demand[kind][axis]:
                        own = Fraction(self._takes[kind][place], cells)
                        minimum[place, axis] = min(rate, own)
            layers = self._layers[table.kinds] = tuple(made)
        return layers

    def _layer(self, kind: int, minimum: dict[tuple[int, int], Fraction]) -> TableLayer:
        """Return a layer, given the ``minimum`` of each resource per cell in the layers below."""
        takes, cells = self._takes[kind], self.grid.demand[kind]
        return TableLayer(
            kind=kind,
            cells=cells,
            takes=tuple(takes),
            caps=tuple((place, amount) for place, amount in enumerate(takes) if amount),
            bounds=tuple(
                (
                    place,
                    rate.numerator,
                    rate.denominator,
                    axis,
                    takes[place] * rate.denominator - rate.numerator * cells[axis],
                )
                for (place, axis), rate in minimum.items()
                # A rate of nothing bounds nothing; without kinds to come there is none.
                if 0 < rate < _NO_RATE
            ),
        )
