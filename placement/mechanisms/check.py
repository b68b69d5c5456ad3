"""Check that a division is feasible, by code that shares nothing with the mechanisms."""

from __future__ import annotations

from typing import Final

import numpy as np

from placement.errors import InfeasibleAllocationError, ShapeMismatchError
from placement.mechanisms.model import DivisibleProblem, Division
from placement.model.arrays import BoolArray

#: What a solver may be off by, relative to the pool of a resource or to a count.
DIVISION_TOLERANCE: Final = 1e-6


def check_division(problem: DivisibleProblem, division: Division) -> None:
    """Raise unless a division fits.

    Every number is finite and at least 0; no tenant gets more than it wants,
    or anything on hosts that it may not use; what is given of a resource on a
    class of hosts (in the pool, for a pooled division) is free there. All within
    `DIVISION_TOLERANCE` of the pool.

    Raises
    ------
    ShapeMismatchError
        If ``tasks`` has another shape than the problem calls for.
    InfeasibleAllocationError
        Naming the rule that is broken.
    """
    tasks = division.tasks
    tenants, classes = problem.eligible.shape
    expected = (tenants, 1 if division.pooled else classes)
    if tasks.shape != expected:
        raise ShapeMismatchError("tasks", tasks.shape, expected)
    if not np.isfinite(tasks).all():
        raise InfeasibleAllocationError("tasks are not finite")
    pool = problem.pool
    scale = np.where(pool > 0, pool, 1.0)
    one_task = (problem.demand / scale).max(axis=1, initial=0.0)
    if (tasks * one_task[:, None] < -DIVISION_TOLERANCE).any():
        raise InfeasibleAllocationError("tasks below 0")
    requested = problem.count * (1 + DIVISION_TOLERANCE)
    if (
        (tasks.sum(axis=1) > requested) & (tasks.sum(axis=1) * one_task > DIVISION_TOLERANCE)
    ).any():
        raise InfeasibleAllocationError("more tasks than requested")
    may: BoolArray = problem.eligible
    if division.pooled:
        may = may.any(axis=1).reshape(tenants, 1)
    if tasks[~may].any():
        raise InfeasibleAllocationError("tasks on hosts that are not eligible")
    if (tasks.any(axis=1) & (problem.demand <= 0).all(axis=1)).any():
        raise InfeasibleAllocationError("tasks for a tenant that demands nothing")

    if division.pooled:
        used = tasks.T @ problem.demand
        free = problem.free.sum(axis=0)[None, :]
    else:
        used = (tasks / problem.speed).T @ problem.demand
        free = problem.free
    if (used > free + DIVISION_TOLERANCE * np.where(pool > 0, pool, 0.0)).any():
        raise InfeasibleAllocationError("more of a resource than is free")
