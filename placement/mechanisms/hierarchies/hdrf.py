"""H-DRF and naive hierarchical DRF: whole tasks, one by one, down a tree of tenants."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.mechanisms.errors import UnsupportedProblemError
from placement.mechanisms.hierarchies.leaves import Leaves
from placement.mechanisms.hierarchies.task_tree import TaskTree
from placement.mechanisms.max_min.levels import levels_and_shares
from placement.mechanisms.model import DivisibleProblem, Division
from placement.model.arrays import FloatArray, IntArray

#: Tasks that are handed out at most; each takes tens of microseconds.
MAX_TASKS: Final = 2_000_000
#: Of the pool: what rounding may add to a sum of tasks that fills it exactly.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Hdrf:
    """Hierarchical DRF [1]_: the next task goes down the tree to the least share.

    From the root to the child of least share per weight that is not blocked,
    until a leaf is reached, which gets one task. A leaf's share is its dominant
    share; `RescalingGroup` describes how a group counts its children. A leaf
    is blocked when its next task does not fit or it has none, a group when all
    its children are.

    References
    ----------
    .. [1] Bhattacharya et al., "Hierarchical Scheduling for Diverse Datacenter
       Workloads", SoCC 2013.
    """

    def divide(self, problem: DivisibleProblem, rng: np.random.Generator) -> Division:
        """Hand out whole tasks of the pool, one by one, down the tree of tenants.

        Raises
        ------
        UnsupportedProblemError
            If a tenant's demand depends on the host, or if there is room for
            more than `MAX_TASKS` tasks.
        """
        return _divide_by_hdrf(problem, "hdrf", rescale=True)


@dataclass(frozen=True, slots=True)
class NaiveHdrf:
    """`Hdrf` without rescaling: a group counts all that its children hold [1]_.

    A group one of whose jobs holds much of something that no other job wants
    then waits while others go on: jobs in it can starve.

    References
    ----------
    .. [1] Bhattacharya et al., "Hierarchical Scheduling for Diverse Datacenter
       Workloads", SoCC 2013.
    """

    def divide(self, problem: DivisibleProblem, rng: np.random.Generator) -> Division:
        """Hand out whole tasks of the pool; see `Hdrf.divide`."""
        return _divide_by_hdrf(problem, "naive_hdrf", rescale=False)


def _divide_by_hdrf(problem: DivisibleProblem, mechanism: str, *, rescale: bool) -> Division:
    """Hand out whole tasks down the tree, and report levels and dominant shares."""
    leaves = Leaves.of(problem, mechanism)
    _check_task_count(problem, leaves, mechanism)
    tasks = allocate_tasks(leaves, problem.count, rescale=rescale).astype(np.float64)
    weight = leaves.tree.weight[np.array(leaves.tree.leaf, dtype=np.int64)]
    divided = levels_and_shares(problem, np.zeros(len(tasks)), tasks[:, None])
    levels = np.array(divided["dominant_shares"]) / weight
    return Division(
        tasks=tasks[:, None], pooled=True, details={**divided, "levels": levels.tolist()}
    )


def allocate_tasks(leaves: Leaves, count: FloatArray, *, rescale: bool) -> IntArray:
    """Hand out whole tasks by H-DRF until every leaf is blocked; return the tasks of each tenant.

    Parameters
    ----------
    count : ndarray, shape (N,)
        Tasks that each tenant wants; may be infinite.
    rescale : bool
        As H-DRF does; else as naive hierarchical DRF.

    Returns
    -------
    ndarray of int64, shape (N,)
    """
    wanted = [int(each) if np.isfinite(each) else -1 for each in count.tolist()]
    task = (leaves.shape * leaves.unit[:, None]).tolist()
    parts = [[(r, part) for r, part in enumerate(each) if part > 0] for each in task]
    free = (leaves.room + _ROUNDING).tolist()
    given = [0] * len(wanted)
    alive = leaves.active.tolist()
    held = leaves.held.tolist()
    tree = TaskTree(leaves.tree, leaves.held, leaves.active, rescale=rescale)
    #: leaves by what a task takes of a resource: the largest is blocked first
    largest = [
        [
            (-task[i][r], i)
            for i in np.flatnonzero(leaves.active & (leaves.shape[:, r] > 0)).tolist()
        ]
        for r in range(len(free))
    ]
    for queue in largest:
        heapq.heapify(queue)

    def block_without_room(resource: int) -> None:
        """Block the tenants whose next task needs more of a resource than is free."""
        queue = largest[resource]
        while queue and -queue[0][0] > free[resource]:
            _, tenant = heapq.heappop(queue)
            if alive[tenant]:
                alive[tenant] = False
                tree.block(tenant)

    for resource in range(len(free)):
        block_without_room(resource)
    while (tenant := tree.next_tenant()) is not None:
        given[tenant] = tasks = given[tenant] + 1
        # From their number, not by adding up: a million roundings would show.
        holds = [part + tasks * more for part, more in zip(held[tenant], task[tenant], strict=True)]
        tree.update_holdings(tenant, holds)
        if given[tenant] == wanted[tenant]:
            alive[tenant] = False
            tree.block(tenant)
        for resource, part in parts[tenant]:
            free[resource] -= part
            block_without_room(resource)
    return np.array(given, dtype=np.int64)


def _check_task_count(problem: DivisibleProblem, leaves: Leaves, mechanism: str) -> None:
    """Raise if H-DRF would hand out too many tasks one by one in reasonable time."""
    task = leaves.shape * leaves.unit[:, None]
    alone = np.divide(leaves.room, task, out=np.full(task.shape, np.inf), where=task > 0)
    maximum = np.where(
        leaves.active, np.minimum(alone.min(axis=1, initial=np.inf), problem.count), 0
    )
    tasks = float(maximum.sum())
    for r, free in enumerate(leaves.room.tolist()):
        minimum = task[leaves.active, r].min(initial=np.inf)
        if 0 < minimum < np.inf:
            tasks = min(tasks, free / minimum)
    if tasks > MAX_TASKS:
        raise UnsupportedProblemError(
            mechanism,
            "demands",
            f"it hands out whole tasks one by one, at most {MAX_TASKS:,}, "
            f"and there is room for about {tasks:.3g}",
        )
