"""Fairness over time: reserve hosts for requests that starve.

A large VM never fits where small ones refill every gap. Once its request has
waited too long below its tenant's fair share (`placement.constraints.starving_requests`), the hosts
that miss least of its room take no other VMs: what ends there is not refilled,
so the room only grows until the VM fits. A gang, which rarely finds all of its room in one slot,
waits only a slot if its tenant is due it. Nothing is remembered between rounds;
the hosts that miss least are chosen again, and miss less each time.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.constraints.starving_requests import (
    StarvationPatience,
    due_gangs,
    starving_requests,
    waiting_levels,
)
from placement.fairness.levels import is_poorer
from placement.model.arrays import BoolArray, FloatArray, IntArray
from placement.model.budget import Budget
from placement.model.reasons import hosts_open_to, needed_at_once, never_placeable_reasons
from placement.model.snapshot import Allocation, LeftOut, Policy, Reason, Snapshot
from placement.model.vm_kinds import total_vms_that_fit, vm_kinds, vms_that_fit
from placement.packing.overload import room_below_threshold

#: Gangs that hosts are held for in one round: each is a kind of VM of its own to
#: the policy, whose work grows with them.
_MAX_GANGS: Final = 16


class StarvationReserve:
    """Wrap a policy to reserve hosts for requests that starve under it.

    Parameters
    ----------
    policy : Policy
        Decides everything else. It sees reserved hosts as a host class of their own,
        open only to the requests that they are reserved for.
    patience : StarvationPatience
    """

    def __init__(self, policy: Policy, patience: StarvationPatience) -> None:
        self.policy = policy
        self.patience = patience

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Reserve hosts for starving requests, then let the policy decide.

        If hosts are reserved, ``details["holding"]`` has rows of request and host.
        """
        rows = hosts_to_reserve(snapshot, self.patience)
        if not rows:
            return self.policy.place(snapshot, rng, budget)
        closed = reserve_for_holders(snapshot, rows)
        allocation = self.policy.place(closed, rng, budget)
        room = room_below_threshold(
            snapshot.after_placing(allocation.placed), self.patience.overload
        )
        return dataclasses.replace(
            allocation,
            left_out=_left_out_with_reasons(snapshot, closed, room, allocation),
            details={**allocation.details, "holding": [list(row) for row in rows]},
        )


def hosts_to_reserve(
    snapshot: Snapshot, patience: StarvationPatience
) -> tuple[tuple[int, int], ...]:
    """Return the hosts to reserve for starving requests, as rows (request, host).

    For each request that starves, the one that waits longest first: the hosts
    that miss least of room for one VM, or for a whole gang, and are large
    enough; no host for two requests, at most ``held_part`` of the open hosts, for at
    most 16 gangs. Where the first is a gang that needs more, it may have a tenth of
    them, or four of a small site, later half, and in the end all
    (`StarvationPatience.max_hosts_for_first`). A gang that needs more hosts than may still be held
    has none held. Gangs that their tenants are due (`due_gangs`) come next, on a tenth of the open
    hosts or four of a small site, with those of the first.

    Notes
    -----
    What a host misses is the sum over resources of ``max(0, demand - room)``,
    in parts of the demand. No other VM is placed on a held host, so what the
    chosen hosts miss in all never grows from one round to the next (derived).
    """
    starving, fair = starving_requests(snapshot, patience.patience)
    due, fair = due_gangs(snapshot, patience, fair)
    if not len(starving) and not len(due):
        return ()
    reservation = _Reservation(snapshot, patience, fair)
    left = patience.max_hosts(reservation.open_hosts)
    for request in starving.tolist():
        if left <= 0:
            break
        level = int(reservation.levels[request])
        most = (
            left
            if reservation.rows
            else patience.max_hosts_for_first(reservation.open_hosts, level)
        )
        left -= reservation.reserve(request, level, most)
    left = patience.max_hosts_for_gangs(reservation.open_hosts) - len(reservation.rows)
    reservation.without_hosts.clear()  # more hosts are for gangs
    for request in due.tolist():
        if left <= 0:
            break
        if request not in reservation.served:
            left -= reservation.reserve(request, 1, left)
    return tuple(reservation.rows)


