"""DRFH and C-DRFH: one dominant share per tenant, taken of all servers together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.errors import SolverError
from placement.mechanisms.max_min.ascent import fill_pool
from placement.mechanisms.max_min.levels import dominant_climbs, normalised_demands
from placement.mechanisms.max_min.lexmin import lexicographic_max_min, max_alone_on
from placement.mechanisms.model import DivisibleProblem, Division
from placement.mechanisms.tasks_alone import check_no_speed, pool_fractions, usable_classes


@dataclass(frozen=True, slots=True)
class Drfh:
    """Dominant resource fairness on heterogeneous servers, exactly [1]_.

    The level of a tenant is its global dominant share (of all servers
    together, what it holds included) per weight, and the vector of levels is
    lexicographically max-min over all divisions that fit the servers.

    With positive demands and unlimited tasks this is the linear program (7)
    of [1]_. Finite tasks: all rise together until one has all its tasks, which
    then stays (Section V-A of [1]_). Zero demands: when capacity stops the
    rise, only tenants are frozen that cannot rise while all others keep their
    level (derived). Tenants restricted to some servers still have their share of
    *all* servers as their level: that is C-DRFH, DRFH under placement
    constraints as [2]_ describes it.

    References
    ----------
    .. [1] Wang, Li, Liang, "Dominant Resource Fairness in Cloud Computing
       Systems with Heterogeneous Servers", INFOCOM 2014, Sections III-V.
    .. [2] Khamse-Ashari et al., "Per-Server Dominant-Share Fairness (PS-DSF)",
       2016, Section II.
    """

    name: str = "drfh"  #: by which errors call it: "drfh" or "cdrfh"

    def divide(self, problem: DivisibleProblem, rng: np.random.Generator) -> Division:
        """Divide the servers so that global dominant shares are lexicographically max-min.

        Raises
        ------
        UnsupportedProblemError
            If a tenant's demand depends on the host.
        SolverError
            If the solver fails, or the least level is above that of pooled DRF.
        """
        check_no_speed(problem, self.name)
        pool = problem.pool
        shape, unit = normalised_demands(problem.demand, pool)
        room = pool_fractions(problem.free, pool)
        able = usable_classes(problem)
        alone = max_alone_on(shape, able, problem.speed, room).sum(axis=1)
        climbs = dominant_climbs(problem, shape, unit, alone)
        filling = lexicographic_max_min(climbs, shape, able, problem.speed, room)
        amounts = filling.amounts.sum(axis=1)
        levels = climbs.level_of(amounts)

        in_play = climbs.limit > 0
        if in_play.any():
            pooled = climbs.level_of(fill_pool(climbs, shape, room.sum(axis=0))[0])
            minimum, maximum = levels[in_play].min(), pooled[in_play].min()
            if minimum > maximum * (1 + 1e-9):
                message = f"least level {minimum} is above pooled DRF's {maximum}"
                raise SolverError(self.name, 0, message)
        return filling.division(problem, unit, levels)
