"""How far a division is from PS-DSF, by Theorem 1."""

from __future__ import annotations

from typing import Final

import numpy as np

from placement.mechanisms.model import DivisibleProblem
from placement.model.arrays import FloatArray

#: A tenant that holds less than this part of what is divided holds nothing.
_NOTHING: Final = 1e-9
#: More than what is free by more than this part is infeasible.
_ROUNDING: Final = 1e-9


def theorem1_residual(problem: DivisibleProblem, tasks: FloatArray) -> float:
    """Return the largest violation of the theorem that characterises PS-DSF.

    Parameters
    ----------
    tasks : ndarray, shape (N, K)

    Returns
    -------
    float
        0 for PS-DSF, at most 1; infinity where ``tasks`` is not feasible.

    Notes
    -----
    Theorem 1 of [1]_: a feasible division is PS-DSF iff every user i has, at
    every server l with ``gamma[i, l] > 0``, a bottleneck: a demanded resource
    that is used up at l and of which no tenant of a higher level holds any. The
    level is ``s[i, l] / w[i]``, ``s[i, l] = x[i] / gamma[i, l]``.

    By how much it is violated (derived): of each demanded resource the larger
    of the part of what was free that is left, and how far i's level lies below
    the highest of those that hold it, as a part of that; the least over the
    resources; the largest over i and l. A user that has all the tasks it wants
    is exempt, and no violation is larger than the part of them that it
    lacks. What a user holds counts in x as in `held_tasks`.

    Nothing here is shared with the mechanism, so that it can judge it.

    References
    ----------
    .. [1] Khamse-Ashari et al., "Per-Server Dominant-Share Fairness (PS-DSF)",
       2016, Theorem 1.
    """
    demanded = problem.demand > 0
    if _is_infeasible(problem, tasks):
        return float("inf")
    with np.errstate(divide="ignore", invalid="ignore"):
        held = np.where(demanded, problem.held / problem.demand, 0.0).max(axis=1, initial=0.0)
        lacking = np.where(
            np.isinf(problem.count), 1.0, np.clip(1.0 - tasks.sum(axis=1) / problem.count, 0.0, 1.0)
        )
    lacking[problem.count <= 0] = 0.0
    total = held + tasks.sum(axis=1)
    worst = 0.0
    for place in range(len(problem.hosts)):
        demand = problem.demand / problem.speed[:, place, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            alone = np.where(demanded, problem.capacity[place] / demand, np.inf).min(
                axis=1, initial=np.inf
            )
        gamma = np.where(problem.eligible[:, place] & np.isfinite(alone), alone, 0.0)
        users = np.flatnonzero(gamma > 0)
        level = total[users] / (problem.weight[users] * gamma[users])
        found = lacking[users].copy()
        for r in np.flatnonzero(demanded.any(axis=0)).tolist():
            free = problem.free[place, r]
            takes = tasks[users, place] * demand[users, r]
            unused = max(1.0 - takes.sum() / free, 0.0) if free > 0 else 0.0
            highest = level[takes > _NOTHING * free].max(initial=0.0)
            below = np.zeros(len(users))
            if highest > 0:
                below = np.maximum(1.0 - level / highest, 0.0)
            here = np.maximum(below, unused)
            found = np.where(demanded[users, r], np.minimum(found, here), found)
        worst = max(worst, float(found.max(initial=0.0)))
    return worst


def _is_infeasible(problem: DivisibleProblem, tasks: FloatArray) -> bool:
    """Return whether a division takes more than is free or wanted, or uses closed servers."""
    used = np.einsum("nk,nr->kr", tasks / problem.speed, problem.demand)
    return bool(
        (tasks < 0).any()
        or (tasks[~problem.eligible] > 0).any()
        or (used > problem.free * (1 + _ROUNDING)).any()
        or (tasks.sum(axis=1) > problem.count * (1 + _ROUNDING)).any()
    )
