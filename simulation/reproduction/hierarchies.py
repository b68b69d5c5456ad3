"""Binary trees of jobs, and H-DRF as its paper has it: what MCH's run time is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from placement import DivisibleProblem, TenantTree

#: Demands of jobs in turn, in cores and GiB.
DEMANDS: Final = ((1.0, 4.0), (4.0, 2.0), (2.0, 8.0), (1.0, 1.0))


def a_binary_tree(levels: int, jobs: int, tasks: int) -> DivisibleProblem:
    """Return a pool with room for about ``tasks`` of each job below a binary tree of groups."""
    parents, layer = [-1], [0]
    for _ in range(levels):
        below = []
        for group in layer:
            for _ in range(2):
                parents.append(group)
                below.append(len(parents) - 1)
        layer = below
    leaves = []
    for job in range(jobs):
        parents.append(layer[job % len(layer)])
        leaves.append(len(parents) - 1)
    # Jobs of a group differ, whatever the number of groups.
    kinds = [(job // len(layer) + job) % len(DEMANDS) for job in range(jobs)]
    demand = np.array([DEMANDS[kind] for kind in kinds])
    pool = demand.sum(axis=0)[None, :] * tasks
    return DivisibleProblem(
        resources=("cores", "memory_gib"),
        capacity=pool,
        free=pool.copy(),
        hosts=np.ones(1, dtype=np.int64),
        demand=demand,
        speed=np.ones((jobs, 1)),
        eligible=np.ones((jobs, 1), dtype=np.bool_),
        count=np.full(jobs, np.inf),
        weight=np.ones(jobs),
        held=np.zeros_like(demand),
        tree=TenantTree(parent=tuple(parents), weight=np.ones(len(parents)), leaf=tuple(leaves)),
    )


def published_hdrf(problem: DivisibleProblem) -> list[int]:
    """H-DRF with the shares of the whole tree computed anew for each task."""
    tree = problem.tree
    if tree is None:
        return []
    children = tree.all_children()
    tenant_of = {node: tenant for tenant, node in enumerate(tree.leaf)}
    task = (problem.demand / problem.pool).tolist()
    free = [1.0 + 1e-9] * len(problem.pool)
    given = [0] * len(task)
    width = range(len(free))
    while True:
        vectors: list[list[float]] = [[0.0] * len(free) for _ in tree.parent]
        shares, blocked = [0.0] * len(tree.parent), [True] * len(tree.parent)
        for node in range(len(tree.parent) - 1, -1, -1):
            tenant = tenant_of.get(node)
            if tenant is not None:
                vectors[node] = [given[tenant] * part for part in task[tenant]]
                blocked[node] = any(task[tenant][r] > free[r] for r in width)
            else:
                live = [child for child in children[node] if not blocked[child]]
                blocked[node] = not live
                f = min((shares[child] for child in live), default=np.inf)
                for child in children[node]:
                    scale = min(1.0, f / shares[child]) if shares[child] else 0.0
                    for r in width:
                        vectors[node][r] += scale * vectors[child][r]
            shares[node] = max(vectors[node])
        if blocked[0]:
            return given
        node = 0
        while node not in tenant_of:
            live = [child for child in children[node] if not blocked[child]]
            node = min(live, key=shares.__getitem__)
        tenant = tenant_of[node]
        given[tenant] += 1
        for r in width:
            free[r] -= task[tenant][r]


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the slope of a line through the points on logarithmic axes."""
    if len(sizes) < 2:
        return float("nan")
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
