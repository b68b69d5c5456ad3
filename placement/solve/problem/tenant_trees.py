"""The tree of tenants from their parents, and its leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from placement.model.tenant_tree import TenantTree
from placement.solve.problem.model import Problem


def leaf_tenants(problem: Problem) -> tuple[int, ...]:
    """Return the tenants of a problem file that are no groups, in file order."""
    groups = {tenant.parent for tenant in problem.tenants}
    return tuple(index for index in range(len(problem.tenants)) if index not in groups)


def build_tree(problem: Problem, leaves: Sequence[int]) -> TenantTree | None:
    """Return the problem file's tree of tenants over ``leaves``; None if it is flat.

    Siblings are in the order of their first demands in the file, so that ties of
    shares go to the first.
    """
    if all(tenant.parent is None for tenant in problem.tenants):
        return None
    tenants = problem.tenants
    last = len(problem.demands)
    first_demand = [last] * len(tenants)
    for position, demand in reversed(list(enumerate(problem.demands))):
        node: int | None = demand.tenant
        while node is not None and first_demand[node] != position:
            first_demand[node] = position
            node = tenants[node].parent
    children: dict[int | None, list[int]] = {}
    for index in sorted(range(len(tenants)), key=lambda each: (first_demand[each], each)):
        children.setdefault(tenants[index].parent, []).append(index)

    order: list[int] = []  # tenants in order of node, without the root
    layer = children[None]
    while layer:
        order += layer
        layer = [child for tenant in layer for child in children.get(tenant, [])]
    node_of = {tenant: node for node, tenant in enumerate(order, start=1)}
    parents = [tenants[tenant].parent for tenant in order]
    return TenantTree(
        parent=(-1, *(0 if parent is None else node_of[parent] for parent in parents)),
        weight=np.array([1.0, *(tenants[tenant].weight for tenant in order)]),
        leaf=tuple(node_of[tenant] for tenant in leaves),
    )


_Number = TypeVar("_Number", np.int64, np.float64)


def sums_over_groups(
    problem: Problem, leaves: Sequence[int], of_leaves: NDArray[_Number]
) -> NDArray[_Number]:
    """Add up amounts of leaf tenants, (N, R) or (N,), for every tenant and group of the file."""
    sums = np.zeros((len(problem.tenants), *of_leaves.shape[1:]), dtype=of_leaves.dtype)
    for leaf, amount in zip(leaves, of_leaves, strict=True):
        node: int | None = leaf
        while node is not None:
            sums[node] += amount
            node = problem.tenants[node].parent
    return sums
