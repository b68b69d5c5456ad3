"""The tree of tenants: leaves have requests, inner nodes (groups) share among their children."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from placement.errors import PlacementError, ShapeMismatchError
from placement.model.arrays import FloatArray, IntArray


class MalformedTreeError(PlacementError):
    """The nodes do not form a tree in which tenants are leaves."""

    def __init__(self, node: int, reason: str) -> None:
        super().__init__(f"node {node} of the tree of tenants: {reason}")
        self.node = node
        self.reason = reason


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TenantTree:
    """A tree of tenants: nodes in an order in which parents precede their children.

    Node 0 is the root. Weights are relative to siblings; ties between siblings
    go to the first.

    Raises
    ------
    MalformedTreeError
        If a parent does not precede its child, a weight is not above 0, or
        a tenant is no leaf or shares its node with another.
    """

    parent: tuple[int, ...]  #: of each node; -1 for the root
    weight: FloatArray  #: (nodes,) above 0; the root's is 1
    leaf: tuple[int, ...]  #: for each tenant (index of N) its node

    def __post_init__(self) -> None:
        if self.weight.shape != (len(self.parent),):
            raise ShapeMismatchError("weight", self.weight.shape, (len(self.parent),))
        self.weight.setflags(write=False)
        inner = set(self.parent)
        for node, parent in enumerate(self.parent):
            if (parent != -1) if node == 0 else not 0 <= parent < node:
                raise MalformedTreeError(node, f"its parent {parent} does not stand before it")
            if not 0 < self.weight[node] < np.inf:
                raise MalformedTreeError(node, f"its weight {self.weight[node]} is not above 0")
        taken: set[int] = set()
        for node in self.leaf:
            if not 0 < node < len(self.parent) or node in inner or node in taken:
                raise MalformedTreeError(node, "is not a leaf for one tenant alone")
            taken.add(node)

    @classmethod
    def flat(cls, weight: FloatArray) -> TenantTree:
        """Return the tree in which all tenants, (N,), are children of the root."""
        tenants = len(weight)
        return cls(
            parent=(-1, *([0] * tenants)),
            weight=np.concatenate(([1.0], weight)),
            leaf=tuple(range(1, tenants + 1)),
        )

    def document(self) -> dict[str, Any]:
        """Return the tree of tenants as JSON values, which `from_document` reads back."""
        return {
            "parent": list(self.parent),
            "weight": self.weight.tolist(),
            "leaf": list(self.leaf),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> TenantTree:
        """Build the tree of tenants from the JSON values that `document` returned."""
        return cls(
            parent=tuple(document["parent"]),
            weight=np.array(document["weight"], dtype=np.float64),
            leaf=tuple(document["leaf"]),
        )

    def children(self, node: int) -> tuple[int, ...]:
        """Children of a node of the tree, in order."""
        return tuple(each for each, parent in enumerate(self.parent) if parent == node)

    def all_children(self) -> list[list[int]]:
        """Children of every node of the tree, in order."""
        children: list[list[int]] = [[] for _ in self.parent]
        for node, parent in enumerate(self.parent):
            if node:
                children[parent].append(node)
        return children

    def nodes_by_depth(self) -> list[IntArray]:
        """Nodes of each depth of the tree, arrays of shape (X,); the first has only the root."""
        depth = [0] * len(self.parent)
        for node, parent in enumerate(self.parent):
            if node:
                depth[node] = depth[parent] + 1
        depths = np.array(depth, dtype=np.int64)
        order = np.argsort(depths, kind="stable")
        return np.split(order, np.cumsum(np.bincount(depths))[:-1])

    def sums(self, of_tenants: FloatArray) -> FloatArray:
        """Add up what tenants have, (N, R), for every node, (nodes, R)."""
        sums = np.zeros((len(self.parent), of_tenants.shape[1]))
        sums[list(self.leaf)] = of_tenants
        for node in range(len(self.parent) - 1, 0, -1):
            sums[self.parent[node]] += sums[node]
        return sums

    def entitlements(self) -> FloatArray:
        """Return each node's part of the pool if all tenants have demand, (nodes,).

        Weights divide what the parent has among those of its children below
        whom there is a tenant; the root has all of it.
        """
        has_tenant = np.zeros(len(self.parent), dtype=np.bool_)
        for leaf in self.leaf:
            has_tenant[[leaf, *self.path(leaf)]] = True
        weights = np.where(has_tenant, self.weight, 0.0)
        siblings = np.zeros(len(self.parent))
        np.add.at(siblings, list(self.parent[1:]), weights[1:])
        parts = np.zeros(len(self.parent))
        parts[0] = 1.0
        for node in range(1, len(self.parent)):
            parent = self.parent[node]
            if weights[node]:
                parts[node] = parts[parent] * weights[node] / siblings[parent]
        return parts

    def path(self, node: int) -> tuple[int, ...]:
        """Nodes of the tree from ``node`` up to, and without, the root."""
        nodes = []
        while self.parent[node] >= 0:
            nodes.append(node)
            node = self.parent[node]
        return tuple(nodes)
