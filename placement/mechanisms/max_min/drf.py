"""DRF: dominant resource fairness on one pool, by water filling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.mechanisms.max_min.ascent import fill_pool, max_alone_in_pool, rising_details
from placement.mechanisms.max_min.levels import (
    dominant_climbs,
    levels_and_shares,
    normalised_demands,
)
from placement.mechanisms.model import DivisibleProblem, Division
from placement.mechanisms.tasks_alone import check_no_speed, pool_fractions


@dataclass(frozen=True, slots=True)
class Drf:
    """Dominant resource fairness, all hosts taken as one pool [1]_.

    The level of a tenant is its dominant share (what it holds included) per
    weight; the vector of levels is lexicographically max-min. All rise
    together; when a resource is used up, tenants that demand it are frozen, and
    the others go on [2]_; a tenant with all the tasks it wants stops by itself.
    Which hosts a tenant may use does not matter to a pool, but one without any
    gets nothing.

    Where a tenant's tasks do not demand the resource of which it holds most,
    it takes tasks without rising for a while; such tenants do so together when
    the others have reached their level (derived).

    References
    ----------
    .. [1] Ghodsi et al., "Dominant Resource Fairness", NSDI 2011, Section 4.
    .. [2] Parkes, Procaccia, Shah, "Beyond Dominant Resource Fairness", EC 2012,
       Section 3 (zero demands).
    """

    def divide(self, problem: DivisibleProblem, rng: np.random.Generator) -> Division:
        """Divide the pool by dominant resource fairness.

        Raises
        ------
        UnsupportedProblemError
            If a tenant's demand depends on the host.
        """
        check_no_speed(problem, "drf")
        pool = problem.pool
        room = pool_fractions(problem.free.sum(axis=0), pool)
        shape, unit = normalised_demands(problem.demand, pool)
        lacking = ((problem.demand > 0) & (pool <= 0)).any(axis=1)
        able = problem.eligible.any(axis=1) & ~lacking
        climbs = dominant_climbs(
            problem, shape, unit, np.where(able, max_alone_in_pool(shape, room), 0.0)
        )
        amounts, stops = fill_pool(climbs, shape, room)
        tasks = np.divide(amounts, unit, out=np.zeros(len(unit)), where=unit > 0)
        tasks = np.minimum(tasks, problem.count)
        return Division(
            tasks=tasks[:, None],
            pooled=True,
            details={
                **levels_and_shares(problem, climbs.level_of(amounts), tasks[:, None]),
                "rounds": rising_details(stops, problem.resources, None),
            },
        )
