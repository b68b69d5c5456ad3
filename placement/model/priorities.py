"""Priorities among the requests of one tenant.

The policy decides what each tenant is given, without regard to priorities. Then a tenant's
request that was left out takes room that the round gave to requests of the same tenant with a
lower priority. So a tenant's priorities do not affect other tenants: not what they are given, nor
how much of any host and resource the tenant itself is given at most.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict

import numpy as np

from placement.model.arrays import BoolArray, IntArray
from placement.model.row_groups import group_rows
from placement.model.snapshot import Allocation, LeftOut, Reason, Snapshot
from placement.model.vm_kinds import vms_that_fit


def apply_priorities(snapshot: Snapshot, priority: IntArray, allocation: Allocation) -> Allocation:
    """Return the allocation in which a tenant's higher priorities displace its lower ones.

    Parameters
    ----------
    snapshot : Snapshot
    priority : ndarray of int64, shape (Q,)
        The highest goes first; ties go to the kind of VM whose first request comes first.
    allocation : Allocation
        Feasible.

    Returns
    -------
    Allocation
        On each host each tenant has at most what it had of each resource, and no more VMs in
        all where an allowance counts them. ``details["took"]`` has rows of request, host and
        count, ``details["gave_way"]`` also the request for which they gave way (the first,
        where several are alike); what gave way is left out as `Reason.LOWER_PRIORITY`. The
        same object where nothing gives way.

    Notes
    -----
    Amounts that are given up and that the taker does not need stay free until the next round.
    A request of a hard group, or one that is spread, takes no other's place, as its own
    places depend on each other; it may give way. A gang takes or gives up its minimum
    whole.
    """
    left = np.zeros(len(snapshot.count), dtype=np.int64)
    for each in allocation.left_out:
        left[each.request] += each.count
    waits, rows = np.flatnonzero(left), allocation.placed
    highest = np.full(len(snapshot.weight), np.iinfo(np.int64).min)
    lowest = np.full(len(snapshot.weight), np.iinfo(np.int64).max)
    np.maximum.at(highest, snapshot.tenant[waits], priority[waits])
    np.minimum.at(lowest, snapshot.tenant[rows[:, 0]], priority[rows[:, 0]])
    takes = np.ones(len(left), dtype=np.bool_)
    if snapshot.constraints is not None:
        for group in snapshot.constraints.groups:
            takes[[*group.requests]] &= not group.hard
        takes[[each.request for each in snapshot.constraints.spreads]] = False
    placed = Counter({(request, host): count for request, host, count in rows.tolist()})
    took: Counter[tuple[int, int]] = Counter()
    gave_way: Counter[tuple[int, int, int]] = Counter()
    for tenant in np.flatnonzero(highest > lowest).tolist():
        its = _TenantVms(snapshot, priority, tenant, rows, left)
        its.settle_priorities(takes)
        took.update(its.taken)
        gave_way.update(its.gave_way)
    if not gave_way:
        return allocation
    placed.update(took)
    for (request, host, _), count in gave_way.items():
        placed[request, host] -= count
    return dataclasses.replace(
        allocation,
        placed=np.array(
            [(*where, count) for where, count in sorted(placed.items()) if count], dtype=np.int64
        ).reshape(-1, 3),
        left_out=_unplaced_vms(allocation, left),
        details={
            **allocation.details,
            "took": [[request, host, count] for (request, host), count in sorted(took.items())],
            "gave_way": [
                [request, host, count, taker]
                for (request, host, taker), count in sorted(gave_way.items())
            ],
        },
    )


class _TenantVms:
    """The VMs given to one tenant, host by host, to be divided among its requests."""

    def __init__(
        self, snapshot: Snapshot, priority: IntArray, tenant: int, placed: IntArray, left: IntArray
    ) -> None:
        rows = placed[snapshot.tenant[placed[:, 0]] == tenant]
        # The lowest priority gives way first; ties go to the last request.
        rows = rows[np.lexsort((rows[:, 1], -rows[:, 0], priority[rows[:, 0]]))]
        self._snapshot, self._priority, self._left = snapshot, priority, left
        self._requests = np.flatnonzero((snapshot.tenant == tenant) & (snapshot.count > 0))
        self._request, self._count = rows[:, 0], rows[:, 2].copy()
        self._hosts, self._at = np.unique(rows[:, 1], return_inverse=True)
        self._open = np.zeros((len(self._hosts), snapshot.demand.shape[1]), dtype=np.int64)
        self._rows_at: defaultdict[int, list[int]] = defaultdict(list)
        for row, at in enumerate(self._at.tolist()):
            self._rows_at[at].append(row)
        self._rows_of: defaultdict[int, list[int]] = defaultdict(list)
        for row, request in enumerate(self._request.tolist()):
            self._rows_of[request].append(row)
        #: VMs that may be placed beyond those that gave way; None: any number
        self._spare: int | None = None
        if any(each.resource is None and tenant in each.tenants for each in snapshot.allowances):
            self._spare = 0
        self.taken: Counter[tuple[int, int]] = Counter()  #: VMs by request and host
        self.gave_way: Counter[tuple[int, int, int]] = Counter()  #: by request, host and taker

    def settle_priorities(self, takes: BoolArray) -> None:
        """Let the tenant's requests take VMs of lower priorities, the highest priority first."""
        snapshot, its = self._snapshot, self._requests
        # A gang is a kind of its own: it takes its minimum whole.
        gang = np.where(snapshot.min_count[its] > 1, 1 + its, 0)
        kinds = group_rows(snapshot.demand[its], snapshot.eligible[its], self._priority[its], gang)
        members = kinds.members()
        order = np.lexsort((kinds.first, -self._priority[its[kinds.first]]))
        for kind in order.tolist():
            waits = its[members[kind]]
            waits = waits[(self._left[waits] > 0) & takes[waits]]
            if len(waits):
                self._take_room(waits)

    def _take_room(self, waits: IntArray) -> None:
        """Let requests of one kind take room, lower priorities giving way before higher ones."""
        snapshot, first = self._snapshot, int(waits[0])
        demand, priority = snapshot.demand[first], int(self._priority[first])
        may_use = snapshot.eligible[first][snapshot.host_class[self._hosts]]
        below = self._priority[self._request]
        levels = np.unique(below[(below < priority) & (self._count > 0)]).tolist()
        wanted = [(request, int(self._left[request])) for request in waits.tolist()]
        left = sum(count for _, count in wanted)
        begun = self._left[first] < snapshot.count[first]
        needed = 1 if begun else int(snapshot.min_count[first])
        if not levels or self._fits_by_displacing(demand, may_use, levels[-1]).sum() < needed:
            return
        if needed > 1 and self._spare is not None:
            return  # how many give way for it is not known before
        for level in levels:
            fit = self._fits_by_displacing(demand, may_use, level)
            for at in np.flatnonzero(fit).tolist():
                at_once = left if self._spare is None else 1
                while left and (number := min(int(fit[at]), at_once, left)):
                    if not self._displace_vms(at, level, number * demand, number, wanted):
                        break
                    fit[at] -= number
                    left -= number

    def _fits_by_displacing(self, demand: IntArray, may_use: BoolArray, level: int) -> IntArray:
        """Return how many VMs fit on each host if all up to a priority give way, shape (H,)."""
        rows = (self._priority[self._request] <= level) & (self._count > 0)
        room = self._open.copy()
        amounts = self._count[rows, None] * self._snapshot.demand[self._request[rows]]
        np.add.at(room, self._at[rows], amounts)
        return np.where(may_use, vms_that_fit(room, demand), 0)

    def _displace_vms(
        self, at: int, level: int, amounts: IntArray, number: int, wanted: list[tuple[int, int]]
    ) -> bool:
        """Let VMs give way until ``amounts`` are free on a host; return False if too many would."""
        short = np.maximum(amounts - self._open[at], 0)
        giving: list[tuple[int, int]] = []
        for row in self._rows_at[at]:
            request = int(self._request[row])
            if not short.any() or self._priority[request] > level:
                break
            demand = self._snapshot.demand[request]
            helps = (short > 0) & (demand > 0)
            if self._count[row] and helps.any():
                enough = int((-(-short[helps] // demand[helps])).max())
                count = min(int(self._count[row]), enough)
                giving.append((row, count))
                short = np.maximum(short - count * demand, 0)
        if self._spare is not None:
            spare = self._spare + sum(count for _, count in giving) - number
            if spare < 0:
                return False
            self._spare = spare
        taker = wanted[0][0]
        for row, count in giving:
            self._hand_over_vms(row, count, taker)
        self._open[at] -= amounts
        host = int(self._hosts[at])
        while number:
            request, more = wanted[0]
            its = min(more, number)
            self.taken[request, host] += its
            self._left[request] -= its
            number -= its
            wanted[0] = (request, more - its)
            if its == more:
                wanted.pop(0)
        return True

    def _hand_over_vms(self, row: int, count: int, taker: int) -> None:
        """Take VMs of a row away for a request of higher priority; a broken gang loses all."""
        request, host = int(self._request[row]), int(self._hosts[self._at[row]])
        self._count[row] -= count
        self._open[self._at[row]] += count * self._snapshot.demand[request]
        self._left[request] += count
        self.gave_way[request, host, taker] += count
        rows = self._rows_of[request]
        rest = int(self._count[rows].sum())
        if 0 < rest < self._snapshot.min_count[request]:
            for other in rows:
                if more := int(self._count[other]):
                    self._hand_over_vms(other, more, taker)


def _unplaced_vms(allocation: Allocation, left: IntArray) -> tuple[LeftOut, ...]:
    """Return the unplaced VMs with their reasons, once priorities are applied."""
    parts = []
    rest = left.copy()
    for each in allocation.left_out:
        count = min(each.count, int(rest[each.request]))
        rest[each.request] -= count
        if count:
            parts.append(dataclasses.replace(each, count=count))
    for request in np.flatnonzero(rest).tolist():
        lower = Reason.LOWER_PRIORITY
        parts.append(LeftOut(request=request, count=int(rest[request]), reason=lower))
    return tuple(parts)
