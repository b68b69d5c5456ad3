"""Naive per-server DRF: dominant resource fairness on each host by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.mechanisms.errors import UnsupportedProblemError
from placement.mechanisms.max_min.ascent import (
    ClimbStop,
    fill_pool,
    max_alone_in_pool,
    rising_details,
)
from placement.mechanisms.max_min.climbs import Climbs
from placement.mechanisms.max_min.levels import levels_and_shares, normalised_demands
from placement.mechanisms.model import DivisibleProblem, Division
from placement.mechanisms.tasks_alone import pool_fractions, usable_classes
from placement.model.arrays import BoolArray, FloatArray


@dataclass(frozen=True, slots=True)
class PerServerDrf:
    """DRF on each class of hosts as if there were no other [1]_.

    Shares are of the class's own capacity, with each tenant's speed there.
    What running VMs hold does not say where, so it does not count here.
    The outcome can be far from Pareto optimal: it is a yardstick.

    References
    ----------
    .. [1] Wang, Li, Liang, "Dominant Resource Fairness in Cloud Computing
       Systems with Heterogeneous Servers", INFOCOM 2014, Section III-D.
    """

    def divide(self, problem: DivisibleProblem, rng: np.random.Generator) -> Division:
        """Divide each class of hosts by DRF on its own.

        Raises
        ------
        UnsupportedProblemError
            If a count is bounded: which host's tasks would count?
        """
        if np.isfinite(problem.count).any():
            raise UnsupportedProblemError(
                "per_server_drf", "count", "it divides each host alone, so counts must be unbounded"
            )
        able = usable_classes(problem)
        tasks = np.zeros(able.shape)
        rounds = []
        for place in range(len(problem.hosts)):
            tasks[:, place], stops = _divide_class(problem, place, able[:, place])
            rounds += rising_details(stops, problem.resources, [place])
        dominant = levels_and_shares(problem, np.zeros(len(tasks)), tasks)["dominant_shares"]
        levels = np.array(dominant) / problem.weight
        return Division(
            tasks=tasks, details={**levels_and_shares(problem, levels, tasks), "rounds": rounds}
        )


def _divide_class(
    problem: DivisibleProblem, place: int, able: BoolArray
) -> tuple[FloatArray, list[ClimbStop]]:
    """Divide one class of hosts by DRF; return the tasks of each tenant, and the stops."""
    capacity = problem.capacity[place]
    shape, unit = normalised_demands(problem.demand / problem.speed[:, place, None], capacity)
    room = pool_fractions(problem.free[place], capacity)
    limit = np.where(able, 2.0 * max_alone_in_pool(shape, room), 0.0)
    climbs = Climbs(np.zeros_like(shape), shape, problem.weight, limit)
    amounts, stops = fill_pool(climbs, shape, room)
    return np.divide(amounts, unit, out=np.zeros(len(unit)), where=unit > 0), stops
