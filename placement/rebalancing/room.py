"""Room: admit a request by moving the fewest gibibytes."""

from __future__ import annotations

import dataclasses
import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from placement.model.arrays import BoolArray, FloatArray, IntArray
from placement.model.budget import Budget
from placement.model.reasons import reason_never_placeable
from placement.model.snapshot import Reason
from placement.rebalancing.destination_search import SearchLimits, find_destinations
from placement.rebalancing.destinations import DestinationCriterion, Destinations
from placement.rebalancing.evacuate import plan_parameters
from placement.rebalancing.measures import measure_moves
from placement.rebalancing.model import (
    OBSTACLES,
    MovePlan,
    MoveReason,
    RebalanceLimits,
    RunningState,
    StayReason,
    UnplacedVms,
)
from placement.rebalancing.placement_state import PlacementState
from placement.rebalancing.units import MoveUnit, UnitBuilder
from placement.rebalancing.waves import UnitDestination, order_in_waves

#: Sets of VMs that are looked at on one host, the cheapest first.
_MAX_SETS: Final = 300
#: Hosts on which sets are looked at for one VM.
_MAX_HOSTS: Final = 200


def plan_room(
    running: RunningState,
    request: int,
    *,
    count: int | None = None,
    limits: RebalanceLimits | None = None,
    search: SearchLimits | None = None,
    seed: int = 0,
    budget_units: int | None = None,
) -> MovePlan:
    """Plan the moves with the least transfer that make room for a request.

    Parameters
    ----------
    request : int
        An index of Q: one that starves, a gang, or a type that fits nowhere.
    count : int, optional
        VMs to admit; by default all that wait.
    budget_units : int or None
        Hosts weighed for a VM and sets of VMs weighed for a host.

    Returns
    -------
    MovePlan
        ``admitted`` says where the VMs are to go; without moves if there is room already.
        With fewer than ``min_count`` nothing moves, and ``still_waits`` names the rest.
        Quotas are not checked: the round that places the request keeps them.

    Notes
    -----
    VM by VM: where one fits nothing moves. Else hosts are taken in the order of a bound
    on what must leave them, as if VMs could be cut into pieces, and of each the sets of
    VMs that are enough in the order of what they carry (A*), until the bound is above the
    best found. VMs that leave go to hosts with room for them: no third VM moves for
    them. For one VM that is the least, unless more than `_MAX_HOSTS` hosts or
    `_MAX_SETS` sets had to be looked at (``cut``); for several it is the least one
    after the other (derived).
    """
    limits, search = limits or RebalanceLimits(), search or SearchLimits()
    wanted = int(running.snapshot.count[request]) if count is None else count
    room = _RoomPlanner(running, request, limits, search, Budget(budget_units))
    missing = wanted - room.make_room(wanted)
    order = order_in_waves(running, room.destinations, limits)
    admitted = room.admitted_rows
    if order.left:  # without its moves the room is not there
        order, admitted, missing = order_in_waves(running, (), limits), (), wanted
    still_waits = [UnplacedVms(request=request, count=missing, reason=room.reason)]
    return MovePlan(
        policy="room",
        parameters=plan_parameters(search, budget_units, request=request, count=wanted),
        seed=seed,
        limits=limits,
        moves=order.moves,
        measures=measure_moves(running, order.moves, search.ranking),
        admitted=admitted,
        still_waits=tuple(still_waits if missing else ()),
        work=room.budget.spent,
        cut=room.cut or room.limited,
    )


def blocking_vms(running: RunningState, request: int) -> Mapping[str, int]:
    """Count the VMs on the request's possible hosts by the obstacle that keeps them there.

    Parameters
    ----------
    request : int
        An index of Q that no moves let in.

    Returns
    -------
    Mapping
        Values of `RebalanceObstacle`, of VMs that cannot move at all, and of `StayReason`: no other
        host that takes VMs is eligible, or large enough, or those that are have no room.
        For each VM alone: rules of groups are not looked at.
    """
    snapshot = running.snapshot
    large = (snapshot.capacity >= snapshot.demand[request]).all(axis=1)
    could = snapshot.eligible[request][snapshot.host_class] & running.receives & large
    found: Counter[str] = Counter()
    alike = np.stack([running.kind, running.host, running.obstacle], axis=1)[could[running.host]]
    rows, counts = np.unique(alike, axis=0, return_counts=True)
    for (kind, host, obstacle), count in zip(rows.tolist(), counts.tolist(), strict=True):
        if obstacle >= 0:
            found[OBSTACLES[obstacle].value] += count
            continue
        others = running.eligible[kind][snapshot.host_class] & running.receives
        others[host] = False
        fits = others & (snapshot.capacity >= running.demand[kind]).all(axis=1)
        if not others.any():
            why = StayReason.NO_ELIGIBLE_HOST
        else:
            why = StayReason.NO_ROOM if fits.any() else StayReason.NO_HOST_LARGE_ENOUGH
        found[why.value] += count
    return dict(sorted(found.items()))


