"""Preemption: which running VMs end so that requests without room get theirs.

The policy decides what it would place if the VMs that may end were not there. Further runs let
only the youngest VMs of each host end, so that few do.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from placement.model.arrays import IntArray
from placement.model.borrowed_shares import BorrowedShares
from placement.model.budget import Budget
from placement.model.priorities import apply_priorities
from placement.model.snapshot import Allocation, Borrowed, Policy, Snapshot, Spot

#: How many of the youngest VMs of each host may end: at first, then, ...; at last all.
_LEVELS: Final = (1, 2, 4, 16)

RowCounts = Counter[tuple[int, int]]  #: VMs by request and host
Ends = list[tuple[int, int]]  #: VMs that end, each with the request for which it does
Preemptible = Spot | Borrowed  #: running VMs that may end for requests


class CostedPolicy:
    """Runs the policy for borrowed and spot VMs, and adds up its work."""

    def __init__(self, policy: Policy, seed: int, budget_units: int | None) -> None:
        self._policy, self._seed, self._units = policy, seed, budget_units
        self.work, self.cut = 0, False

    def decide(self, snapshot: Snapshot) -> Allocation:
        """Run the policy, apply priorities, and count the work."""
        plain = dataclasses.replace(snapshot, priority=None)
        rng = np.random.default_rng(self._seed)
        found = self._policy.place(plain, rng, Budget(self._units))
        self.work += found.work
        self.cut = self.cut or found.cut
        if snapshot.priority is None:
            return found
        return apply_priorities(snapshot, snapshot.priority, found)


def vms_to_end(
    rest: Snapshot,
    running: Preemptible,
    wanted: IntArray,
    policy: CostedPolicy,
    shares: BorrowedShares | None = None,
) -> tuple[Ends, RowCounts]:
    """Return the running VMs that end, and the requests and hosts that get their room.

    ``wanted`` is how many VMs of each request are without room, (Q,).
    With ``shares`` the VMs are borrowed, and those requests get no more than shares allow.
    """
    if not running.may_end.any() or not wanted.any():
        return [], Counter()
    wanted_snapshot = dataclasses.replace(rest, count=wanted)
    first = policy.decide(_snapshot_without_youngest(wanted_snapshot, running, len(running.host)))
    ruled = _interdependent_requests(rest)
    whole: RowCounts = Counter()
    for request, host, count in first.placed.tolist():
        whole[request, host] += count
    few: RowCounts = Counter({row: count for row, count in whole.items() if row[0] in ruled})
    may = np.zeros_like(wanted)
    for (request, _), count in whole.items():
        may[request] += count
    may[list(ruled)] = 0
    maximum = int(np.bincount(running.host[running.may_end]).max())
    for level in (*(each for each in _LEVELS if each < maximum), maximum):
        if not may.any():
            break
        # A gang that does not fit whole at one level may at another.
        minimum = np.where(placed_counts(few, len(may)) > 0, 1, rest.min_count)
        may_be = np.where(may >= minimum, may, 0)
        if not may_be.any():
            continue
        there = dataclasses.replace(rest, count=may_be, min_count=minimum)
        found = policy.decide(
            _snapshot_less_rows(_snapshot_without_youngest(there, running, level), rest, few)
        ).placed
        for request, host, count in found.tolist():
            few[request, host] += count
            may[request] -= count
    choices = []
    for rows in (few, whole):
        if shares is None:
            ends = _ends_for_rows(rest, running, rows)
        else:
            assert isinstance(running, Borrowed)  # noqa: S101 - only those are bound by shares
            rows, ends = _rows_within_shares(rest, running, rows, shares)  # noqa: PLW2901
        hosts = {int(running.host[each]) for each, _ in ends}
        # Of a gang all places are kept: it takes them together, or none.
        lets_in = Counter(
            {
                (request, host): count
                for (request, host), count in rows.items()
                if host in hosts or (ends and rest.min_count[request] > 1)
            }
        )
        choices.append((-sum(lets_in.values()), len(ends), ends, lets_in))
    best = min(choices, key=lambda choice: choice[:2])
    return best[2], best[3]


def _rows_within_shares(
    rest: Snapshot, borrowed: Borrowed, rows: RowCounts, shares: BorrowedShares
) -> tuple[RowCounts, Ends]:
    """Return as much of the rows as shares allow, and the borrowed VMs that end for them.

    Of a gang it is at least the minimum, or nothing. The shares stay as they are.
    """
    gangs = {request for request, _ in rows if rest.min_count[request] > 1}
    vms_of = _vms_by_host(borrowed, {host for _, host in rows})
    dropped: set[int] = set()
    mark = shares.mark()
    while True:
        taking = _BorrowedTaking(rest, borrowed, shares, vms_of)
        for (request, host), count in sorted(rows.items()):
            if request in dropped or (host not in vms_of and request not in gangs):
                continue
            for number in range(count, 0, -1):
                if taking.take(request, host, number):
                    break
        shares.undo(mark)
        given = placed_counts(taking.rows, len(rest.count))
        broken = {each for each in gangs - dropped if 0 < given[each] < rest.min_count[each]}
        if not broken:
            return taking.rows, taking.ends()
        dropped |= broken


class _BorrowedTaking:
    """Borrowed VMs that end, row by row, for requests that get their room."""

    def __init__(
        self,
        rest: Snapshot,
        borrowed: Borrowed,
        shares: BorrowedShares,
        vms_of: Mapping[int, Sequence[int]],
    ) -> None:
        self._rest, self._borrowed, self._shares = rest, borrowed, shares
        self._vms_of = vms_of  #: the youngest first
        self.rows: RowCounts = Counter()
        self._room: dict[int, IntArray] = {}  # once those have ended and the rows are placed
        self._ended: defaultdict[int, list[int]] = defaultdict(list)

    def take(self, request: int, host: int, count: int) -> bool:
        """End the VMs that a row needs; do nothing and return False if shares forbid it."""
        taker, amounts = int(self._rest.tenant[request]), self._borrowed.amounts
        takes = count * self._rest.demand[request]
        mark = self._shares.mark()
        if not self._shares.change([(taker, takes)], ()):
            return False
        room, ending = self._room.get(host, self._rest.free[host]) - takes, list[int]()
        while (short := room < 0).any():
            gone = {*self._ended[host], *ending}
            left = [vm for vm in self._vms_of.get(host, ()) if vm not in gone]
            helping = np.flatnonzero((amounts[left][:, short] > 0).any(axis=1))
            vm = self._end_next(taker, [left[each] for each in helping.tolist()])
            if vm is None:
                self._shares.undo(mark)
                return False
            ending.append(vm)
            room = room + amounts[vm]
        self._room[host] = room
        self._ended[host] += ending
        self.rows[request, host] = count
        return True

    def _end_next(self, taker: int, helps: Sequence[int]) -> int | None:
        """Change the shares for the VM that ends next, and return it; None if none may end.

        It is the youngest that helps of the tenant that holds most compared to the taker.
        """
        first = {int(self._borrowed.tenant[vm]): vm for vm in reversed(helps)}
        for borrower in sorted(first, key=lambda each: -self._shares.lead(each, taker)):
            vm = first[borrower]
            if self._shares.change((), [(taker, borrower, self._borrowed.amounts[vm])]):
                return vm
        return None

    def ends(self) -> Ends:
        """Return the VMs that end, each with its request; none that could stay."""
        rows_of: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for (request, host), count in sorted(self.rows.items()):
            rows_of[host].append((request, count))
        ends: Ends = []
        for host, ending in sorted(self._ended.items()):
            for vm in sorted(ending):  # the oldest first: it has most to lose
                if (self._room[host] >= self._borrowed.amounts[vm]).all():
                    ending.remove(vm)
                    self._room[host] -= self._borrowed.amounts[vm]
            free = self._rest.free[host]
            ends += _ends_on_host(self._rest, self._borrowed, rows_of[host], free, ending)
        return sorted(ends)


def _interdependent_requests(snapshot: Snapshot) -> set[int]:
    """Return the requests whose hosts depend on each other by a hard group or a spread."""
    rules = snapshot.constraints
    if rules is None:
        return set()
    ruled = {request for group in rules.groups if group.hard for request in group.requests}
    return ruled | {each.request for each in rules.spreads}


def _snapshot_without_youngest(snapshot: Snapshot, running: Preemptible, max_vms: int) -> Snapshot:
    """Return the snapshot without the ``max_vms`` youngest of the running VMs of each host."""
    vms, hosts = _youngest_first(running)
    rank = np.arange(len(vms)) - np.searchsorted(hosts, hosts)
    free = snapshot.free.copy()
    np.add.at(free, hosts[rank < max_vms], running.amounts[vms[rank < max_vms]])
    return dataclasses.replace(snapshot, free=free)


def _youngest_first(running: Preemptible) -> tuple[IntArray, IntArray]:
    """Return the VMs that may end by host, the youngest first, and their hosts, each (B,)."""
    vms = np.flatnonzero(running.may_end)[::-1]
    vms = vms[np.argsort(running.host[vms], kind="stable")]
    return vms, running.host[vms]


def _vms_by_host(running: Preemptible, hosts: Collection[int]) -> dict[int, list[int]]:
    """Return the VMs that may end on some hosts, in order of hosts, the youngest first."""
    vms, on_host = _youngest_first(running)
    found = {}
    for host in sorted(hosts):
        first, end = np.searchsorted(on_host, (host, host + 1)).tolist()
        if first < end:
            found[host] = vms[first:end].tolist()
    return found


def _snapshot_less_rows(there: Snapshot, rest: Snapshot, rows: RowCounts) -> Snapshot:
    """Return a snapshot whose hosts and quotas have lost what the rows take."""
    if not rows:
        return there
    placed = rows_array(rows)
    free = there.free.copy()
    np.subtract.at(free, placed[:, 1], placed[:, 2:] * rest.demand[placed[:, 0]])
    after = rest.after_placing(placed)
    # Rows may need more than may end at this level: nothing is left there.
    return dataclasses.replace(
        there, free=np.maximum(free, 0), held=after.held, allowances=after.allowances
    )


def _ends_for_rows(rest: Snapshot, running: Preemptible, rows: RowCounts) -> Ends:
    """Return the VMs that end for rows of requests, each with its request."""
    on_host: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for (request, host), count in sorted(rows.items()):
        on_host[host].append((request, count))
    ends: Ends = []
    for host, vms in _vms_by_host(running, on_host).items():
        takes = [count * rest.demand[request] for request, count in on_host[host]]
        short = np.sum(takes, axis=0) - rest.free[host]
        ending: list[int] = []
        for vm in vms:
            if (short <= 0).all():
                break
            if (running.amounts[vm][short > 0] > 0).any():
                ending.append(vm)
                short = short - running.amounts[vm]
        for vm in reversed(ending.copy()):  # the oldest first: it has most to lose
            if (short + running.amounts[vm] <= 0).all():
                ending.remove(vm)
                short = short + running.amounts[vm]
        ends += _ends_on_host(rest, running, on_host[host], rest.free[host], ending)
    return sorted(ends)


def _ends_on_host(
    rest: Snapshot,
    running: Preemptible,
    lets_in: Sequence[tuple[int, int]],
    free: IntArray,
    ending: Sequence[int],
) -> Iterator[tuple[int, int]]:
    """Yield each VM that ends on a host, with the first request that needs its room."""
    room, vms, taken = free, list(ending), np.zeros_like(free)
    for request, count in lets_in:
        taken = taken + count * rest.demand[request]
        while vms and (taken > room).any():
            room = room + running.amounts[vms[0]]
            yield vms.pop(0), request


def placed_counts(rows: RowCounts, requests: int) -> IntArray:
    """Return the VMs of each request in these rows, (Q,)."""
    given = np.zeros(requests, dtype=np.int64)
    for (request, _), count in rows.items():
        given[request] += count
    return given


def rows_array(rows: RowCounts) -> IntArray:
    """Return rows of request, host and count as a sorted array, (P, 3)."""
    return np.array([(*row, count) for row, count in sorted(rows.items())], dtype=np.int64).reshape(
        -1, 3
    )
