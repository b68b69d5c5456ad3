"""A last step after PS-DSF: give tenants what no other tenant can use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.errors import SolverError
from placement.mechanisms.model import DivisibleProblem
from placement.mechanisms.psdsf.sweeps import clip_to_room
from placement.mechanisms.tasks_alone import tasks_alone
from placement.model.arrays import BoolArray, FloatArray

_SOLVER_TOLERANCE: Final = 1e-9
#: A factor within this part of the point where a tenant is complete counts as that point.
_THERE: Final = 1e-7


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ParetoResult:
    """The result of the Pareto step."""

    tasks: FloatArray  #: (N, K)
    factor: float  #: every tenant has this times its former tasks, or all that it wants


def scale_all_tasks(problem: DivisibleProblem, tasks: FloatArray) -> ParetoResult:
    """Multiply all tenants' tasks by the largest possible t, and hand out the rest.

    Parameters
    ----------
    tasks : ndarray, shape (N, K)
        A feasible division.

    Raises
    ------
    SolverError
        If HiGHS finds no optimum.

    Notes
    -----
    Derived: ``max t`` subject to ``x_i >= t x_i(PS-DSF)``; a tenant with all the tasks
    it wants keeps them, and t goes on for the others. Then the sum of ``x_i /
    x_i(PS-DSF)`` is maximised with that as the least, so that the outcome is
    Pareto optimal. It need not pass Theorem 1 any more. No tenant has less than
    before, but for the solver's tolerance.
    """
    total = tasks.sum(axis=1)
    reach = np.divide(problem.count, total, out=np.full(len(total), np.inf), where=total > 0)
    program = _ParetoProgram(problem, np.where(total > 0, total, 1.0), reach)
    rising = total > 0
    factor = 1.0
    while rising.any():
        nearest = float(reach[rising].min())
        factor = min(max(program.largest_factor(rising, factor), factor), nearest)
        if factor < nearest * (1 - _THERE):
            break
        rising &= reach > nearest * (1 + _THERE)
    minimum = np.where(total > 0, np.minimum(reach, factor), 0.0)
    return ParetoResult(
        tasks=clip_to_room(problem, program.largest_division(minimum)), factor=factor
    )


class _ParetoProgram:
    """The linear programs of the Pareto step.

    Unknowns are parts of what a tenant could have of a server alone, rows are
    parts of what is free and multiples of what each tenant had: in units of
    tasks the duals of large pools fall below any solver's tolerances.
    """

    def __init__(self, problem: DivisibleProblem, unit: FloatArray, reach: FloatArray) -> None:
        from scipy import sparse  # noqa: PLC0415 - slow to import, and only needed here

        self._shape = problem.eligible.shape
        self._unit = unit
        self._reach = reach
        alone = np.full(self._shape, np.inf)
        for r in np.flatnonzero((problem.demand > 0).any(axis=0)).tolist():
            demanded = problem.demand[:, r] > 0
            alone[demanded] = np.minimum(
                alone[demanded],
                problem.free[None, :, r]
                * problem.speed[demanded]
                / problem.demand[demanded, r, None],
            )
        alone = np.where((tasks_alone(problem) > 0) & np.isfinite(alone), alone, 0.0)
        self._tenants, self._where = np.nonzero(alone > 0)
        self._alone = alone[self._tenants, self._where]
        columns = np.arange(len(self._tenants))
        speed = problem.speed[self._tenants, self._where]
        takes = problem.demand[self._tenants] * (self._alone / speed)[:, None]
        room = problem.free[self._where]
        parts = np.divide(takes, room, out=np.zeros_like(takes), where=takes > 0)
        of, which = np.nonzero(parts)
        classes, resources = problem.free.shape
        self._rooms = sparse.csr_matrix(
            (parts[of, which], (self._where[of] * resources + which, of)),
            shape=(classes * resources, len(columns)),
        )
        self._multiples = sparse.csr_matrix(
            (self._alone / unit[self._tenants], (self._tenants, columns)),
            shape=(self._shape[0], len(columns)),
        )

    def largest_factor(self, rising: BoolArray, minimum: float) -> float:
        """Return the largest factor for the tasks of ``rising`` tenants; the others keep theirs."""
        from scipy import sparse  # noqa: PLC0415

        had = np.isfinite(self._reach) & ~rising
        steep = sparse.csr_matrix(rising.astype(np.float64)[:, None])
        floor = np.where(had, self._reach * (1 - _SOLVER_TOLERANCE), 0.0)
        solution = self._solve_program(
            np.append(np.zeros(len(self._tenants)), -1.0),
            sparse.vstack(
                [
                    sparse.hstack([self._rooms, sparse.csr_matrix((self._rooms.shape[0], 1))]),
                    sparse.hstack([-self._multiples, steep]),
                ]
            ),
            np.concatenate([np.ones(self._rooms.shape[0]), -floor]),
            [(0.0, None)] * len(self._tenants) + [(minimum * (1 - _SOLVER_TOLERANCE), None)],
        )
        return float(solution[-1])

    def largest_division(self, minimum: FloatArray) -> FloatArray:
        """Return the division (N, K) of most tasks, in multiples, at least ``minimum``, (N,)."""
        from scipy import sparse  # noqa: PLC0415

        bounded = np.flatnonzero(np.isfinite(self._reach))
        solution = self._solve_program(
            -np.asarray(self._multiples.sum(axis=0)).ravel(),
            sparse.vstack([self._rooms, -self._multiples, self._multiples[bounded]]),
            np.concatenate(
                [
                    np.ones(self._rooms.shape[0]),
                    -minimum * (1 - _SOLVER_TOLERANCE),
                    self._reach[bounded],
                ]
            ),
            [(0.0, None)] * len(self._tenants),
        )
        tasks = np.zeros(self._shape)
        tasks[self._tenants, self._where] = np.maximum(solution, 0.0) * self._alone
        return tasks

    def _solve_program(
        self,
        cost: FloatArray,
        rows: object,
        limits: FloatArray,
        bounds: Sequence[tuple[float, float | None]],
    ) -> FloatArray:
        """Solve one linear program of the Pareto step by HiGHS."""
        from scipy import optimize  # noqa: PLC0415

        if len(cost) == 0:
            return np.zeros(0)
        result = optimize.linprog(
            cost,
            A_ub=rows,
            b_ub=limits,
            bounds=bounds,
            method="highs",
            options={
                "primal_feasibility_tolerance": _SOLVER_TOLERANCE,
                "dual_feasibility_tolerance": _SOLVER_TOLERANCE,
            },
        )
        if result.status != 0:
            raise SolverError("Pareto step of psdsf", int(result.status), str(result.message))
        solution: FloatArray = np.asarray(result.x, dtype=np.float64)
        return solution