class _RoomPlanner:
    """Makes room for the VMs of one request, VM by VM, with the least transfer."""

    def __init__(
        self,
        running: RunningState,
        request: int,
        limits: RebalanceLimits,
        search: SearchLimits,
        budget: Budget,
    ) -> None:
        snapshot = running.snapshot
        self.budget = budget
        self.cut = False
        self.limited = False  #: was a host or a set not looked at that might have been better?
        self.reason = Reason.NO_ROOM
        self._running = running
        self._request = request
        self._demand: IntArray = snapshot.demand[request]
        self._demanded = self._demand > 0
        self._where = PlacementState(running)
        self._search = dataclasses.replace(search, tries=min(search.tries, 6))
        self._by = {
            each: Destinations(self._where, each, search.ranking) for each in DestinationCriterion
        }
        self._moved: set[int] = set()
        by_host = np.argsort(running.host, kind="stable")
        ends = np.searchsorted(running.host[by_host], np.arange(len(running.receives) + 1))
        self._by_host = by_host, ends
        self._all_units = UnitBuilder(running, limits)
        self._on: dict[int, int] = {}
        self._open_to: BoolArray = (
            snapshot.eligible[request][snapshot.host_class] & running.receives
        )
        self._large: BoolArray = self._open_to & (snapshot.capacity >= self._demand).all(axis=1)
        self._open = self._large
        self._together = [
            group
            for group in running.groups
            if group.hard and not group.apart and request in group.requests
        ]
        #: VMs that the request must share a host with: they do not leave
        self._fixed = {vm for group in self._together for vm in group.vms}
        for group in self._together:
            homes = {int(running.host[vm]) for vm in group.vms} | set(group.hosts)
            if homes:
                self._open = self._open & np.isin(np.arange(len(self._open)), sorted(homes))

    @property
    def admitted_rows(self) -> tuple[tuple[int, int, int], ...]:
        """Return rows of request, host and VMs that now have room."""
        return tuple((self._request, host, self._on[host]) for host in sorted(self._on))

    @property
    def destinations(self) -> list[UnitDestination]:
        """Return the displaced units with their destinations."""
        where, running = self._where, self._running
        now = np.array(where.host, dtype=np.int64)
        moved = np.flatnonzero(now != running.host).tolist()
        units, _ = self._all_units.units_of(moved)
        return [
            UnitDestination(
                unit=unit, destination=where.host[unit.vms[0]], why=MoveReason.MAKES_ROOM
            )
            for unit in units
        ]

    def make_room(self, wanted: int) -> int:
        """Make room for ``wanted`` VMs of the request; return how many have room."""
        if not self._open.any():
            self.reason = self._permanent_reason()
            return 0
        if not self._demanded.any():
            self.reason = Reason.NOTHING_ASKED
            return 0
        done = 0
        while done < wanted and self._make_room_for_one():
            done += 1
        if done < int(self._running.snapshot.min_count[self._request]):
            self.reason = Reason.GANG_NOT_WHOLE if done else Reason.NO_ROOM
            for vm in np.flatnonzero(np.array(self._where.host) != self._running.host).tolist():
                self._where.move((vm,), int(self._running.host[vm]))
            self._on.clear()
            return 0
        return done

    def _permanent_reason(self) -> Reason:
        """Return why no host could hold a VM of the request, whatever moves."""
        if self._large.any():  # but not with the VMs of its group
            return Reason.AFFINITY
        if self._open_to.any():
            return Reason.NO_HOST_LARGE_ENOUGH
        never = reason_never_placeable(self._running.snapshot, self._request)
        return Reason.NO_ELIGIBLE_HOST if never is None else never

    def _make_room_for_one(self) -> bool:
        """Make room for one more VM with the least transfer; return False if that fails."""
        hosts = self._hosts_for_one()
        room = self._where.room[hosts][:, self._demanded]
        fits = hosts[(room >= self._demand[self._demanded]).all(axis=1)]
        if len(fits):
            self._admit_vm(self._tightest_host(fits))
            return True
        best: tuple[int, int, int] | None = None
        moves: list[tuple[MoveUnit, int]] = []
        for looked, (bound, host) in enumerate(self._hosts_by_bound(hosts)):
            if best is not None and bound > best[0]:
                break
            if looked == _MAX_HOSTS:
                self.limited = True
                break
            if self.cut:
                break
            found = self._cheapest_leaving(host, best[0] if best else None)
            if found is not None and (best is None or (*found[0], host) < best):
                best, moves = (*found[0], host), found[1]
        if best is None:
            return False
        for unit, destination in moves:
            self._where.move(unit.vms, destination)
            self._moved.update(unit.vms)
        self._admit_vm(best[2])
        return True

    def _spend_budget(self, units: int) -> bool:
        """Spend units of the budget; return False once it has cut the search."""
        self.cut |= not self.budget.spend(units)
        return not self.cut

    def _admit_vm(self, host: int) -> None:
        """Count one VM of the request on a host."""
        self._where.admit(self._request, host)
        self._on[host] = self._on.get(host, 0) + 1

    def _hosts_for_one(self) -> IntArray:
        """Return the hosts that groups and spreads leave open to one more VM of the request."""
        hosts = np.flatnonzero(self._open).tolist()
        if self._together and self._on and not self._fixed:
            hosts = [host for host in hosts if host in self._on]
        allowed = [host for host in hosts if self._where.admits(self._request, host)]
        return np.array(allowed, dtype=np.int64)

    def _tightest_host(self, hosts: IntArray) -> int:
        """Return the host that one more VM of the request leaves with the least room."""
        capacity = np.maximum(self._running.snapshot.capacity[hosts], 1)
        left = ((self._where.room[hosts] - self._demand) / capacity).sum(axis=1)
        return int(hosts[np.argmin(left)])

    def _hosts_by_bound(self, hosts: IntArray) -> Iterator[tuple[float, int]]:
        """Yield hosts with a lower bound on the transfer that room there costs, least first."""
        running, room = self._running, self._where.room
        number, width = room.shape
        now = np.array(self._where.host, dtype=np.int64)
        able = np.flatnonzero(running.movable)
        demand = running.demand[running.kind[able]]
        transfer = running.transfer_mib[able][:, None]
        rates: FloatArray = np.divide(
            transfer, demand, out=np.full(demand.shape, np.inf), where=demand > 0
        )
        minimum, maximum = (
            np.full((number, width), np.inf),
            np.zeros((number, width), dtype=np.int64),
        )
        np.minimum.at(minimum, now[able], rates)
        np.add.at(maximum, now[able], demand)
        lacks = np.maximum(self._demand - room, 0) * self._demanded
        enough = (maximum[hosts] >= lacks[hosts]).all(axis=1)
        hosts = hosts[enough]
        needs = lacks[hosts] > 0
        costs = np.where(needs, lacks[hosts] * np.where(needs, minimum[hosts], 0.0), 0.0)
        bound = costs.max(axis=1, initial=0.0)
        order = np.lexsort((hosts, bound))
        # A host gets a tighter bound when its turn comes, and waits until that bound is least.
        waiting: list[tuple[float, int]] = []
        for place in order.tolist():
            while waiting and waiting[0][0] <= bound[place]:
                yield heapq.heappop(waiting)
            if not self._spend_budget(1):
                return
            host = int(hosts[place])
            tighter = _transfer_bound(self._units_on(host), lacks[host])
            if tighter < np.inf:
                heapq.heappush(waiting, (tighter, host))
        while waiting:
            yield heapq.heappop(waiting)

    def _units_on(self, host: int) -> list[MoveUnit]:
        """Return the units that could leave a host to make room."""
        where = self._where
        by_host, ends = self._by_host
        at_first = by_host[ends[host] : ends[host + 1]].tolist()
        there = {*at_first, *self._moved} - self._fixed
        units, _ = self._all_units.units_of(vm for vm in sorted(there) if where.host[vm] == host)
        return [
            unit
            for unit in units
            if not self._fixed & set(unit.vms) and where.host[unit.vms[0]] == host
        ]

    def _cheapest_leaving(
        self, host: int, below: int | None
    ) -> tuple[tuple[int, int], list[tuple[MoveUnit, int]]] | None:
        """Return transfer and number of the cheapest VMs to displace from a host, with moves.

        ``below`` is the most that they may transfer.
        """
        units = self._units_on(host)
        lacks = np.maximum(self._demand - self._where.room[host], 0) * self._demanded
        for cost, chosen, exact in _covering_sets(units, lacks):
            if below is not None and cost > below:
                return None
            if not self._spend_budget(_MAX_SETS):
                return None
            self.limited |= not exact
            moves = self._destinations_for(host, [units[each] for each in chosen])
            if moves is not None:
                return (cost, sum(len(unit.vms) for unit, _ in moves)), moves
        return None

    def _destinations_for(
        self, host: int, units: Sequence[MoveUnit]
    ) -> list[tuple[MoveUnit, int]] | None:
        """Return destinations for the displaced units, or None if one has none."""
        where = self._where
        # The request takes its room before units look for destinations.
        if not where.admits(self._request, host):
            return None
        where.admit(self._request, host)
        places = find_destinations(
            where,
            units,
            rng=np.random.default_rng(0),
            budget=self.budget,
            search=self._search,
            by=self._by,
        )
        self.cut |= places.cut
        where.admit(self._request, host, -1)
        if len(places.hosts) < len(units):
            return None
        return [(units[number], to) for number, to in places.hosts.items()]