class _Reservation:
    """The hosts reserved so far in one round.

    Parameters
    ----------
    snapshot : Snapshot
    patience : StarvationPatience
    fair : ndarray of float64, shape (N,)
        Fair share of each tenant.
    """

    def __init__(self, snapshot: Snapshot, patience: StarvationPatience, fair: FloatArray) -> None:
        self._snapshot = snapshot
        self._fair = fair
        self._room = room_below_threshold(snapshot, patience.overload)
        self._empty = room_below_threshold(
            dataclasses.replace(snapshot, free=snapshot.capacity), patience.overload
        )
        open_classes: BoolArray = np.asarray(snapshot.eligible.any(axis=0))
        self.open_hosts = int(open_classes[snapshot.host_class].sum())
        self.levels = waiting_levels(snapshot.age, patience.patience)
        self.rows: list[tuple[int, int]] = []
        self.served: set[int] = set()
        self._held = snapshot.held.copy()
        self._taken = np.zeros(len(self._room), dtype=np.bool_)
        self._pool = np.where(snapshot.pool > 0, snapshot.pool, np.inf)
        self._gangs = 0
        self._of_request = vm_kinds(snapshot).of_request.tolist()
        self._candidates: dict[tuple[int, int], _ReservedHosts] = {}
        #: kinds, and VMs at once, for which too few hosts are left
        self.without_hosts: set[tuple[int, int]] = set()

    def reserve(self, request: int, waited: int, max_hosts: int) -> int:
        """Reserve at most ``max_hosts`` hosts for a request; return how many are reserved.

        ``waited`` is the request's waiting level. None are reserved if the request is not due
        any more, or if the hosts would be too few.
        """
        snapshot = self._snapshot
        tenant, demand = snapshot.tenant[request], snapshot.demand[request]
        needed = needed_at_once(snapshot, request, int(snapshot.count[request]))
        kind = self._of_request[request]
        if (kind, needed) in self.without_hosts or (needed > 1 and self._gangs == _MAX_GANGS):
            return 0
        if not is_poorer((self._held[tenant] / self._pool).max(), self._fair[tenant]):
            return 0
        chosen = None
        for level in sorted({waited, 1}, reverse=True):
            if (kind, level) not in self._candidates:
                hosts = _hosts_of_level(np.flatnonzero(hosts_open_to(snapshot, request)), level)
                self._candidates[kind, level] = _ReservedHosts(
                    hosts, self._room[hosts], self._empty[hosts], demand
                )
            chosen = self._candidates[kind, level].hosts_lacking_least(
                self._taken, needed, max_hosts
            )
            if chosen is not None:
                break
        if chosen is None:
            self.without_hosts.add((kind, needed))
            return 0
        self.rows += [(request, host) for host in sorted(chosen)]
        self.served.add(request)
        self._taken[chosen] = True
        self._held[tenant] += needed * demand
        self._gangs += needed > 1
        return len(chosen)


def reserve_for_holders(snapshot: Snapshot, rows: Sequence[tuple[int, int]]) -> Snapshot:
    """Return the snapshot with reserved hosts open only to the requests they are reserved for.

    Requests that are alike share their hosts, so that they stay one kind of VM;
    a gang shares with no other request.
    """
    sharing: dict[tuple[int, bool], int] = {}
    classes = snapshot.eligible.shape[1]
    host_class, of_request = snapshot.host_class.copy(), vm_kinds(snapshot).of_request.tolist()
    own_class = {}
    for request, host in rows:
        gang = needed_at_once(snapshot, request, int(snapshot.count[request])) > 1
        owner = (request, True) if gang else (of_request[request], False)
        own_class[request] = sharing.setdefault(owner, len(sharing))
        host_class[host] = classes + own_class[request]
    own = np.zeros((len(snapshot.count), len(sharing)), dtype=np.bool_)
    own[list(own_class), list(own_class.values())] = True
    return dataclasses.replace(
        snapshot, host_class=host_class, eligible=np.concatenate([snapshot.eligible, own], axis=1)
    )


def _hosts_of_level(hosts: IntArray, level: int) -> IntArray:
    """Return the hosts that a starving request's waiting level considers first; at level 1, all."""
    looked_at: IntArray = hosts[hosts % level == level - 1]
    return looked_at


