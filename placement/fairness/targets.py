"""The fair target of a round: weighted DRF on the totals, by water filling.

Water is filled in five places. Each has a reason to differ:

- `fair_targets`: a tenant has a queue of requests that demand differently, so its dominant
  resource changes as it climbs; from event to event, as rounds have thousands of tenants.
- `placement.mechanisms.max_min.ascent.fill_pool`: one divisible task per tenant. What all need
  at a level is known in closed form, and what is held may lie between two floats.
- `placement.mechanisms.hierarchies.staged_mch.fill_in_stages`: `fill_pool` stopped at each stage,
  since weights change there.
- `placement.mechanisms.psdsf.water_filling.raise_lowest_levels`: levels on one server begin
  where tasks elsewhere put them and have no bounds; tens of thousands of fillings of a few tenants.
- `placement.mechanisms.max_min.lexmin`: the same climb over many servers, where only a linear
  program shows what still fits.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import Final

import numpy as np

from placement.fairness.levels import relative_weights
from placement.fairness.shares import fractions_of_pool
from placement.model.arrays import FloatArray, IntArray
from placement.model.snapshot import Snapshot
from placement.model.vm_kinds import VmKinds, hosts_for, max_vms_per_request, vm_kinds

#: Fractions of the pool below this are rounding, not amounts.
_NOTHING: Final = 1e-13
#: A target so close to whole VMs is meant to be whole.
_WHOLE: Final = 1e-9


def fair_targets(snapshot: Snapshot, kinds: VmKinds | None = None) -> FloatArray:
    """Return how many VMs of each request would be fair, in fractions of a VM.

    Returns
    -------
    ndarray of float64, shape (Q,)
        Targets within [0, count]; 0 for a request that fits on no host now.

    Notes
    -----
    Lexicographic max-min of the tenants' dominant shares per weight as if all
    hosts were one, from what they hold already, on what is free on the hosts
    that any request may use; shares are of the whole pool.
    A tenant takes its requests in order. Levels rise together; a level's rise
    is stopped by a request that is complete, a resource that is used up (a tenant that
    demands it is frozen there, the others go on), a tenant whose own level is
    reached, or a change of a tenant's dominant resource. With equal weights,
    nothing running and unlimited counts the target of user i in resource j is
    the paper's ``d* g[i, j]``.

    If a tenant's request does not demand the tenant's dominant resource, the tenant takes
    VMs at the same level. Such tenants go first (derived; no level depends on it).
    """
    return _WaterFilling(snapshot, kinds or vm_kinds(snapshot)).run()


def whole_targets(targets: FloatArray) -> IntArray:
    """Round the requests' fair targets down to whole VMs, (Q,), with a tolerance."""
    return np.floor(targets + 1e-6).astype(np.int64)