def _covering_sets(
    units: Sequence[MoveUnit], lacks: IntArray
) -> Iterator[tuple[int, tuple[int, ...], bool]]:
    """Yield sets of units whose leaving frees the missing room, (R,), least transfer first.

    Each with its transfer, and whether no unlisted set transfers less.

    A* over sets in order of index: what a set still lacks costs at least its largest
    part times the least that a unit carries for so much. Of units alike the first go
    first.
    """
    useful = [
        place for place, unit in enumerate(units) if (np.minimum(unit.demand, lacks) > 0).any()
    ]
    useful.sort(key=lambda place: (units[place].transfer_mib, units[place].key, place))
    if not useful:
        return
    demands = np.array([units[place].demand for place in useful])
    transfer = np.array([units[place].transfer_mib for place in useful])
    like_last = [False] + [
        units[one].key == units[two].key and units[one].transfer_mib == units[two].transfer_mib
        for one, two in pairwise(useful)
    ]
    rate = np.divide(
        transfer[:, None], demands, out=np.full(demands.shape, np.inf), where=demands > 0
    ).min(axis=0)

    def minimum(freed: IntArray) -> float:
        """Return a lower bound on the transfer that frees what a set still lacks."""
        missing = lacks - freed
        return float(max((missing[r] * rate[r] for r in np.flatnonzero(missing > 0)), default=0.0))

    start = np.zeros_like(lacks)
    heap: list[tuple[float, int, tuple[int, ...]]] = [(minimum(start), 0, ())]
    looked = 0
    if (demands.sum(axis=0) < lacks).any():
        return
    while heap and looked < _MAX_SETS:
        _, cost, chosen = heapq.heappop(heap)
        looked += 1
        freed = demands[list(chosen)].sum(axis=0) if chosen else start
        if (freed >= lacks).all():
            yield cost, tuple(useful[each] for each in chosen), True
            continue
        begin = chosen[-1] + 1 if chosen else 0
        for following in range(begin, len(useful)):
            if like_last[following] and following > begin:
                continue
            more = cost + int(transfer[following])
            bound = minimum(freed + demands[following])
            if bound < np.inf:
                heapq.heappush(heap, (more + bound, more, (*chosen, following)))
    if heap:
        # Too many sets: from all, those go back that carry most and are not needed.
        kept = list(range(len(useful)))
        freed = demands.sum(axis=0)
        for each in sorted(kept, key=lambda place: (-int(transfer[place]), place)):
            if (freed - demands[each] >= lacks).all():
                freed = freed - demands[each]
                kept.remove(each)
        yield int(transfer[kept].sum()), tuple(useful[each] for each in kept), False


def _transfer_bound(units: Sequence[MoveUnit], lacks: IntArray) -> float:
    """Return a lower bound on the transfer of units that free the missing room."""
    bound = 0.0
    for resource in np.flatnonzero(lacks).tolist():
        missing, cost = int(lacks[resource]), 0.0
        rates = sorted(
            (unit.transfer_mib / amount, amount)
            for unit in units
            if (amount := int(unit.demand[resource])) > 0
        )
        for rate, amount in rates:
            taken = min(amount, missing)
            missing, cost = missing - taken, cost + taken * rate
            if not missing:
                break
        bound = max(bound, cost if not missing else np.inf)
    return bound