class _ReservedHosts:
    """Candidate hosts to reserve for a starving request of one kind of VM, in order.

    Hosts that lack least room for one VM come first. Ties go to the host with least
    room, then to the lowest index.

    Parameters
    ----------
    hosts : ndarray of int64, shape (L,)
        Hosts that are open to the kind.
    room, empty : ndarray of int64, shape (L, R)
        Room of each host now, and room of the empty host.
    demand : ndarray of int64, shape (R,)
        Of one VM.
    """

    def __init__(self, hosts: IntArray, room: IntArray, empty: IntArray, demand: IntArray) -> None:
        holds = vms_that_fit(empty, demand)
        demanded = demand > 0
        in_vms = room[:, demanded] / demand[demanded]
        missing = np.maximum(1 - in_vms, 0.0).sum(axis=1)
        order = np.lexsort((hosts, in_vms.sum(axis=1), missing))
        order = order[holds[order] > 0]
        self._hosts = hosts[order]
        self._holds = holds[order]
        self._in_vms = in_vms[order]
        self._missing = missing[order]
        self._next = 0

    def hosts_lacking_least(
        self, taken: BoolArray, needed: int, max_hosts: int
    ) -> list[int] | None:
        """Return at most ``max_hosts`` hosts that lack least room for the needed VMs.

        Returns None if they are too few. ``taken``, shape (H,), marks hosts reserved for others.
        """
        while self._next < len(self._hosts) and taken[self._hosts[self._next]]:
            self._next += 1
        if self._next == len(self._hosts):
            return None
        if needed == 1:
            return [int(self._hosts[self._next])]
        able = self._next + np.flatnonzero(~taken[self._hosts[self._next :]])
        chosen = self._cheapest_hosts(able, needed)
        if chosen is not None and len(chosen) > max_hosts:
            # Fewer hosts that hold more each; which these are does not change with time.
            largest = able[np.lexsort((self._hosts[able], -self._holds[able]))[:max_hosts]]
            chosen = self._cheapest_hosts(np.sort(largest), needed)
        return chosen

    def _cheapest_hosts(self, able: IntArray, needed: int) -> list[int] | None:
        """Return hosts to reserve for a gang; each VM takes the host that lacks least."""
        if int(np.minimum(self._holds[able], needed).sum()) < needed:
            return None
        chosen: dict[int, None] = {}
        more: list[tuple[float, int, int]] = []  # of hosts that are chosen: cost, place, VMs
        fresh = iter(able.tolist())
        place = next(fresh, None)
        for _ in range(needed):
            if more and (place is None or more[0][0] <= self._missing[place]):
                _, at, vms = heapq.heappop(more)
            else:
                assert place is not None  # noqa: S101 - together they hold enough
                at, vms = place, 1
                chosen[int(self._hosts[at])] = None
                place = next(fresh, None)
            if vms < self._holds[at]:
                before, after = (
                    float(np.maximum(count - self._in_vms[at], 0.0).sum())
                    for count in (vms, vms + 1)
                )
                heapq.heappush(more, (after - before, at, vms + 1))
        return list(chosen)


@dataclass(frozen=True, slots=True)
class _RequestRoom:
    """How many VMs of one kind still fit on open hosts, and on hosts reserved for others."""

    own: int
    held: int


def _left_out_with_reasons(
    snapshot: Snapshot, closed: Snapshot, room: IntArray, allocation: Allocation
) -> tuple[LeftOut, ...]:
    """Return the unplaced VMs with reasons, `HELD_BACK` where reserved hosts have the room."""
    missing = np.zeros(len(snapshot.count), dtype=np.int64)
    reasons: dict[int, Reason] = {}
    for left in allocation.left_out:
        missing[left.request] += left.count
        reasons.setdefault(left.request, left.reason)
    never = never_placeable_reasons(snapshot, np.flatnonzero(missing).astype(np.int64))
    of_request, seen = vm_kinds(closed).of_request.tolist(), dict[int, _RequestRoom]()
    parts: list[LeftOut] = []
    for request, reason in reasons.items():
        count = int(missing[request])
        if request in never:
            parts.append(LeftOut(request=request, count=count, reason=never[request]))
            continue
        kind = of_request[request]
        if kind not in seen:
            own = hosts_open_to(closed, request)
            kept_from = hosts_open_to(snapshot, request) & ~own
            seen[kind] = _RequestRoom(
                own=total_vms_that_fit(room[own], snapshot.demand[request]),
                held=total_vms_that_fit(room[kept_from], snapshot.demand[request]),
            )
        fit, needed = seen[kind], needed_at_once(snapshot, request, count)
        back = 0
        if fit.held and fit.own + fit.held >= needed:
            back = min(count, fit.held if needed == 1 else fit.own + fit.held)
            parts.append(LeftOut(request=request, count=back, reason=Reason.HELD_BACK))
        if count > back:
            # To the policy, one whose hosts are all held from it has none.
            closed_out = reason in (Reason.NO_ELIGIBLE_HOST, Reason.NO_HOST_LARGE_ENOUGH)
            rest = Reason.NO_ROOM if closed_out else reason
            parts.append(LeftOut(request=request, count=count - back, reason=rest))
    return tuple(parts)
