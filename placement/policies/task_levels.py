"""Fill in order of task levels: each tenant has a level per kind of VM."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from placement.fairness.levels import level_in_steps, relative_weights
from placement.model.arrays import FloatArray, IntArray
from placement.model.vm_kinds import VmKinds, max_vms_per_request
from placement.packing.draft import Draft


class TaskRule(Protocol):
    """A rule that chooses hosts for VMs and gives the VMs that a tenant could run alone."""

    def vms_alone(self, kind: int, *, first: bool) -> float | None:
        """Return how many VMs of a kind a tenant could run alone; None if no more VM fits.

        ``first`` says that the tenant holds nothing yet, so that it is level
        with every tenant on every host. May not grow as hosts fill up.
        """
        ...

    def take(self, kind: int, *, first: bool) -> int | None:
        """Place one VM and return the host; None if it fits nowhere."""
        ...


def tasks_alone_on(capacity: IntArray, demand: IntArray) -> FloatArray:
    """Return how many VMs of ``demand`` (R,) each host could run alone, divisible, shape (H,).

    ``gamma = min over demanded r of capacity[r] / demand[r]``; 0 for a demand
    of nothing.
    """
    demanded = demand > 0
    if not demanded.any():
        return np.zeros(len(capacity))
    alone: FloatArray = (capacity[:, demanded] / demand[demanded]).min(axis=1)
    return alone


def fill_by_tasks(draft: Draft, kinds: VmKinds, rule: TaskRule) -> None:
    """Place the remaining VMs of ``draft`` one by one, each for the tenant of the lowest level.

    Notes
    -----
    The level of a tenant for a kind of VM is ``x / (w alone)``: x is what it
    holds, in VMs of that kind, and ``alone`` what the rule says it could run.
    With one request per tenant x is the number of its VMs. What it holds of
    other kinds counts as the number of VMs of this kind that would hold as much
    of the demanded resource of which it holds most (derived, as mechanisms
    count what is held).

    Levels only rise, so an entry at the head of the queue that is still right
    when it is looked at is the least. Equal levels go in order of requests.
    """
    snapshot = draft.snapshot
    remaining = np.minimum(
        draft.remaining, max_vms_per_request(snapshot, draft.room, kinds)
    ).tolist()
    held: list[list[int]] = draft.held.tolist()
    demanded = [[(r, n) for r, n in enumerate(row) if n > 0] for row in kinds.demand.tolist()]
    scale = relative_weights(snapshot.weight).tolist()
    waiting: dict[tuple[int, int], deque[int]] = {}
    for request in np.flatnonzero(np.array(remaining, dtype=np.int64)).tolist():
        key = (int(snapshot.tenant[request]), int(kinds.of_request[request]))
        waiting.setdefault(key, deque()).append(request)
    heap = [(-1.0, queue[0], tenant, kind) for (tenant, kind), queue in waiting.items()]
    heapq.heapify(heap)
    served: list[int] = []
    hosts: list[int] = []
    while heap:
        level, request, tenant, kind = heap[0]
        tasks = _held_tasks(held[tenant], demanded[kind])
        alone = rule.vms_alone(kind, first=tasks == 0)
        if alone is None:
            heapq.heappop(heap)
            continue
        now = level_in_steps(tasks / alone / scale[tenant])
        queue = waiting[tenant, kind]
        if now != level or queue[0] != request:
            heapq.heapreplace(heap, (now, queue[0], tenant, kind))
            continue
        host = rule.take(kind, first=tasks == 0)
        if host is None:  # and room only shrinks
            heapq.heappop(heap)
            continue
        served.append(request)
        hosts.append(host)
        for resource, amount in demanded[kind]:
            held[tenant][resource] += amount
        remaining[request] -= 1
        if remaining[request] == 0:
            queue.popleft()
            if not queue:
                heapq.heappop(heap)
    if served:
        draft.put_all(np.stack([served, hosts, np.ones(len(served), np.int64)], axis=1))


def _held_tasks(held: Sequence[int], demanded: Sequence[tuple[int, int]]) -> float:
    """Return what a tenant holds, counted in VMs of one kind."""
    return max((held[resource] / amount for resource, amount in demanded), default=0.0)
