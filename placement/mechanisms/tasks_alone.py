"""Where tasks may run, how many would fit alone, and fractions of the pool."""

from __future__ import annotations

import numpy as np

from placement.mechanisms.errors import UnsupportedProblemError
from placement.mechanisms.model import DivisibleProblem
from placement.model.arrays import BoolArray, FloatArray


def pool_fractions(amounts: FloatArray, pool: FloatArray) -> FloatArray:
    """Return ``amounts`` (..., R) in fractions of the pool (R,), 0 where the pool has nothing."""
    return np.divide(amounts, pool, out=np.zeros(amounts.shape), where=pool > 0)


def usable_classes(problem: DivisibleProblem) -> BoolArray:
    """Return on which host classes each tenant's tasks can run, shape (N, K).

    A class without any of a demanded resource is of no use, and a tenant that
    demands nothing gets nothing anywhere.
    """
    lacking = (problem.demand > 0).astype(np.float64) @ (problem.capacity <= 0).T
    demanded = problem.demand.max(axis=1, initial=0.0) > 0
    found: BoolArray = problem.eligible & (lacking == 0) & demanded[:, None]
    return found


def tasks_alone(problem: DivisibleProblem, *, everywhere: bool = False) -> FloatArray:
    """Return the tasks of each tenant that each host class could hold alone, shape (N, K).

    Parameters
    ----------
    everywhere : bool
        As if every tenant could use every class. What a class lacks altogether
        still gives 0.

    Notes
    -----
    ``gamma[i, l]`` of PS-DSF [1]_, of capacity and not of what is free:
    ``min over demanded r of cap[l, r] / dem[i, r]``, times the tenant's speed
    there.

    References
    ----------
    .. [1] Khamse-Ashari et al., "Per-Server Dominant-Share Fairness (PS-DSF)",
       2016, Section III.
    """
    tenants, classes = problem.eligible.shape
    alone = np.full((tenants, classes), np.inf)
    for r in range(len(problem.resources)):
        demanded = problem.demand[:, r] > 0
        alone[demanded] = np.minimum(
            alone[demanded], problem.capacity[None, :, r] / problem.demand[demanded, r, None]
        )
    alone = np.where(np.isfinite(alone), alone, 0.0) * problem.speed
    return alone if everywhere else np.where(problem.eligible, alone, 0.0)


def check_no_speed(problem: DivisibleProblem, mechanism: str) -> None:
    """Raise if a tenant's demand depends on the host, which the mechanism does not support.

    Raises
    ------
    UnsupportedProblemError
        If any speed is not 1.
    """
    if (problem.speed != 1.0).any():
        raise UnsupportedProblemError(
            mechanism,
            "speed",
            "its dominant shares are of one demand, the same on every host "
            "(speed is for psdsf, tsf, cdrf and per_server_drf)",
        )
