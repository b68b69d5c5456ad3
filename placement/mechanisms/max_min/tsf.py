"""TSF and CDRF: tasks against the tasks that a tenant could run alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.mechanisms.max_min.levels import normalised_demands, task_climbs
from placement.mechanisms.max_min.lexmin import lexicographic_max_min, max_alone_on
from placement.mechanisms.model import DivisibleProblem, Division
from placement.mechanisms.tasks_alone import pool_fractions, tasks_alone, usable_classes


@dataclass(frozen=True, slots=True, kw_only=True)
class Tsf:
    """Task share fairness, and constrained DRF with placement, as PS-DSF [1]_ describes them.

    The level of a tenant is its number of tasks per weight, over the number it
    could run if it had servers to itself: for TSF all of them, as if it had *no*
    placement constraint (a server without a demanded resource still runs none);
    for CDRF those that it may use. The vector of levels is lexicographically
    max-min on the allowed servers. What a tenant holds counts as tasks (derived).

    References
    ----------
    .. [1] Khamse-Ashari et al., "Per-Server Dominant-Share Fairness (PS-DSF)",
       2016, Section II.
    """

    everywhere: bool = True  #: TSF; else CDRF

    def divide(self, problem: DivisibleProblem, rng: np.random.Generator) -> Division:
        """Divide the servers by task share fairness.

        Raises
        ------
        SolverError
            If the solver fails.
        """
        monopoly = tasks_alone(problem, everywhere=self.everywhere).sum(axis=1)
        pool = problem.pool
        shape, unit = normalised_demands(problem.demand, pool)
        room = pool_fractions(problem.free, pool)
        able = usable_classes(problem)
        alone = max_alone_on(shape, able, problem.speed, room).sum(axis=1)
        climbs = task_climbs(problem, unit, alone, monopoly)
        filling = lexicographic_max_min(climbs, shape, able, problem.speed, room)
        return filling.division(problem, unit, climbs.level_of(filling.amounts.sum(axis=1)))
