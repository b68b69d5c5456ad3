"""The amount a tenant needs at each level, which all max-min mechanisms use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.model.arrays import BoolArray, FloatArray


@dataclass(frozen=True, slots=True, order=True)
class ClimbPoint:
    """A position on the common climb: a breakpoint and the fraction of the way to the next.

    A level would be too coarse: if tenants hold much already, the rest to divide can lie between
    two neighbouring floats.
    """

    place: int  #: of the breakpoint at or below
    part: float  #: of the way to the next, within [0, 1)


class Climbs:
    """How much each tenant needs at each point of the common climb of levels.

    Amounts are the dominant shares of the tasks alone (tasks times mu). They are
    non-decreasing and piecewise linear in the level. At level L a tenant needs the
    amount g at which the largest of ``(intercept[r] + g slope[r]) / weight`` over
    its demanded resources r is L, at most ``limit``. Below its ``start``, the level
    of what it holds, it needs nothing.

    Tenants that hold much of what their tasks do not demand can take some tasks
    before their level moves. They do so together, once all others have
    reached their level: such a level has two breakpoints, before and after.

    Parameters
    ----------
    intercept, slope : ndarray, shape (N, P)
        Lines of the level times weight; a line of slope 0 is only a floor.
    weight : ndarray, shape (N,)
    limit : ndarray, shape (N,)
        Finite: the amount of all tasks wanted, or more than there is room for.
        0 takes the tenant out.
    """

    def __init__(
        self, intercept: FloatArray, slope: FloatArray, weight: FloatArray, limit: FloatArray
    ) -> None:
        self.weight = weight
        self.limit = limit
        self._intercept = np.where(slope > 0, intercept, -np.inf)
        self._slope = np.where(slope > 0, slope, 1.0)
        self._floor = intercept.max(axis=1, initial=0.0)
        self.start = self._floor / weight
        #: what the tenant may take before its level moves
        self._jump = np.where(
            limit > 0, np.minimum(self._amounts_at_height(self._floor), limit), 0.0
        )
        self.full = self.level_of(limit)  #: the level at which it has all it wants
        self._levels, self._after = self._breakpoints()

    def _amounts_at_height(self, height: FloatArray) -> FloatArray:
        """Return the amount at which each tenant's level times weight reaches a height, (N,)."""
        reach = ((height[:, None] - self._intercept) / self._slope).min(axis=1, initial=np.inf)
        minimum: FloatArray = np.maximum(reach, 0.0)
        return minimum

    def level_of(self, amount: FloatArray) -> FloatArray:
        """Return each tenant's level on the climb once it has ``amount``, shape (N,)."""
        lines = self._intercept + amount[:, None] * self._slope
        level: FloatArray = np.maximum(lines.max(axis=1, initial=0.0), self._floor) / self.weight
        return level

    def _breakpoints(self) -> tuple[FloatArray, BoolArray]:
        """Return the levels between which all needs are linear, and where jumps are taken."""
        live = self.limit > 0
        # A jump that rounding made is none: its tenant's line starts at its floor.
        # And all is one jump where it would not lift a level by a float's last digit.
        flat = self.full <= self.start
        jumps = live & ((self._jump > 1e-12 * self.limit) | flat)
        self._jump = np.where(jumps, np.where(flat, self.limit, self._jump), 0.0)
        kinks = [self.start[live], self.full[live]]
        held = live & (self._floor > 0)
        if held.any():
            a, b, w = self._intercept[held], self._slope[held], self.weight[held]
            for r in range(a.shape[1]):
                for s in range(r):
                    with np.errstate(divide="ignore", invalid="ignore"):
                        crossing = (a[:, r] * b[:, s] - a[:, s] * b[:, r]) / (b[:, s] - b[:, r])
                    crossing = crossing / w
                    inside = np.isfinite(crossing)
                    inside &= (crossing > self.start[held]) & (crossing < self.full[held])
                    kinks.append(crossing[inside])
        once = np.unique(np.concatenate(kinks))
        twice = np.unique(self.start[jumps])
        levels = np.concatenate([once, twice])
        order = np.argsort(levels, kind="stable")
        after = ~np.isin(once, twice)
        return levels[order], np.concatenate([after, np.ones(len(twice), dtype=np.bool_)])[order]

    @property
    def first(self) -> ClimbPoint:
        """The point of the climb at which no tenant has anything."""
        return ClimbPoint(0, 0.0)

    @property
    def last(self) -> ClimbPoint:
        """The point of the climb at which every tenant has all it wants."""
        return ClimbPoint(max(len(self._levels) - 1, 0), 0.0)

    def breakpoint_at(self, level: float) -> ClimbPoint:
        """Return the last breakpoint of the climb at ``level`` or below it."""
        return ClimbPoint(max(int(np.searchsorted(self._levels, level, side="right")) - 1, 0), 0.0)

    def level_at(self, point: ClimbPoint) -> float:
        """Return the level of rising tenants at a point of the climb."""
        if len(self._levels) == 0:
            return 0.0
        here = float(self._levels[point.place])
        if point.part == 0.0:
            return here
        return here + point.part * (float(self._levels[point.place + 1]) - here)

    def _needs_at(self, place: int) -> FloatArray:
        """Return the amount that each tenant needs at a breakpoint, (N,)."""
        level = self._levels[place]
        above = np.minimum(self._amounts_at_height(level * self.weight), self.limit)
        above = np.where(level >= self.full, self.limit, np.maximum(above, self._jump))
        here = np.where((self.start == level) & self._after[place], self._jump, 0.0)
        needs: FloatArray = np.where(level > self.start, above, here)
        return needs

    def needs(self, point: ClimbPoint) -> FloatArray:
        """Return the amount that each tenant needs at a point of the climb, shape (N,)."""
        if len(self._levels) == 0:
            return np.zeros(len(self.limit))
        low = self._needs_at(point.place)
        if point.part == 0.0:
            return low
        return low + point.part * (self._needs_at(point.place + 1) - low)

    def complete_tenants(self, point: ClimbPoint) -> BoolArray:
        """Return which tenants have all they want at a point of the climb, shape (N,)."""
        done: BoolArray = self.needs(point) >= self.limit
        return done

    def last_point(
        self, price: FloatArray, budget: float, frozen: BoolArray, fixed: FloatArray
    ) -> ClimbPoint:
        """Return the last point of the climb at which the needs cost no more than ``budget``.

        Parameters
        ----------
        price : ndarray, shape (N,)
            Per unit of amount, at least 0.
        frozen, fixed : ndarray, shape (N,)
            Tenants that need ``fixed`` at every point.
        """
        moving = np.flatnonzero(~frozen & (price > 0) & (self.limit > 0))
        if len(moving) == 0:
            return self.last
        budget = budget - float(price[frozen] @ fixed[frozen])

        def cost(place: int) -> float:
            """Return the cost of the needs of rising tenants at a breakpoint."""
            return float(price[moving] @ self._needs_at(place)[moving])

        low, high = 0, self.last.place
        if cost(high) <= budget:
            return self.last
        while high - low > 1:
            middle = (low + high) // 2
            if cost(middle) <= budget:
                low = middle
            else:
                high = middle
        paid, due = cost(low), cost(high)
        part = max((budget - paid) / (due - paid), 0.0) if due > paid else 0.0
        return ClimbPoint(low, part) if part < 1.0 else ClimbPoint(high, 0.0)
