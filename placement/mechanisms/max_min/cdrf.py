"""CDRF: task shares against the allowed servers alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.mechanisms.max_min.room import tasks_alone
from placement.mechanisms.max_min.tsf import max_min_task_shares
from placement.mechanisms.model import DivisibleProblem, Division


@dataclass(frozen=True, slots=True)
class Cdrf:
    """Constrained DRF with placement: as TSF, but against the allowed servers.

    The level of a tenant is its number of tasks per weight, over the number it
    could run if it had all the servers that it may use to itself; see [1]_.

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
        return max_min_task_shares(problem, tasks_alone(problem).sum(axis=1))
