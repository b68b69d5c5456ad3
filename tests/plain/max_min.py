"""Lexicographic max-min by the book: one linear program per tenant and stop.

Raise the least level as far as it goes; ask of every tenant by itself whether it
could still rise while nobody falls below; freeze those who cannot; repeat.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize

from placement.mechanisms import DivisibleProblem


def plain_levels(
    problem: DivisibleProblem, start: np.ndarray, rate: np.ndarray, able: np.ndarray
) -> np.ndarray:
    """Return each tenant's level, ``start + rate * tasks``, shape (N,)."""
    program = _Program(problem, able)
    top = program.alone.sum(axis=1)
    wanted = np.minimum(problem.count, 2 * top)
    full = start + rate * wanted
    at_least = np.zeros(len(start))  # tasks
    active = (rate > 0) & (wanted > 0)
    while active.any():
        level = program.highest_level(at_least, start, rate, active)
        lowest = full[active].min()
        if lowest <= level * (1 + 1e-9):
            done = active & (full <= lowest * (1 + 1e-9))
            at_least[done] = wanted[done]
            active &= ~done
            continue
        reached = np.maximum((level - start) / np.where(rate > 0, rate, 1.0), 0.0)
        at_least = np.where(active, np.maximum(at_least, reached), at_least)
        stuck = [
            tenant
            for tenant in np.flatnonzero(active)
            if program.most(at_least, tenant) <= at_least[tenant] + 1e-7 * top[tenant]
        ]
        assert stuck, "somebody holds the level down"
        active[stuck] = False
    return start + rate * at_least


def most_tasks(
    problem: DivisibleProblem, at_least: np.ndarray, tenant: int, able: np.ndarray
) -> float:
    """Return the most tasks of ``tenant`` if everybody has ``at_least`` so many."""
    return _Program(problem, able).most(at_least, tenant)


class _Program:
    """Unknown is the part of what each tenant could have of each class alone, and a level."""

    def __init__(self, problem: DivisibleProblem, able: np.ndarray) -> None:
        tenants, self.classes = able.shape
        self.alone = np.zeros(able.shape)
        for i, k in np.argwhere(able):
            requested = problem.demand[i] > 0
            most = (problem.free[k, requested] / problem.demand[i, requested]).min()
            self.alone[i, k] = most * problem.speed[i, k]
        self.columns = able.size + 1
        self.rows: list[np.ndarray] = []
        for k, r in np.argwhere(problem.free > 0):
            row = np.zeros(self.columns)
            for i in range(tenants):
                taken = self.alone[i, k] * problem.demand[i, r] / problem.speed[i, k]
                row[i * self.classes + k] = taken / problem.free[k, r]
            self.rows.append(row)

    def _tasks(self, tenant: int) -> np.ndarray:
        """Return the row of a tenant's tasks, in parts of what it could have alone."""
        row = np.zeros(self.columns)
        mine = self.alone[tenant] / self.alone[tenant].sum()
        row[tenant * self.classes : (tenant + 1) * self.classes] = mine
        return row

    def highest_level(
        self, at_least: np.ndarray, start: np.ndarray, rate: np.ndarray, active: np.ndarray
    ) -> float:
        rows, limits = [], []
        unit = (rate * self.alone.sum(axis=1))[active].max()
        for tenant in np.flatnonzero(active):
            row = -self._tasks(tenant)
            full = rate[tenant] * self.alone[tenant].sum()
            row[-1] = unit / full
            rows.append(row)
            limits.append(start[tenant] / full)
        goal = np.zeros(self.columns)
        goal[-1] = 1.0
        return unit * self._solve(goal, at_least, rows, limits)

    def most(self, at_least: np.ndarray, tenant: int) -> float:
        top = float(self.alone[tenant].sum())
        return top * self._solve(self._tasks(tenant), at_least, [], []) if top > 0 else 0.0

    def _solve(
        self, goal: np.ndarray, at_least: np.ndarray, rows: list[np.ndarray], limits: list[float]
    ) -> float:
        rows, limits = [*self.rows, *rows], [1.0] * len(self.rows) + limits
        for tenant in np.flatnonzero(at_least):
            rows.append(-self._tasks(tenant))
            limits.append(-at_least[tenant] / self.alone[tenant].sum() * (1 - 1e-9))
        result = optimize.linprog(
            -goal,
            A_ub=np.array(rows).reshape(-1, self.columns),
            b_ub=np.array(limits),
            bounds=[(0, None)] * self.columns,
            method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        assert result.status == 0, result.message
        return float(-result.fun)
