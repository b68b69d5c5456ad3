"""Shares in a tree of tenants, updated as whole tasks are handed out."""

from __future__ import annotations

import bisect
import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from placement.fairness.levels import level_in_steps
from placement.model.arrays import BoolArray, FloatArray
from placement.model.tenant_tree import TenantTree


class VectorSum:
    """The sum of many vectors; a change costs O(log n) additions.

    Nothing is ever subtracted, so rounding errors do not accumulate: the total is
    always a sum of the present terms, added in the same order.
    """

    def __init__(self, terms: int, width: int) -> None:
        self._first = 1
        while self._first < terms:
            self._first *= 2
        self._nodes: list[Sequence[float]] = [(0.0,) * width] * (2 * self._first)

    def set_term(self, place: int, term: Sequence[float]) -> None:
        """Set one term of the sum."""
        nodes = self._nodes
        at = self._first + place
        nodes[at] = term
        while at > 1:
            at >>= 1
            nodes[at] = [a + b for a, b in zip(nodes[2 * at], nodes[2 * at + 1], strict=True)]

    @property
    def total(self) -> Sequence[float]:
        """The sum of all terms."""
        return self._nodes[1]


class _ChildQueue:
    """A priority queue of children that are not blocked, by share per weight, then position.

    Weights count relative to the largest, so that levels stay comparable through
    the tolerance of shares whatever the unit of the weights.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        largest = max(weights, default=1.0)
        self.weights = [weight / largest for weight in weights]
        self.level = [0.0] * len(weights)
        self.blocked = [False] * len(weights)
        self._heap = [(0, child) for child in range(len(weights))]

    def set_share(self, child: int, share: float) -> None:
        """Set a child's share, and queue it at its new place."""
        self.level[child] = share / self.weights[child]
        if not self.blocked[child]:
            heapq.heappush(self._heap, (level_in_steps(self.level[child]), child))

    def least_child(self) -> int | None:
        """Return the child of least share per weight; stale entries of the queue are dropped."""
        while self._heap:
            steps, child = self._heap[0]
            if not self.blocked[child] and steps == level_in_steps(self.level[child]):
                return child
            heapq.heappop(self._heap)
        return None


class Siblings(ABC):
    """The children of an inner node of H-DRF's tree, by their position."""

    def __init__(self, weights: Sequence[float]) -> None:
        self._line = _ChildQueue(weights)

    def least_child(self) -> int | None:
        """Return the child of least share per weight that is not blocked."""
        return self._line.least_child()

    @abstractmethod
    def update(self, child: int, vector: Sequence[float], share: float) -> None:
        """Update the amounts that a child of the tree's node holds."""

    def block(self, child: int) -> None:
        """Mark a child of the tree's node as blocked: it gets nothing more and does not change."""
        self._line.blocked[child] = True

    @abstractmethod
    def vector(self) -> Sequence[float]:
        """Return the amounts that count as held by the group, in fractions of the pool."""


class RescalingGroup(Siblings):
    """A group of H-DRF: it counts its children rescaled to the least share.

    Let f be the least share per weight among the children that are not blocked. Each of these
    counts scaled down to f, and each blocked child scaled to at most f; if all children are
    blocked, they count unscaled (derived). So neither a child with a large share nor a blocked
    one holds back the group of its siblings.
    """

    def __init__(self, weights: Sequence[float], width: int) -> None:
        super().__init__(weights)
        self._width = width
        #: of the children not blocked: weight * vector / share
        self._directions = VectorSum(len(weights), width)
        self._vectors: list[Sequence[float]] = [(0.0,) * width] * len(weights)
        self._shares = [0.0] * len(weights)
        self._blocked = _BlockedChildren(width)

    def update(self, child: int, vector: Sequence[float], share: float) -> None:
        """Update the amounts that a child of an H-DRF group holds."""
        self._vectors[child] = vector
        self._shares[child] = share
        self._line.set_share(child, share)
        self._directions.set_term(child, self._direction(child))

    def _direction(self, child: int) -> Sequence[float]:
        """Return what a child holds, scaled to a share per weight of 1."""
        share = self._shares[child]
        if share <= 0:
            return (0.0,) * self._width
        scale = self._line.weights[child] / share
        return [amount * scale for amount in self._vectors[child]]

    def block(self, child: int) -> None:
        """Mark a child of an H-DRF group as blocked: it gets nothing more."""
        super().block(child)
        self._directions.set_term(child, (0.0,) * self._width)
        self._blocked.add(self._line.level[child], self._vectors[child], self._direction(child))

    def vector(self) -> Sequence[float]:
        """Return the sum of the group's rescaled children, in fractions of the pool."""
        minimum = self._line.least_child()
        if minimum is None:
            return self._blocked.sums_up_to(math.inf)[0]
        f = self._line.level[minimum]
        below, above = self._blocked.sums_up_to(f)
        return [
            f * (direction + over) + under
            for direction, over, under in zip(self._directions.total, above, below, strict=True)
        ]


