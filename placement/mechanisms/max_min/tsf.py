"""TSF: task share fairness on servers with placement constraints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.mechanisms.max_min.levels import shapes, task_climbs
from placement.mechanisms.max_min.lexmin import alone_on, lexicographic_max_min
from placement.mechanisms.max_min.room import of_pool, tasks_alone, usable
from placement.mechanisms.model import DivisibleProblem, Division
from placement.round.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class Tsf:
    """Task share fairness, as PS-DSF [1]_ describes it.

    The level of a tenant is its number of tasks per weight, over the number it
    could run if it had all servers and *no* placement constraint (a server
    without a demanded resource still runs none). The vector of levels is
    lexicographically max-min on the allowed servers. What a tenant holds counts
    as tasks (derived).

    References
    ----------
    .. [1] Khamse-Ashari et al., "Per-Server Dominant-Share Fairness (PS-DSF)",
       2016, Section II.
    """

    def divide(self, problem: DivisibleProblem, rng: np.random.Generator) -> Division:
        """Divide the servers.

        Raises
        ------
        SolverError
            If the solver fails.
        """
        return max_min_task_shares(problem, tasks_alone(problem, everywhere=True).sum(axis=1))


def max_min_task_shares(problem: DivisibleProblem, monopoly: FloatArray) -> Division:
    """Divide so that ``tasks / (weight * monopoly)`` is lexicographically max-min.

    Parameters
    ----------
    monopoly : ndarray, shape (N,)
        Tasks of each tenant if it had the servers that count to itself.
    """
    pool = problem.pool
    shape, unit = shapes(problem.demand, pool)
    room = of_pool(problem.free, pool)
    able = usable(problem)
    alone = alone_on(shape, able, problem.speed, room).sum(axis=1)
    climbs = task_climbs(problem, unit, alone, monopoly)
    filling = lexicographic_max_min(climbs, shape, able, problem.speed, room)
    return filling.division(problem, unit, climbs.level_of(filling.amounts.sum(axis=1)))
