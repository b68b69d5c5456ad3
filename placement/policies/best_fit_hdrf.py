"""Best-Fit in the order of H-DRF, in whole VMs for a tree of tenants."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placement.constraints.tree_weights import snapshot_without_tree
from placement.fairness.shares import fractions_of_pool
from placement.mechanisms.hierarchies.task_tree import TaskTree
from placement.model.arrays import IntArray
from placement.model.budget import Budget
from placement.model.snapshot import Allocation, Snapshot
from placement.model.tenant_tree import TenantTree
from placement.model.vm_kinds import VmKinds
from placement.packing.buckets import FreeBuckets
from placement.packing.draft import Draft
from placement.policies.policy_loops import ProgressiveFillingPolicy


@dataclass(frozen=True, slots=True)
class BestFitHdrf:
    """Place each VM for the tenant that H-DRF serves next, on the host of least H.

    Notes
    -----
    The order is that of H-DRF [1]_, see `placement.mechanisms.hierarchies.task_tree`; a
    tenant takes its requests in order, and what fits nowhere leaves the round.
    That it does shows when its turn comes, and only then is a tenant without
    further requests blocked (derived). The host is that of Best-Fit DRFH [2]_.

    References
    ----------
    .. [1] Bhattacharya et al., "Hierarchical Scheduling for Diverse Datacenter
       Workloads", SoCC 2013.
    .. [2] Wang, Li, Liang, INFOCOM 2014, Section V-B.
    """

    overload: float = 1.0  #: no host is filled above this part of its capacity

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Fill the hosts in the order of H-DRF; every VM that fits is placed."""
        tree = TenantTree.flat(snapshot.weight) if snapshot.tree is None else snapshot.tree
        in_turn = ProgressiveFillingPolicy(
            lambda draft, kinds, _: _fill_by_hdrf(draft, tree, kinds), self.overload
        )
        # Gangs go by flat weights: the order of tenants, and fair targets.
        return in_turn.place(snapshot_without_tree(snapshot), rng, budget)


def _fill_by_hdrf(draft: Draft, tree: TenantTree, kinds: VmKinds) -> None:
    """Place what remains in ``draft`` in the order of H-DRF, by Best-Fit, within its room."""
    if not draft.remaining.any():
        return
    turns = _HdrfOrder(draft, tree, kinds)
    snapshot = draft.snapshot
    buckets = FreeBuckets(draft.room, snapshot.host_class, snapshot.pool, kinds)
    placed = []
    while True:
        turns.yielded.clear()
        hosts = buckets.fill(turns.vm_kinds())
        placed += list(zip(turns.yielded, hosts, strict=False))
        if len(turns.yielded) == len(hosts):
            break
        turns.drop_kind(turns.yielded[-1])
    if placed:
        requests, taken = np.array(placed, dtype=np.int64).T
        draft.put_all(np.stack([requests, taken, np.ones_like(requests)], axis=1))


class _HdrfOrder:
    """The order of VMs by H-DRF; taking the next VM confirms that the last one had room."""

    def __init__(self, draft: Draft, tree: TenantTree, kinds: VmKinds) -> None:
        snapshot = draft.snapshot
        self.yielded: list[int] = []  #: the request of each VM, the last one not placed yet
        self._kind_of = kinds.of_request.tolist()
        self._left = draft.remaining.tolist()
        self._queues = _queues_by_tenant(draft.remaining, snapshot.tenant)
        self._pool = [amount or 1 for amount in snapshot.pool.tolist()]  # 0: no tenant holds any
        self._demand = snapshot.demand.tolist()
        self._held = draft.held.tolist()
        active = np.zeros(len(self._held), dtype=np.bool_)
        active[list(self._queues)] = True
        held = fractions_of_pool(draft.held, snapshot.pool)
        self._tree = TaskTree(tree, held, active, rescale=True)

    def vm_kinds(self) -> Iterator[int]:
        """Yield the kind of the VM that H-DRF serves next, again and again."""
        while (tenant := self._tree.next_tenant()) is not None:
            request = self._queues[tenant][0]
            self.yielded.append(request)
            yield self._kind_of[request]
            self._take_vm(tenant, request)

    def _take_vm(self, tenant: int, request: int) -> None:
        """Count a placed VM for its tenant in the tree."""
        held = [a + b for a, b in zip(self._held[tenant], self._demand[request], strict=True)]
        self._held[tenant] = held
        self._tree.update_holdings(tenant, [a / b for a, b in zip(held, self._pool, strict=True)])
        self._left[request] -= 1
        if self._left[request] == 0:
            self._queues[tenant].popleft()
            self._block_if_served(tenant)

    def drop_kind(self, request: int) -> None:
        """Drop all VMs of this request's kind from the order: they fit nowhere."""
        full = self._kind_of[request]
        for tenant, queue in self._queues.items():
            waiting = [each for each in queue if self._kind_of[each] != full]
            if len(waiting) < len(queue):
                self._queues[tenant] = deque(waiting)
                self._block_if_served(tenant)

    def _block_if_served(self, tenant: int) -> None:
        """Block a tenant in the tree once it has no further requests."""
        if not self._queues[tenant]:
            self._tree.block(tenant)


def _queues_by_tenant(remaining: IntArray, tenant: IntArray) -> dict[int, deque[int]]:
    """Return each tenant's requests with VMs to place, in order."""
    queues: dict[int, deque[int]] = {}
    for request in np.flatnonzero(remaining).tolist():
        queues.setdefault(int(tenant[request]), deque()).append(request)
    return queues
