"""The rule of borrowed VMs: one ends only for a tenant that then holds no more than is kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from placement.model.arrays import SHARE_TOLERANCE, FloatArray, IntArray
from placement.model.snapshot import Snapshot
from placement.model.tenant_tree import TenantTree

#: Amounts, (R,), that a tenant gets
Gain: TypeAlias = tuple[int, IntArray]
#: Amounts, (R,), of a borrowed VM that its tenant loses: (taker, borrower, amounts)
Loss: TypeAlias = tuple[int, int, IntArray]


class BorrowedShares:
    """The tenants' shares while borrowed VMs end for other tenants.

    Two tenants are compared by the dominant share per weight of the nodes at which their branches
    of the tree part. A tenant may always take from itself.

    Parameters
    ----------
    snapshot : Snapshot
        The pool, and the weights or the tree of the tenants.
    held : ndarray of int64, shape (N, R)
        What each tenant keeps before any of these ends.
    """

    def __init__(self, snapshot: Snapshot, held: IntArray) -> None:
        self._tree = snapshot.tree or TenantTree.flat(snapshot.weight)
        self._pool = np.maximum(snapshot.pool, 1)
        self._counts = snapshot.pool > 0
        self._sums = self._tree.sums(held.astype(np.float64))
        self._paths = [self._tree.path(leaf)[::-1] for leaf in self._tree.leaf]
        self._pairs: frozenset[tuple[int, int]] = frozenset()

    def after(self, gains: Iterable[Gain], losses: Iterable[Loss]) -> BorrowedShares | None:
        """Return the shares after gains and losses; None if they break the rule."""
        found: BorrowedShares = object.__new__(BorrowedShares)
        for name in ("_tree", "_pool", "_counts", "_paths"):
            setattr(found, name, getattr(self, name))
        found._sums = self._sums.copy()
        pairs = set(self._pairs)
        for tenant, amounts in gains:
            found._sums[[0, *self._paths[tenant]]] += amounts
        for taker, borrower, amounts in losses:
            found._sums[[0, *self._paths[borrower]]] -= amounts
            if taker != borrower:
                pairs.add((taker, borrower))
        found._pairs = frozenset(pairs)
        return found if all(found._keeps_rule(*pair) for pair in pairs) else None

    def order_key(self, tenant: int) -> tuple[float, ...]:
        """Return a key by which tenants with small shares come first."""
        return tuple(self._level(node) for node in self._paths[tenant])

    def lead(self, tenant: int, other: int) -> float:
        """Return by how much a tenant's branch holds more than another's; 0 for itself."""
        if tenant == other:
            return 0.0
        node, other_node = self._parting_nodes(tenant, other)
        return self._level(node) - self._level(other_node)

    def _keeps_rule(self, taker: int, borrower: int) -> bool:
        """Return whether the taker's branch holds no more than the borrower's."""
        node, other = self._parting_nodes(taker, borrower)
        return self._level(node) <= self._level(other) + SHARE_TOLERANCE

    def _parting_nodes(self, tenant: int, other: int) -> tuple[int, int]:
        """Return the nodes above two tenants at which their branches of the tree part."""
        pairs = zip(self._paths[tenant], self._paths[other], strict=False)
        return next((a, b) for a, b in pairs if a != b)

    def _level(self, node: int) -> float:
        """Return the dominant share of a node per weight."""
        shares: FloatArray = (self._sums[node] / self._pool)[self._counts]
        return float(shares.max(initial=0.0)) / float(self._tree.weight[node])