class _BlockedChildren:
    """Blocked children by level, with sums over the children below and above each level."""

    def __init__(self, width: int) -> None:
        self._levels: list[float] = []
        self._vectors = np.zeros((0, width))
        self._directions = np.zeros((0, width))
        self._sums: tuple[FloatArray, FloatArray] | None = None

    def add(self, level: float, vector: Sequence[float], direction: Sequence[float]) -> None:
        """Add a blocked child at its level."""
        at = bisect.bisect_right(self._levels, level)
        self._levels.insert(at, level)
        self._vectors = np.insert(self._vectors, at, vector, axis=0)
        self._directions = np.insert(self._directions, at, direction, axis=0)
        self._sums = None

    def sums_up_to(self, level: float) -> tuple[list[float], list[float]]:
        """Return the sum of the vectors up to a level, and the sum of the directions above it."""
        if self._sums is None:
            nothing = np.zeros((1, self._vectors.shape[1]))
            below = np.cumsum(self._vectors, axis=0)
            above = np.cumsum(self._directions[::-1], axis=0)[::-1]
            self._sums = np.vstack((nothing, below)), np.vstack((above, nothing))
        at = bisect.bisect_right(self._levels, level)
        return self._sums[0][at].tolist(), self._sums[1][at].tolist()


class PlainGroup(Siblings):
    """A group of naive hierarchical DRF: it holds the sum of its children."""

    def __init__(self, weights: Sequence[float], width: int) -> None:
        super().__init__(weights)
        self._vectors = VectorSum(len(weights), width)

    def update(self, child: int, vector: Sequence[float], share: float) -> None:
        """Update the amounts that a child of a naive H-DRF group holds."""
        self._line.set_share(child, share)
        self._vectors.set_term(child, vector)

    def vector(self) -> Sequence[float]:
        """Return the amounts that the group's children hold, in fractions of the pool."""
        return self._vectors.total


class TaskTree:
    """Selects the tenant of the next task in a tree of tenants.

    A task changes the nodes on the path of its leaf and no others, so it costs
    O(depth) steps, each logarithmic in the number of siblings, where the plain
    way costs O(q) for q leaves.

    Parameters
    ----------
    tree : TenantTree
    held : ndarray, shape (N, R)
        What each tenant holds before, in fractions of the pool.
    active : ndarray of bool, shape (N,)
        The others are blocked from the start.
    rescale : bool
        H-DRF's groups; else naive ones.
    """

    def __init__(
        self, tree: TenantTree, held: FloatArray, active: BoolArray, *, rescale: bool
    ) -> None:
        self._parent = tree.parent
        self._children = tree.all_children()
        self._place = [0] * len(tree.parent)
        for children in self._children:
            for place, child in enumerate(children):
                self._place[child] = place
        self._node = tree.leaf
        self._tenant = {node: tenant for tenant, node in enumerate(tree.leaf)}
        self._width = width = held.shape[1]
        kind = RescalingGroup if rescale else PlainGroup
        self._groups: list[Siblings | None] = [
            kind([float(tree.weight[child]) for child in children], width)
            if children or node == 0
            else None
            for node, children in enumerate(self._children)
        ]
        self._compute_shares(held.tolist(), active.tolist())

    def _compute_shares(self, held: Sequence[Sequence[float]], active: Sequence[bool]) -> None:
        """Compute every node's share from the tasks held, bottom-up."""
        for node in range(len(self._parent) - 1, 0, -1):
            parent = self._inner_group(self._parent[node])
            tenant = self._tenant.get(node)
            vector: Sequence[float] = (
                held[tenant] if tenant is not None else self._vector_of_group(node)
            )
            parent.update(self._place[node], vector, max(vector, default=0.0))
            stuck = not active[tenant] if tenant is not None else self._least_child_of(node) is None
            if stuck:
                parent.block(self._place[node])

    def _inner_group(self, node: int) -> Siblings:
        """Return the children of an inner node."""
        group = self._groups[node]
        assert group is not None  # noqa: S101 an inner node has one
        return group

    def _vector_of_group(self, node: int) -> Sequence[float]:
        """Return the amounts that count as held by a node's group; none for a leaf."""
        group = self._groups[node]
        return (0.0,) * self._width if group is None else group.vector()

    def _least_child_of(self, node: int) -> int | None:
        """Return the child of least share per weight of a node; None for a leaf."""
        group = self._groups[node]
        return None if group is None else group.least_child()

    def next_tenant(self) -> int | None:
        """Return the tenant that H-DRF serves next; None if all are blocked."""
        node = 0
        while node not in self._tenant:
            place = self._least_child_of(node)
            if place is None:
                return None
            node = self._children[node][place]
        return self._tenant[node]

    def update_holdings(self, tenant: int, vector: Sequence[float]) -> None:
        """Update the amounts that a tenant and its groups hold, in fractions of the pool."""
        node = self._node[tenant]
        while True:
            group = self._inner_group(self._parent[node])
            group.update(self._place[node], vector, max(vector))
            node = self._parent[node]
            if node == 0:  # the root's vector is not needed
                return
            vector = group.vector()

    def block(self, tenant: int) -> None:
        """Mark a tenant of the tree as blocked: it gets nothing more."""
        node = self._node[tenant]
        self._inner_group(self._parent[node]).block(self._place[node])
        node = self._parent[node]
        while node:
            vector = self._inner_group(node).vector()
            above = self._inner_group(self._parent[node])
            above.update(self._place[node], vector, max(vector))
            if self._inner_group(node).least_child() is None:
                above.block(self._place[node])
            node = self._parent[node]
