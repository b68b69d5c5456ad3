"""Lexicographic max-min over servers, by linear programs from stop to stop.

What tenants need at a point of the climb is known in closed form, so one linear
program says whether it fits, and if it does not, its prices give an upper
bound of the points that can: with a price for every resource of every server, a
tenant's amount costs at least what its cheapest server charges, and all needs
together may cost no more than all that is free. The highest point that passes
is tried next (Newton's method on a piecewise linear function, so it ends).

At the last point that fits the prices also show which tenants are stopped: those
whose amount costs something. They can rise in no division that leaves the
others what they have. They are frozen, and the others rise on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.errors import SolverError
from placement.mechanisms.max_min.ascent import Ascent, ClimbStop, rising_details
from placement.mechanisms.max_min.climbs import ClimbPoint, Climbs
from placement.mechanisms.max_min.levels import levels_and_shares
from placement.mechanisms.max_min.merged_problem import MergedProblem, merge_problem
from placement.mechanisms.model import DivisibleProblem, Division
from placement.model.arrays import BoolArray, FloatArray

#: Tolerances requested from the solver.
SOLVER_TOLERANCE: Final = 1e-9
#: A need met but for this part of it is met. Of needs below a thousandth of what
#: a tenant could have alone, this part of that thousandth.
_MET: Final = 1e-8
#: The part of what was given that a later program may take back.
_GIVEN: Final = 1e-10
#: An upper bound and an answer farther apart than this are a wrong answer.
_WRONG: Final = 1e-6
#: Needs below this part of what a tenant could have alone are met afterwards.
_SMALL: Final = 1e-6
#: What the solver takes for 0 in the matrix of a program.
_UNSEEN: Final = 1e-9
#: With more unknowns the interior point method (with crossover) beats the simplex.
_MANY_COLUMNS: Final = 15_000
#: Far more than any program takes that the solver does not go round in circles on.
_LONGEST_S: Final = 300.0
#: Linear programs for one stop; one to three are usual.
_MAX_STEPS: Final = 200


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MaxMinFilling:
    """A lexicographic max-min division with its stops."""

    amounts: FloatArray  #: (N, K) in shares
    stops: tuple[ClimbStop, ...]
    programs: int  #: linear programs solved
    residual: float  #: the largest part of a need, or of a server, that the solver got wrong

    def division(self, problem: DivisibleProblem, unit: FloatArray, levels: FloatArray) -> Division:
        """Return the division in tasks; ``unit``, (N,), is the dominant share of one task."""
        tasks = np.divide(
            self.amounts, unit[:, None], out=np.zeros_like(self.amounts), where=unit[:, None] > 0
        )
        totals = tasks.sum(axis=1)
        # Rounding must not hand out more tasks than are wanted.
        above = np.divide(
            problem.count, totals, out=np.ones_like(totals), where=totals > problem.count
        )
        tasks = tasks * above[:, None]
        return Division(
            tasks=tasks,
            details={
                **levels_and_shares(problem, levels, tasks),
                "rounds": rising_details(self.stops, problem.resources, range(len(problem.hosts))),
                "programs": self.programs,
                "residual": self.residual,
            },
        )


def max_alone_on(
    shape: FloatArray, able: BoolArray, speed: FloatArray, room: FloatArray
) -> FloatArray:
    """Return how much each tenant could have of each server alone, shape (N, K)."""
    maximum = np.full(able.shape, np.inf)
    for r in range(room.shape[1]):
        demanded = shape[:, r] > 0
        maximum[demanded] = np.minimum(
            maximum[demanded], room[None, :, r] / shape[demanded, r, None]
        )
    return np.where(able & np.isfinite(maximum), maximum * speed, 0.0)


def lexicographic_max_min(
    climbs: Climbs, shape: FloatArray, able: BoolArray, speed: FloatArray, room: FloatArray
) -> MaxMinFilling:
    """Divide servers so that the vector of levels is lexicographically max-min.

    Parameters
    ----------
    climbs : Climbs
        What each tenant needs at each level, in shares.
    shape : ndarray, shape (N, R)
        What one unit of share takes of the pool.
    able, speed : ndarray, shape (N, K)
        Where tenants may run, and what divides their demand there.
    room : ndarray, shape (K, R)
        Free, in fractions of the pool.

    Raises
    ------
    SolverError
        If HiGHS finds no optimum, or one that its own prices contradict.

    Notes
    -----
    The programs are in shares and fractions: unknowns are parts of what a
    tenant could have of a server alone, and rows are divided by their right
    hand sides. In units of tasks the duals of a large pool fall below the
    tolerances of any solver, which then calls a far too small answer optimal.
    """
    merged = merge_problem(shape, able, speed, room)
    servers = _ServerColumns(merged)
    ascent = Ascent(climbs)
    stops: list[ClimbStop] = []
    amounts, residual = np.zeros(merged.able.shape), 0.0
    while ascent.rising_tenants().any():
        found = _next_stop(ascent, servers, amounts, residual)
        amounts, residual = found.amounts, max(residual, found.gap)
        stop = ascent.stop_at(
            found.cut.point, found.cut.stopped[merged.group], (found.cut.prices > 0)[merged.kind]
        )
        stops.append(stop)
        if ascent.rising_tenants().any() and not stop.frozen.any() and not found.progress:
            raise SolverError("lexicographic max-min", 0, "no tenant rises and none is stopped")
        servers.keep_cheapest(found.cut, amounts)
    needs = ascent.needs(ascent.point)
    amounts, off = servers.correct_solution(amounts, merged.sums(needs))
    return MaxMinFilling(
        amounts=merged.split_among_members(amounts, needs),
        stops=tuple(stops),
        programs=servers.programs,
        residual=max(residual, off),
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _PriceCut:
    """Prices, and the last point at which all needs cost no more than all that is free."""

    prices: FloatArray  #: (V, R) per unit of the pool
    cost: FloatArray  #: (G,) of one unit for each group where it is cheapest
    point: ClimbPoint
    stopped: BoolArray  #: (G,) groups that cannot rise further


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _HighestPoint:
    """The highest point of the climb that fits, with a division that reaches it."""

    cut: _PriceCut
    amounts: FloatArray  #: (G, V)
    gap: float
    progress: bool  #: does the point lie above the one before?


def _price_cut(
    ascent: Ascent,
    servers: _ServerColumns,
    prices: FloatArray,
    seen: BoolArray,
    climb: FloatArray | None = None,
) -> _PriceCut:
    """Return the bound that prices set to the climb; a program for ``climb`` has inexact prices."""
    cost = servers.cheapest_costs(prices, seen)
    budget = float((prices * servers.merged.room).sum())
    point = ascent.last_point(cost[servers.merged.group], budget)
    if point >= ascent.climbs.last:  # nothing that these prices are of is used up
        cost, prices = np.zeros_like(cost), np.zeros_like(prices)
    # A tenant that should have stopped and did not stops at the next stop at the latest.
    paying = cost if climb is None else cost * climb
    stopped = paying > (0.0 if climb is None else 1e-7 * paying.sum())
    return _PriceCut(prices=prices, cost=cost, point=point, stopped=stopped)


def _next_stop(
    ascent: Ascent, servers: _ServerColumns, amounts: FloatArray, residual: float
) -> _HighestPoint:
    """Find the highest point of the climb that fits, cutting down from the bounds of the pool.

    ``amounts`` fit, and are what was found at the point where we stand.
    """
    merged = servers.merged
    here = ascent.point
    needed = merged.sums(ascent.needs(here))
    given = amounts
    lowest = _pool_cut(ascent, servers)
    gap = residual
    for _ in range(_MAX_STEPS):
        climb = np.maximum(merged.sums(ascent.needs(lowest.point)) - needed, 0.0)
        if not servers.needs_increase(needed, climb):
            break
        seen = servers.columns_in_use(needed + climb)
        base = np.minimum(needed, servers.group_sums(given, seen))
        amounts, prices = servers.solve(base, climb, seen)
        cut = _price_cut(ascent, servers, prices, seen, climb)
        lower = cut.point < lowest.point
        lowest = cut if lower else lowest
        gap = servers.largest_shortage(merged.sums(ascent.needs(lowest.point)), amounts)
        if gap <= _MET + residual or not lower:
            break
    if gap > _WRONG:
        raise SolverError("lexicographic max-min", 0, f"prices and amounts differ by {gap:.1e}")
    return _HighestPoint(cut=lowest, amounts=amounts, gap=gap, progress=lowest.point > here)


def _pool_cut(ascent: Ascent, servers: _ServerColumns) -> _PriceCut:
    """Return the lowest bound of the climb that can be computed without a linear program."""
    everything = servers.all_columns()
    lowest = min(
        (_price_cut(ascent, servers, prices, everything) for prices in servers.pool_prices()),
        key=lambda cut: cut.point,
    )
    # No tenant can have more than everything that it may use.
    while True:
        excess = servers.excess(servers.merged.sums(ascent.needs(lowest.point)))
        maximum = int(np.argmax(excess))
        if excess[maximum] <= 1.0 + 1e-9:
            return lowest
        cut = _price_cut(ascent, servers, servers.prices_alone(maximum), everything)
        if cut.point >= lowest.point:
            return lowest
        lowest = cut


class _ServerColumns:
    """The columns of the linear programs: a group of tenants on a kind of servers."""

    def __init__(self, merged: MergedProblem) -> None:
        self.merged = merged
        self.programs = 0
        maximum = max_alone_on(merged.shape, merged.able, merged.speed, merged.room)
        self._alone: FloatArray = maximum.sum(axis=1)  # (G,) of a group without the others
        self._group, self._kind = np.nonzero(maximum > 0)
        self._maximum = maximum[self._group, self._kind]
        speed = merged.speed[self._group, self._kind]
        #: (columns, R) what one unit of a column takes of the pool
        self._use: FloatArray = merged.shape[self._group] / speed[:, None]

    def pool_prices(self) -> list[FloatArray]:
        """Return a price of 1 for each resource by itself, the same on all servers."""
        prices = []
        for r in range(self.merged.room.shape[1]):
            each = np.zeros_like(self.merged.room)
            each[:, r] = 1.0
            prices.append(each)
        return prices

    def prices_alone(self, group: int) -> FloatArray:
        """Return prices at which a group's amount costs 1 wherever it may be."""
        prices = np.zeros_like(self.merged.room)
        for column in np.flatnonzero(self._group == group).tolist():
            kind = self._kind[column]
            taken = self._use[column] * self._maximum[column]
            room = self.merged.room[kind]
            stops = int(np.argmax(np.divide(taken, room, out=np.zeros_like(room), where=room > 0)))
            prices[kind, stops] = 1.0 / self._use[column, stops]
        return prices

    def excess(self, needs: FloatArray) -> FloatArray:
        """Return each group's need, as a part of what it could have without the others, (G,)."""
        alone = np.zeros(len(needs))
        np.add.at(alone, self._group, self._maximum)
        excess: FloatArray = np.divide(needs, alone, out=np.zeros_like(needs), where=alone > 0)
        return excess

    def _column_costs(self, prices: FloatArray) -> FloatArray:
        """Return the cost of one unit of each column, (columns,)."""
        charged: FloatArray = (self._use * prices[self._kind]).sum(axis=1)
        return charged

    def all_columns(self) -> BoolArray:
        """Return a mask that has all columns, shape (columns,)."""
        return np.ones(len(self._group), dtype=np.bool_)

    def group_sums(self, amounts: FloatArray, seen: BoolArray) -> FloatArray:
        """Return the amount of each group on the seen columns, shape (G,)."""
        sums: FloatArray = np.zeros(len(self._alone))
        group, kind = self._group[seen], self._kind[seen]
        np.add.at(sums, group, amounts[group, kind])
        return sums

    def scale_to_room(self, amounts: FloatArray) -> tuple[FloatArray, float]:
        """Scale down what is on overfull servers; return it with the largest excess."""
        room = self.merged.room
        taken = (amounts / self.merged.speed).T @ self.merged.shape
        over = np.divide(taken, room, out=np.zeros_like(taken), where=room > 0).max(axis=1)
        over = np.maximum(over, 1.0)
        return amounts / over, float(over.max(initial=1.0) - 1.0)

    def columns_in_use(self, wanted: FloatArray) -> BoolArray:
        """Return the columns that can hold more of a need than the solver takes for 0."""
        seen: BoolArray = self._maximum >= _UNSEEN * self._scale_of_needs(wanted)[self._group]
        return seen

    def cheapest_costs(self, prices: FloatArray, seen: BoolArray) -> FloatArray:
        """Return the cost of one unit on each group's cheapest seen column, shape (G,)."""
        cost = np.full(len(self._alone), np.inf)
        np.minimum.at(cost, self._group[seen], self._column_costs(prices)[seen])
        return np.where(np.isfinite(cost), cost, 0.0)

    def keep_cheapest(self, cut: _PriceCut, amounts: FloatArray) -> None:
        """Drop the columns that no division as good as this one uses.

        By complementary slackness every group, frozen or not, stays on its
        cheapest servers from now on. Where the solver's tolerance says
        otherwise, what there is of ``amounts`` stays possible.
        """
        dearer = self._column_costs(cut.prices) - cut.cost[self._group]
        cheap = dearer <= 1e-6 * cut.prices.max(initial=0.0)
        kept = cheap | (amounts[self._group, self._kind] > 0)
        self._group, self._kind = self._group[kept], self._kind[kept]
        self._maximum, self._use = self._maximum[kept], self._use[kept]

    def _scale_of_needs(self, needs: FloatArray) -> FloatArray:
        """Return the scale of each group's need for comparisons, above 0, (G,)."""
        scale = np.maximum(needs, _SMALL * self._alone)
        return np.where(scale > 0, scale, 1.0)

    def needs_increase(self, base: FloatArray, climb: FloatArray) -> bool:
        """Return whether a group of tenants needs more with ``climb`` than at the base."""
        return bool((climb / self._scale_of_needs(base + climb) > 1e-12).any())

    def largest_shortage(self, needs: FloatArray, amounts: FloatArray) -> float:
        """Return the largest unmet part of a need; see `_MET`."""
        missing = needs - amounts.sum(axis=1)
        scale = np.maximum(needs, 1e-3 * self._alone)
        parts = np.divide(missing, scale, out=np.zeros_like(needs), where=scale > 0)
        return float(parts.max(initial=0.0))

    def solve(
        self, base: FloatArray, climb: FloatArray, seen: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Go as far as possible from ``base``, which fits, in the direction of ``climb``.

        Returns
        -------
        amounts : ndarray, shape (G, V)
        prices : ndarray, shape (V, R)
            Of what is used up, per unit of the pool.
        """
        from scipy import optimize, sparse  # noqa: PLC0415 - slow to import, and only needed here

        self.programs += 1
        room = self.merged.room
        group, kind, maximum = self._group[seen], self._kind[seen], self._maximum[seen]
        columns, (kinds, resources) = len(group), room.shape
        taken = self._use[seen] * maximum[:, None]
        column, resource = np.nonzero(taken > 0)
        scale = self._scale_of_needs(base + climb)
        climb = climb / scale
        rising = np.flatnonzero(climb)
        matrix = sparse.coo_matrix(
            (
                np.concatenate(
                    [
                        taken[column, resource] / room[kind[column], resource],
                        -maximum / scale[group],
                        climb[rising] / climb.max(),
                    ]
                ),
                (
                    np.concatenate(
                        [
                            kind[column] * resources + resource,
                            kinds * resources + group,
                            kinds * resources + rising,
                        ]
                    ),
                    np.concatenate([column, np.arange(columns), np.full(len(rising), columns)]),
                ),
            ),
            shape=(kinds * resources + len(base), columns + 1),
        ).tocsr()
        goal = np.zeros(columns + 1)
        goal[-1] = -1.0
        # Coefficients far apart can mislead one way of solving, hardly all of them.
        methods = [("highs-ds", True), ("highs-ds", False), ("highs-ipm", True)]
        if columns > _MANY_COLUMNS:
            methods = [("highs-ipm", True), ("highs-ds", True)]
        for method, presolve in methods:
            result = optimize.linprog(
                goal,
                A_ub=matrix,
                b_ub=np.concatenate([np.ones(kinds * resources), -base / scale * (1 - _GIVEN)]),
                method=method,
                options={
                    "presolve": presolve,
                    "maxiter": 20 * sum(matrix.shape) + 1000,
                    "time_limit": _LONGEST_S,
                    "primal_feasibility_tolerance": SOLVER_TOLERANCE,
                    "dual_feasibility_tolerance": SOLVER_TOLERANCE,
                },
            )
            if result.status == 0:
                break
        else:
            raise SolverError("lexicographic max-min", int(result.status), str(result.message))
        amounts = np.zeros(self.merged.able.shape)
        amounts[group, kind] = np.maximum(result.x[:-1], 0.0) * maximum
        amounts, _ = self.scale_to_room(amounts)
        paid = np.maximum(-result.ineqlin.marginals[: kinds * resources], 0.0)
        paid[result.ineqlin.residual[: kinds * resources] > 1e-6] = 0.0
        paid = paid.reshape(room.shape)
        prices = np.divide(paid, room, out=np.zeros_like(paid), where=room > 0)
        return amounts, prices

    def correct_solution(self, amounts: FloatArray, needs: FloatArray) -> tuple[FloatArray, float]:
        """Correct the solver's errors within its tolerance; return their size.

        Every group gets exactly what it needs, before servers that would then be
        above their room scale down all that is on them.
        """
        off = self.largest_shortage(needs, amounts)
        given = amounts.sum(axis=1)
        factor = np.divide(needs, given, out=np.ones_like(needs), where=given > 0)
        fitted = amounts * factor[:, None]
        for group in np.flatnonzero((given <= 0) & (needs > 0)).tolist():
            mine = np.flatnonzero(self._group == group)
            fitted[group, self._kind[mine[np.argmax(self._maximum[mine])]]] = needs[group]
        fitted, over = self.scale_to_room(fitted)
        return fitted, max(off, over)
