"""The fair target by water filling, all tenants step by step: the oracle of the fast form."""

from __future__ import annotations

from collections import deque

import numpy as np

from placement import Snapshot
from placement.fairness.shares import fractions_of_pool
from placement.model.arrays import SHARE_TOLERANCE
from placement.model.reasons import hosts_open_to
from placement.model.vm_kinds import max_vms_per_request

_NOTHING = 1e-13
_WHOLE = 1e-9


def plain_targets(snapshot: Snapshot) -> np.ndarray:
    """Return how many VMs of each request would be fair."""
    return _WaterFilling(snapshot).run()


class _WaterFilling:
    """The water and its level; amounts are fractions of the pool."""

    def __init__(self, snapshot: Snapshot) -> None:
        pool = snapshot.pool
        self.demand = fractions_of_pool(snapshot.demand, pool)
        self.given = fractions_of_pool(snapshot.held, pool)
        self.weight = snapshot.weight / snapshot.weight.max(initial=0.0)
        self.tasks = np.zeros(len(snapshot.count))
        self.left = max_vms_per_request(snapshot, snapshot.free).astype(np.float64)
        wanted = np.flatnonzero(self.left)
        open_hosts = np.zeros(len(snapshot.free), dtype=np.bool_)
        for request in wanted.tolist():
            open_hosts |= hosts_open_to(snapshot, request)
        self.room = fractions_of_pool(snapshot.free[open_hosts].sum(axis=0, dtype=np.int64), pool)
        self.queues: dict[int, deque[int]] = {}
        for request in wanted.tolist():
            self.queues.setdefault(int(snapshot.tenant[request]), deque()).append(request)

    def run(self) -> np.ndarray:
        """Fill until every tenant is complete or frozen."""
        requests, resources = self.demand.shape
        # Each step completes a request, uses up a resource, joins two levels or
        # changes a dominant resource, which happens so often at most.
        for _ in range(4 * (requests + 1) * (resources + 1)):
            tenants = self._live_tenants()
            if len(tenants) == 0:
                break
            self._step(tenants)
        whole = np.rint(self.tasks)
        return np.where(np.abs(self.tasks - whole) < _WHOLE, whole, self.tasks)

    def _live_tenants(self) -> np.ndarray:
        used_up = self.room <= _NOTHING
        for tenant in list(self.queues):
            queue = self.queues[tenant]
            while queue and (
                self.left[queue[0]] <= 0 or (used_up & (self.demand[queue[0]] > 0)).any()
            ):
                queue.popleft()
            if not queue:
                del self.queues[tenant]
        return np.array(sorted(self.queues), dtype=np.int64)

    def _step(self, tenants: np.ndarray) -> None:
        level = self.given[tenants].max(axis=1) / self.weight[tenants]
        lowest = level.min()
        rising = tenants[level <= lowest + SHARE_TOLERANCE]
        above = level[level > lowest + SHARE_TOLERANCE]
        request = np.array([self.queues[tenant][0] for tenant in rising.tolist()])
        demand = self.demand[request]
        given = self.given[rising]
        top = given.max(axis=1, keepdims=True)
        is_top = given >= top - _NOTHING
        rate = np.where(is_top, demand, 0.0).max(axis=1)  # of the dominant share, per VM
        if (rate <= 0).any():
            self._take_without_rising(int(np.argmax(rate <= 0)), rising, request)
            return

        speed = self.weight[rising] / rate  # VMs per unit of level
        climb = speed[:, None] * demand
        with np.errstate(divide="ignore", invalid="ignore"):
            completes = self.left[request] / speed
            flow = climb.sum(axis=0)
            uses_up = np.where(flow > 0, self.room / flow, np.inf)
            faster = ~is_top & (climb > self.weight[rising][:, None])
            overtakes = np.where(
                faster, (top - given) / (climb - self.weight[rising][:, None]), np.inf
            )
        rise = min(
            completes.min(),
            uses_up.min(),
            overtakes.min(),
            (above.min() - lowest) if len(above) else np.inf,
        )
        self._give(rising, request, rise * speed)

    def _take_without_rising(self, place: int, rising: np.ndarray, request: np.ndarray) -> None:
        tenant, first = rising[place : place + 1], request[place : place + 1]
        demand, given = self.demand[first[0]], self.given[tenant[0]]
        requested = demand > 0
        catches_up = ((given.max() - given[requested]) / demand[requested]).min()
        uses_up = (self.room[requested] / demand[requested]).min()
        self._give(tenant, first, np.array([min(self.left[first[0]], uses_up, catches_up)]))

    def _give(self, tenants: np.ndarray, request: np.ndarray, tasks: np.ndarray) -> None:
        amount = tasks[:, None] * self.demand[request]
        self.tasks[request] += tasks
        self.given[tenants] += amount
        self.room = np.maximum(self.room - amount.sum(axis=0), 0.0)
        left = self.left[request] - tasks
        # What is left of a request and too small to see in any share is rounding.
        seen = left * self.demand[request].max(axis=1) > _NOTHING
        self.left[request] = np.where(seen, left, 0.0)
