"""H-DRF and MCH said plainly: every share recomputed for every task. Slow, to compare with."""

from __future__ import annotations

import numpy as np

from placement.fairness.levels import level_in_steps
from placement.mechanisms import DivisibleProblem, TenantTree
from placement.model.arrays import BoolArray, FloatArray, IntArray


def tree_of(problem: DivisibleProblem) -> TenantTree:
    return problem.tree or TenantTree.flat(problem.weight)


def allocate_tasks(problem: DivisibleProblem, *, rescale: bool) -> IntArray:
    """Return the whole tasks of each tenant under (naive) hierarchical DRF."""
    tree, pool = tree_of(problem), problem.pool
    tenants = {node: tenant for tenant, node in enumerate(tree.leaf)}
    task = problem.demand / np.where(pool > 0, pool, 1.0)
    # Of what the pool has none, nobody has a share.
    held = np.where(pool > 0, problem.held, 0.0) / np.where(pool > 0, pool, 1.0)
    room = problem.free.sum(axis=0) / np.where(pool > 0, pool, 1.0)
    given = np.zeros(len(task), dtype=np.int64)

    def blocked(node: int) -> bool:
        if node in tenants:
            tenant = tenants[node]
            free = room - given @ task
            return not (
                problem.demand[tenant].any()
                and problem.eligible[tenant].any()
                and not ((problem.demand[tenant] > 0) & (pool <= 0)).any()
                and given[tenant] < problem.count[tenant]
                and (task[tenant] <= free + 1e-9).all()
            )
        return all(blocked(child) for child in tree.children(node))

    def vector(node: int) -> FloatArray:
        if node in tenants:
            tenant = tenants[node]
            return held[tenant] + given[tenant] * task[tenant]
        children = tree.children(node)
        live = [child for child in children if not blocked(child)]
        total = np.zeros(len(pool))
        f = min((key(child) for child in live), default=None)
        for child in children:
            counts = vector(child)
            share = counts.max(initial=0.0)
            if rescale and f is not None and share > 0:
                level = f[2] * weight(child) / share
                counts = counts * (level if child in live else min(1.0, level))
            total = total + counts
        return total

    def weight(node: int) -> float:
        siblings = tree.children(tree.parent[node])
        return float(tree.weight[node] / max(tree.weight[each] for each in siblings))

    def key(node: int) -> tuple[int, int, float]:
        level = float(vector(node).max(initial=0.0)) / weight(node)
        return level_in_steps(level), node, level

    while not blocked(0):
        node = 0
        while node not in tenants:
            node = min((child for child in tree.children(node) if not blocked(child)), key=key)
        given[tenants[node]] += 1
    return given


def product_weights(tree: TenantTree, shape: FloatArray, active: BoolArray) -> dict[int, float]:
    """Return the product weight of each active tenant, by recursion over the tree."""
    tenants = {node: tenant for tenant, node in enumerate(tree.leaf) if active[tenant]}

    def below(node: int) -> tuple[FloatArray, dict[int, float]]:
        if node in tenants:
            return shape[tenants[node]], {tenants[node]: 1.0}
        total, weights = np.zeros(shape.shape[1]), {}
        for child in tree.children(node):
            vector, inner = below(child)
            total = total + tree.weight[child] * vector
            weights.update({tenant: tree.weight[child] * each for tenant, each in inner.items()})
        mu = total.max(initial=0.0)
        if node == 0 or mu == 0:
            return total, weights
        return total / mu, {tenant: each / mu for tenant, each in weights.items()}

    return below(0)[1]
