"""Trees of tenants for tests: nested lists, and what each node holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from placement.mechanisms import MECHANISMS, DivisibleProblem, Division, TenantTree
from placement.model.arrays import FloatArray
from tests.divisible import a_divisible_problem

CPU, MEMORY = (1.0, 0.0), (0.0, 1.0)


def a_tree_problem(
    groups: Sequence[Any], capacity: Sequence[float] = (1000.0, 1000.0), **parts: Any
) -> DivisibleProblem:
    """Return a problem over a tree: a group is a list, a leaf the demand of its tenant."""
    parents, leaves, demands = [-1], [], []

    def add(children: Sequence[Any], parent: int) -> None:
        for child in children:
            parents.append(parent)
            node = len(parents) - 1
            if isinstance(child, list):
                add(child, node)
            else:
                leaves.append(node)
                demands.append(child)

    add(groups, 0)
    return in_tree(a_divisible_problem([capacity], demands, **parts), parents, leaves)


def in_tree(
    problem: DivisibleProblem,
    parents: Sequence[int],
    leaves: Sequence[int],
    weight: Sequence[float] | None = None,
) -> DivisibleProblem:
    """Return the problem with a tree over its tenants."""
    weights = np.ones(len(parents)) if weight is None else np.array(weight, dtype=np.float64)
    tree = TenantTree(parent=tuple(parents), weight=weights, leaf=tuple(leaves))
    return dataclasses.replace(
        problem, tree=tree, weight=np.array([weights[node] for node in leaves])
    )


def divided(name: str, problem: DivisibleProblem, **parameters: Any) -> Division:
    return MECHANISMS[name].make(parameters).divide(problem, np.random.default_rng(0))


def held_by_nodes(problem: DivisibleProblem, division: Division) -> FloatArray:
    """Return what every node holds in fractions of the pool, (nodes, R)."""
    tree = problem.tree
    assert tree is not None
    pool = problem.pool
    holds = problem.held + division.totals[:, None] * problem.demand
    vectors = np.zeros((len(tree.parent), len(pool)))
    vectors[list(tree.leaf)] = np.divide(holds, pool, out=np.zeros_like(holds), where=pool > 0)
    for node in range(len(tree.parent) - 1, 0, -1):
        vectors[tree.parent[node]] += vectors[node]
    return vectors


def worst_envy(problem: DivisibleProblem, division: Division, *, slack: float = 1e-6) -> float:
    """Return how far the hierarchical share guarantee is missed, at most 0 where it holds.

    The guarantee: for every tenant that wants more there is a resource, used up
    and demanded by it, of which no sibling of any node on its path holds more
    per weight than the dominant share per weight of that node.
    """
    tree = problem.tree
    assert tree is not None
    vectors = held_by_nodes(problem, division)
    level = vectors.max(axis=1) / tree.weight
    children = tree.all_children()
    free = problem.free.sum(axis=0) - division.totals @ problem.demand
    used_up = free <= slack * problem.pool
    worst = -np.inf
    for tenant, leaf in enumerate(tree.leaf):
        demands = problem.demand[tenant] > 0
        has_all = division.totals[tenant] >= problem.count[tenant] * (1 - 1e-9)
        able = problem.eligible[tenant].any() and (problem.pool[demands] > 0).all()
        if has_all or not demands.any() or not able:
            continue
        misses = [
            max(
                (
                    vectors[sibling, r] / tree.weight[sibling] - level[node]
                    for node in tree.path(leaf)
                    for sibling in children[tree.parent[node]]
                    if sibling != node
                ),
                default=-np.inf,
            )
            for r in np.flatnonzero(demands & used_up).tolist()
        ]
        worst = max(worst, min(misses, default=np.inf))
    return float(worst)