class _WaterFilling:
    """The state of filling fair targets; amounts are fractions of the pool.

    Between two events every rising tenant takes VMs at a steady rate, so only the
    level changes. A tenant's amounts are updated at its own events.
    """

    def __init__(self, snapshot: Snapshot, kinds: VmKinds) -> None:
        pool = snapshot.pool
        self._demand: list[list[float]] = fractions_of_pool(snapshot.demand, pool).tolist()
        self._weight: list[float] = relative_weights(snapshot.weight).tolist()
        left = max_vms_per_request(snapshot, snapshot.free, kinds)
        self._left: list[float] = left.astype(np.float64).tolist()
        self.tasks = [0.0] * len(self._left)
        wanted = np.flatnonzero(left)
        open_to = hosts_for(snapshot, kinds)[np.unique(kinds.of_request[wanted])].any(axis=0)
        room = snapshot.free[open_to].sum(axis=0, dtype=np.int64)
        self._room: list[float] = fractions_of_pool(room, pool).tolist()
        self._used_up = [amount <= _NOTHING for amount in self._room]
        self._resources = range(len(pool))
        self._queues: dict[int, deque[int]] = {}
        tenants = snapshot.tenant[wanted].tolist()
        for request, tenant in zip(wanted.tolist(), tenants, strict=True):
            self._queues.setdefault(tenant, deque()).append(request)
        # Only tenants with demand: many more may hold something.
        held = fractions_of_pool(snapshot.held[list(self._queues)], pool).tolist()
        self._given: dict[int, list[float]] = dict(zip(self._queues, held, strict=True))

        self._level = 0.0
        self._flow = [0.0] * len(self._room)  # amounts per level of all rising tenants
        self._speed: dict[int, float] = {}  # rising tenants: VMs per level
        self._planned: dict[int, float] = {}  # VMs until the next event of their own
        self._since: dict[int, float] = {}  # the level at which amounts were last brought up
        # (level, tenant, which of its events): joins, completes or changes dominance
        self._events: list[tuple[float, int, int]] = []
        self._latest: dict[int, int] = {}

    def run(self) -> FloatArray:
        """Fill until every tenant is complete or frozen; return the tasks of each request, (Q,)."""
        for tenant in sorted(self._queues):
            self._schedule_completion(
                tenant, max(self._given[tenant], default=0.0) / self._weight[tenant]
            )
        # Each event completes a request, uses up a resource, lets a tenant join or
        # changes a dominant resource, which happens so often at most.
        maximum = 4 * (len(self.tasks) + len(self._queues) + 1) * (len(self._room) + 1)
        for _ in range(maximum):
            ends, resource = self._next_exhaustion()
            if not self._events and resource is None:
                break
            if resource is None or (self._events and self._events[0][0] <= ends):
                level, tenant, event = heapq.heappop(self._events)
                if self._latest.get(tenant) == event:
                    self._raise_levels_to(level)
                    self._credit_accrued(tenant, self._planned.get(tenant))
                    self._start_next_request(tenant)
            else:
                self._raise_levels_to(ends)
                self._exhaust_resource(resource)
        tasks = np.array(self.tasks)
        whole = np.rint(tasks)
        return np.where(np.abs(tasks - whole) < _WHOLE, whole, tasks)

    def _schedule_completion(self, tenant: int, level: float) -> None:
        """Schedule the level at which a tenant's current request is complete; drop earlier ones."""
        event = self._latest[tenant] = self._latest.get(tenant, 0) + 1
        heapq.heappush(self._events, (level, tenant, event))

    def _next_exhaustion(self) -> tuple[float, int | None]:
        """Return the level at which the next resource is used up, and that resource or None."""
        ends, found = math.inf, None
        for resource in self._resources:
            flow = self._flow[resource]
            if flow > _NOTHING and not self._used_up[resource]:
                level = self._level + self._room[resource] / flow
                if level < ends:
                    ends, found = level, resource
        return ends, found

    def _raise_levels_to(self, level: float) -> None:
        """Raise the common level of all rising tenants; the pool's room falls by what they take."""
        rise = level - self._level
        if rise > 0:
            for resource in self._resources:
                taken = rise * self._flow[resource]
                self._room[resource] = max(self._room[resource] - taken, 0.0)
            self._level = level

    def _credit_accrued(self, tenant: int, tasks: float | None = None) -> None:
        """Credit a tenant with what it accrued and freeze its level."""
        speed = self._speed.pop(tenant, None)
        if speed is None:
            return
        if tasks is None:
            tasks = min(speed * (self._level - self._since[tenant]), self._planned[tenant])
        demand = self._demand[self._queues[tenant][0]]
        for resource in self._resources:
            self._flow[resource] -= speed * demand[resource]
        if not self._speed:  # no tenant rises: what is left is rounding
            self._flow = [0.0] * len(self._flow)
        self._grant_tasks(tenant, tasks)

    def _grant_tasks(self, tenant: int, tasks: float) -> None:
        """Give a tenant tasks of its current request."""
        request = self._queues[tenant][0]
        demand, given = self._demand[request], self._given[tenant]
        self.tasks[request] += tasks
        for resource in self._resources:
            given[resource] += tasks * demand[resource]
        left = self._left[request] - tasks
        # What is left of a request and too small to see in any share is rounding.
        self._left[request] = left if left * max(demand) > _NOTHING else 0.0

    def _start_next_request(self, tenant: int) -> None:
        """Let a frozen tenant rise with its next request, if it has one."""
        while (request := self._next_request(tenant)) is not None:
            demand, given = self._demand[request], self._given[tenant]
            weight, top = self._weight[tenant], max(given)
            rate = max(
                demand[r] for r in self._resources if given[r] >= top - _NOTHING
            )  # of the dominant share, per VM
            if rate <= 0:
                self._grant_at_same_level(tenant, request)
                continue
            speed = self._speed[tenant] = weight / rate
            self._since[tenant] = self._level
            lasts = completes = self._left[request] / speed
            for resource in self._resources:
                climb = speed * demand[resource]
                self._flow[resource] += climb
                if climb > weight and given[resource] < top - _NOTHING:
                    lasts = min(lasts, (top - given[resource]) / (climb - weight))
            # The exact number, however little the level rises in this step.
            self._planned[tenant] = lasts * speed if lasts < completes else self._left[request]
            self._schedule_completion(tenant, self._level + lasts)
            return

    def _next_request(self, tenant: int) -> int | None:
        """Return the tenant's first request that can still get tasks; drop those before it."""
        queue = self._queues[tenant]
        while queue:
            demand = self._demand[queue[0]]
            blocked = any(self._used_up[r] and demand[r] > 0 for r in self._resources)
            if self._left[queue[0]] > 0 and not blocked:
                return queue[0]
            queue.popleft()
        return None

    def _grant_at_same_level(self, tenant: int, request: int) -> None:
        """Grant tasks that leave the tenant's dominant share unchanged.

        The grant ends where another resource catches up or a resource is used up.
        """
        demand, given = self._demand[request], self._given[tenant]
        demanded = [r for r in self._resources if demand[r] > 0]
        top = max(given)
        catches_up = min((top - given[r]) / demand[r] for r in demanded)
        ends = min(self._room[r] / demand[r] for r in demanded)
        tasks = min(self._left[request], ends, catches_up)
        self._grant_tasks(tenant, tasks)
        for resource in demanded:
            self._room[resource] = max(self._room[resource] - tasks * demand[resource], 0.0)
            if self._room[resource] <= _NOTHING and not self._used_up[resource]:
                self._exhaust_resource(resource)

    def _exhaust_resource(self, resource: int) -> None:
        """Freeze tenants that demand a used-up resource; continue with their other requests."""
        self._used_up[resource] = True
        self._room[resource] = 0.0
        stopped = [
            tenant
            for tenant in sorted(self._speed)
            if self._demand[self._queues[tenant][0]][resource] > 0
        ]
        for tenant in stopped:
            self._credit_accrued(tenant)
        for tenant in stopped:
            self._start_next_request(tenant)
