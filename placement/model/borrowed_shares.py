"""The rule of borrowed VMs: one ends only for a tenant that then holds no more than is kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from placement.model.arrays import SHARE_TOLERANCE, IntArray
from placement.model.snapshot import Snapshot
from placement.model.tenant_tree import TenantTree

#: Amounts, (R,), that a tenant gets
Gain: TypeAlias = tuple[int, IntArray]
#: Amounts, (R,), of a borrowed VM that its tenant loses: (taker, borrower, amounts)
Loss: TypeAlias = tuple[int, int, IntArray]


class BorrowedShares:
    """The tenants' shares while borrowed VMs end for other tenants.

    Two tenants are compared by the dominant share per weight of the nodes at which their branches
    of the tree part. A tenant may always take from itself. The shares always keep the rule:
    `change` makes a change that keeps it, and `undo` takes changes back.

    Parameters
    ----------
    snapshot : Snapshot
        The pool, and the weights or the tree of the tenants.
    held : ndarray of int64, shape (N, R)
        What each tenant keeps before any of these ends.
    """

    def __init__(self, snapshot: Snapshot, held: IntArray) -> None:
        tree = snapshot.tree or TenantTree.flat(snapshot.weight)
        counts = snapshot.pool > 0
        self._pool = snapshot.pool[counts].tolist()
        self._resources = np.flatnonzero(counts).tolist()
        self._weight = tree.weight.tolist()
        self._sums: list[list[float]] = tree.sums(held.astype(np.float64))[:, counts].tolist()
        self._levels = [self._level(node, sums) for node, sums in enumerate(self._sums)]
        self._paths = [tree.path(leaf)[::-1] for leaf in tree.leaf]
        # By a node whose branch took: the nodes whose branches lost to it; and the reverse.
        self._losers: defaultdict[int, set[int]] = defaultdict(set)
        self._takers: defaultdict[int, set[int]] = defaultdict(set)
        #: Of each change of a node: what it was; of each new pair of nodes: the pair.
        self._journal: list[tuple[int, list[float], float] | tuple[int, int]] = []

    def mark(self) -> int:
        """Return the present state, for `undo`."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Take back all changes after a mark."""
        while len(self._journal) > mark:
            entry = self._journal.pop()
            if len(entry) == 2:
                taker, loser = entry
                self._losers[taker].discard(loser)
                self._takers[loser].discard(taker)
            else:
                node, self._sums[node], self._levels[node] = entry

    def change(self, gains: Iterable[Gain], losses: Iterable[Loss]) -> bool:
        """Make all these gains and losses; return False, with nothing changed, against the rule."""
        mark = self.mark()
        raised, lowered = set[int](), set[int]()
        for tenant, amounts in gains:
            raised.update(self._add(tenant, amounts.tolist(), 1))
        for taker, borrower, amounts in losses:
            lowered.update(self._add(borrower, amounts.tolist(), -1))
            if taker != borrower:
                node, other = self._parting_nodes(taker, borrower)
                lowered.add(other)
                if other not in self._losers[node]:
                    self._losers[node].add(other)
                    self._takers[other].add(node)
                    self._journal.append((node, other))
        if self._keep_rule(raised, lowered):
            return True
        self.undo(mark)
        return False

    def may_change(self, gains: Iterable[Gain], losses: Iterable[Loss]) -> bool:
        """Return whether the shares keep the rule after these gains and losses."""
        mark = self.mark()
        kept = self.change(gains, losses)
        self.undo(mark)
        return kept

    def order_key(self, tenant: int) -> tuple[float, ...]:
        """Return a key by which tenants with small shares come first."""
        return tuple(self._levels[node] for node in self._paths[tenant])

    def lead(self, tenant: int, other: int) -> float:
        """Return by how much a tenant's branch holds more than another's; 0 for itself."""
        if tenant == other:
            return 0.0
        node, other_node = self._parting_nodes(tenant, other)
        return self._levels[node] - self._levels[other_node]

    def _add(self, tenant: int, amounts: list[int], sign: int) -> Sequence[int]:
        """Add amounts, (R,), to the sums of a tenant and the groups above it; return the nodes."""
        path = self._paths[tenant]
        for node in path:
            sums = self._sums[node]
            self._journal.append((node, sums, self._levels[node]))
            self._sums[node] = [
                held + sign * amounts[resource]
                for held, resource in zip(sums, self._resources, strict=True)
            ]
            self._levels[node] = self._level(node, self._sums[node])
        return path

    def _keep_rule(self, raised: set[int], lowered: set[int]) -> bool:
        """Return whether no branch that took holds more than one that lost to it.

        Pairs keep the rule but where one that took was raised, or one that lost was lowered.
        """
        levels = self._levels
        return all(
            levels[node] <= levels[loser] + SHARE_TOLERANCE
            for node in raised
            for loser in self._losers.get(node, ())
        ) and all(
            levels[taker] <= levels[node] + SHARE_TOLERANCE
            for node in lowered
            for taker in self._takers.get(node, ())
        )

    def _parting_nodes(self, tenant: int, other: int) -> tuple[int, int]:
        """Return the nodes above two tenants at which their branches of the tree part."""
        pairs = zip(self._paths[tenant], self._paths[other], strict=False)
        return next((a, b) for a, b in pairs if a != b)

    def _level(self, node: int, sums: list[float]) -> float:
        """Return the dominant share of a node per weight."""
        shares = (held / pool for held, pool in zip(sums, self._pool, strict=True))
        return float(max(shares, default=0.0) / self._weight[node])
