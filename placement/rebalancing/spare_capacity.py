"""Spare capacity: whether each failure domain's movable VMs find room on the others.

A domain is a host, a zone, or all hosts of a label. Most domains are answered at once:
of every kind of VM as many as any one of them has are placed together, and whose VMs
find such places outside itself needs no answer of its own. The rest is decided one by
one, as an evacuation would place them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.model.arrays import BoolArray, FloatArray, IntArray
from placement.model.budget import Budget
from placement.model.vm_kinds import vms_that_fit
from placement.rebalancing.destination_search import (
    SearchLimits,
    UnitDestinations,
    find_destinations,
)
from placement.rebalancing.destinations import DestinationCriterion, Destinations
from placement.rebalancing.evacuate import explain_stays
from placement.rebalancing.model import RebalanceLimits, RunningState, StayingVm
from placement.rebalancing.placement_state import PlacementState
from placement.rebalancing.units import MoveUnit, UnitBuilder

#: Halvings of the set of domains decided together, before each is decided alone.
_MAX_SPLITS: Final = 5
#: Times that domains whose own hosts were taken as destinations are decided again.
_MAX_RETRIES: Final = 3
#: Hosts that are tried as the destination of a group that keeps together, emptiest first.
_EMPTIEST: Final = 64
#: Hosts that are tried as destinations before all others.
_FIRST: Final = 1_000
#: Domains for which the VMs without room are listed.
_MAX_SHOWN: Final = 50
#: A failure is no move: no limit of moves holds.
_NO_LIMITS: Final = RebalanceLimits(per_source=2**31, per_destination=2**31, at_once=2**31)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SpareCapacity:
    """Whether the VMs of each of D failure domains find room elsewhere."""

    holds: BoolArray  #: (D,)
    known: BoolArray  #: (D,) False: the budget was spent before it was found to hold
    #: of the first domains that do not hold, the VMs without a destination, and what is missing
    lacking: dict[int, tuple[StayingVm, ...]]
    #: (H, R) what must stay free so that what holds goes on to hold; at most the room
    kept: IntArray
    work: int  #: hosts weighed for a VM
    cut: bool  #: the budget was spent


def spare_capacity(
    running: RunningState,
    domain: IntArray,
    *,
    search: SearchLimits | None = None,
    budget_units: int | None = None,
    only: Sequence[int] | None = None,
    max_rows: int = _MAX_SHOWN,
) -> SpareCapacity:
    """Return which failure domains could fail without their movable VMs lacking room.

    Parameters
    ----------
    domain : ndarray of int64, shape (H,)
        The failure domain of each host, -1 for none: ``arange(H)`` where hosts fail one
        by one, else zones or labels, numbered from 0.
    only : sequence of int, optional
        The domains to decide; the others are reported as holding.
    max_rows : int
        The most domains that do not hold to list in ``lacking``.

    Notes
    -----
    Hosts of a domain fail together, and one domain at a time, so that what is kept
    for one is kept for all: ``kept`` is the largest amount that any of them needs on
    each host.
    """
    spare_demand = _SpareDemand(
        running, domain, search or SearchLimits(tries=5, pairs=2_000), budget_units, max_rows
    )
    domains = range(spare_demand.number) if only is None else only
    spare_demand.decide(np.array(sorted(domains), dtype=np.int64))
    return SpareCapacity(
        holds=spare_demand.holds,
        known=spare_demand.known,
        lacking=spare_demand.lacking,
        kept=spare_demand.kept,
        work=spare_demand.budget.spent,
        cut=spare_demand.cut,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _SpareRoom:
    """Spare slots outside failing hosts: for each kind of VM, hosts and VMs that each takes."""

    hosts: list[IntArray]
    counts: list[IntArray]
    taken: IntArray  #: (H, R) what all places together take


class _SpareDemand:
    """Decides for failure domains whether their VMs would find room elsewhere."""

    def __init__(
        self,
        running: RunningState,
        domain: IntArray,
        search: SearchLimits,
        budget_units: int | None,
        max_rows: int,
    ) -> None:
        self.number = int(domain.max(initial=-1)) + 1
        self.holds = np.ones(self.number, dtype=np.bool_)
        self.known = np.ones(self.number, dtype=np.bool_)
        self.lacking: dict[int, tuple[StayingVm, ...]] = {}
        self.kept = np.zeros_like(running.over)
        self.budget = Budget(budget_units)
        self.cut = False
        self._running = running
        self._domain = domain
        self._search = search
        self._max_rows = max_rows
        kinds = len(running.demand)
        self._of_vm = domain[running.host]
        displaced = (self._of_vm >= 0) & running.movable
        pairs = self._of_vm[displaced] * kinds + running.kind[displaced]
        #: (D, K) VMs of each kind in each domain
        self._vms = np.bincount(pairs, minlength=self.number * kinds).reshape(self.number, kinds)
        self._room = running.room
        self._open: BoolArray = running.eligible[:, running.snapshot.host_class] & running.receives
        #: kinds, the largest first
        capacity = np.maximum(running.snapshot.capacity.max(axis=0, initial=0), 1)
        self._largest_first = np.argsort(
            -(running.demand / capacity).max(axis=1, initial=0.0), kind="stable"
        ).tolist()
        parts = self._room / np.maximum(running.snapshot.capacity, 1)
        #: the emptiest hosts, for groups that keep together
        self._emptiest: list[int] = np.argsort(-parts.min(axis=1), kind="stable")[
            :_EMPTIEST
        ].tolist()
        self._could: BoolArray | None = None
        self._all_units = UnitBuilder(running, _NO_LIMITS)
        self._where: PlacementState | None = None
        self._by: dict[DestinationCriterion, Destinations] | None = None
        self._ruled = self._ruled_vms()

    def _ruled_vms(self) -> dict[int, list[int]]:
        """Return the VMs of each failure domain that groups or spreads bind."""
        running = self._running
        members = {vm for group in running.groups if group.hard for vm in group.vms}
        members.update(vm for spread in running.spreads for vm in spread.vms)
        ruled: dict[int, list[int]] = {}
        movable = running.movable
        for vm in sorted(members):
            if self._of_vm[vm] >= 0 and movable[vm]:
                ruled.setdefault(int(self._of_vm[vm]), []).append(vm)
        return ruled

    def decide(self, domains: IntArray) -> None:
        """Decide for some failure domains, (X,), whether their VMs find room elsewhere."""
        domains = domains[self._vms[domains].any(axis=1)]
        alone = sorted(self._decide_together(domains, splits=_MAX_SPLITS, again=_MAX_RETRIES))
        for each in alone:
            self._decide_alone(each, dataclasses.replace(self._search, partly=False))
        # Missing room is listed for a few domains: its search takes longest.
        for each in domains[~self.holds[domains]].tolist()[: self._max_rows]:
            if not self.cut:
                self._explain_shortage(each)

    def _could_hold(self) -> BoolArray:
        """Return the failure domains that might hold, (D,), as each kind alone finds room."""
        if self._could is not None:
            return self._could
        inside = self._domain >= 0
        self._could = could = np.ones(self.number, dtype=np.bool_)
        for kind in np.flatnonzero(self._vms.any(axis=0)).tolist():
            demand = self._running.demand[kind]
            fits = _vms_per_host(self._room, demand) * self._open[kind]
            self.budget.spend(len(fits))
            # In a domain of many hosts sums may be large, but never beyond what fits in all.
            own = np.zeros(self.number, dtype=np.int64)
            np.add.at(own, self._domain[inside], fits[inside])
            could &= self._vms[:, kind] <= int(fits.sum()) - own
        return could

    def _decide_together(self, domains: IntArray, *, splits: int, again: int) -> Iterator[int]:
        """Decide failure domains together; yield those that must be decided alone."""
        if not len(domains):
            return
        if len(domains) == 1 and (splits == 0 or again == 0):
            yield int(domains[0])
            return
        outside = np.ones(len(self._room), dtype=np.bool_)
        if again < _MAX_RETRIES or len(domains) == 1:
            outside = ~np.isin(self._domain, domains)
        slots = self._spare_slots(self._vms[domains].max(axis=0), outside)
        if slots is None:
            could = self._could_hold()[domains]
            self.holds[domains[~could]] = False
            domains = domains[could]
            if splits == 0 or len(domains) == 1:
                yield from domains.tolist()
                return
            size = (self._vms[domains] * self._running.demand[:, 0]).sum(axis=1)
            by_size = domains[np.argsort(size, kind="stable")]
            for half in np.array_split(by_size, 2):
                yield from self._decide_together(half, splits=splits - 1, again=again)
            return
        self.kept = np.maximum(self.kept, slots.taken)
        enough = self._have_enough_slots(domains, slots)
        ruled = [each for each in domains[enough].tolist() if each in self._ruled]
        stuck = [each for each in ruled if not self._rules_allow(each, slots)]
        yield from stuck
        # Domains whose own hosts were taken as places are decided without these.
        rest = domains[~enough]
        if again:
            yield from self._decide_together(rest, splits=splits, again=again - 1)
        else:
            yield from rest.tolist()

    def _spare_slots(self, wanted: IntArray, outside: BoolArray) -> _SpareRoom | None:
        """Return spare slots for VMs of each kind, (K,), on these hosts; None if some lack one.

        The largest kind first, onto the emptiest hosts, so that few hosts keep much; then
        once more onto the fullest.
        """
        running = self._running
        capacity = np.maximum(running.snapshot.capacity, 1)
        left: FloatArray = (self._room / capacity).min(axis=1)
        for order in (np.argsort(-left, kind="stable"), np.argsort(left, kind="stable")):
            room = self._room.copy()
            hosts: list[IntArray] = [np.zeros(0, dtype=np.int64)] * len(wanted)
            counts = list(hosts)
            for kind in self._largest_first:
                if not wanted[kind]:
                    continue
                able = order[(self._open[kind] & outside)[order]]
                fits = _vms_per_host(room[able[:_FIRST]], running.demand[kind])
                if len(able) > _FIRST and int(fits.sum()) < wanted[kind]:
                    fits = _vms_per_host(room[able], running.demand[kind])
                able = able[: len(fits)]
                self.budget.spend(len(able))
                before = np.cumsum(fits) - fits
                take = np.clip(wanted[kind] - before, 0, fits)
                used = take > 0
                hosts[kind], counts[kind] = able[used], take[used]
                room[hosts[kind]] -= counts[kind][:, None] * running.demand[kind]
                if int(counts[kind].sum()) < wanted[kind]:
                    break
            else:
                return _SpareRoom(hosts, counts, self._room - room)
        return None

    def _have_enough_slots(self, domains: IntArray, slots: _SpareRoom) -> BoolArray:
        """Return whether each failure domain has enough spare slots outside itself, (X,)."""
        outside = np.zeros((self.number, len(slots.hosts)), dtype=np.int64)
        for kind, (hosts, counts) in enumerate(zip(slots.hosts, slots.counts, strict=True)):
            outside[:, kind] = counts.sum()
            inside = self._domain[hosts] >= 0
            np.subtract.at(outside[:, kind], self._domain[hosts[inside]], counts[inside])
        enough: BoolArray = np.all(self._vms[domains] <= outside[domains], axis=1)
        return enough

    def _rules_allow(self, domain: int, slots: _SpareRoom) -> bool:
        """Return whether VMs bound by groups and spreads find hosts, one unit after the other.

        A VM takes one of the slots of its kind; a group that keeps together takes an
        emptiest host in addition to the slots, which is then kept as well.
        """
        where, running = self._shared_state(), self._running
        units, stays = self._all_units.units_of(self._ruled[domain])
        if stays or any(unit.hosts is not None for unit in units):
            return False
        left: dict[int, dict[int, int]] = {}
        reserved_on: dict[int, IntArray] = {}
        done: list[MoveUnit] = []
        for unit in units:
            if len(unit.vms) > 1:
                host = self._host_for_group(unit, domain, slots, reserved_on)
                if host is not None:
                    reserved_on[host] = reserved_on.get(host, 0) + unit.demand
            else:
                kind = int(running.kind[unit.vms[0]])
                if kind not in left:
                    hosts, counts = slots.hosts[kind], slots.counts[kind]
                    left[kind] = dict(zip(hosts.tolist(), counts.tolist(), strict=True))
                host = self._host_among(left[kind], unit, domain)
                if host is not None:
                    left[kind][host] -= 1
                    if not left[kind][host]:
                        del left[kind][host]
            if host is None or self.cut:
                break
            where.move(unit.vms, host)
            done.append(unit)
        for unit in reversed(done):
            where.move(unit.vms, int(running.host[unit.vms[0]]))
        if len(done) < len(units):
            return False
        for host, amounts in reserved_on.items():
            self.kept[host] = np.maximum(self.kept[host], slots.taken[host] + amounts)
        return True

    def _host_among(self, hosts: Mapping[int, int], unit: MoveUnit, domain: int) -> int | None:
        """Return the first host outside a failing domain that a unit's rules allow, or None."""
        where = self._shared_state()
        for host in hosts:
            if not self.budget.spend(1):
                self.cut = True
                return None
            if self._domain[host] != domain and where.allows(unit.vms, host):
                return host
        return None

    def _host_for_group(
        self, unit: MoveUnit, domain: int, slots: _SpareRoom, reserved_on: Mapping[int, IntArray]
    ) -> int | None:
        """Return an emptiest host that takes a unit in addition to all spare slots, or None."""
        open_to = self._shared_state().open_to(unit.eligible)
        demanded = unit.demand > 0
        for host in self._emptiest:
            if not self.budget.spend(1):
                self.cut = True
                return None
            room = self._room[host] - slots.taken[host] - reserved_on.get(host, 0)
            if (
                open_to[host]
                and self._domain[host] != domain
                and (room[demanded] >= unit.demand[demanded]).all()
                and self._shared_state().allows(unit.vms, host)
            ):
                return host
        return None

    def _shared_state(self) -> PlacementState:
        """Return the placement state of the running VMs, made at the first call."""
        if self._where is None:
            self._where = PlacementState(self._running)
        return self._where

    def _decide_alone(self, domain: int, search: SearchLimits) -> None:
        """Place the VMs of one failing domain as an evacuation would."""
        if self.cut:
            self.holds[domain] = self.known[domain] = False
            return
        _, units, stays, places = self._find_evacuation(domain, search)
        self.cut |= places.cut
        if stays or len(places.hosts) < len(units):
            self.holds[domain] = False
            self.known[domain] = bool(stays) or not places.cut
            return
        taken = np.zeros_like(self.kept)
        for number, host in places.hosts.items():
            taken[host] += units[number].demand
        self.kept = np.maximum(self.kept, taken)

    def _explain_shortage(self, domain: int) -> None:
        """Record which VMs of a failing domain lack room, and how much."""
        where, units, stays, places = self._find_evacuation(domain, self._search)
        self.cut |= places.cut
        lacking = [*stays, *explain_stays(where, units, places)]
        self.lacking[domain] = tuple(sorted(lacking, key=lambda each: each.vm))

    def _find_evacuation(
        self, domain: int, search: SearchLimits
    ) -> tuple[PlacementState, list[MoveUnit], list[StayingVm], UnitDestinations]:
        """Find destinations for the VMs of a failing domain on all other hosts."""
        hosts = np.flatnonzero(self._domain == domain)
        running, where = self._running, self._shared_state()
        if len(hosts) > 1:
            # The hosts of a domain must not take each other's VMs.
            running = running.with_closed_hosts(hosts)
            where, by = PlacementState(running), None
        else:
            if self._by is None:
                self._by = {each: Destinations(where, each) for each in DestinationCriterion}
            by = self._by
        movable = running.vms_on(hosts)
        movable = movable[running.movable[movable]]
        units, stays = self._all_units.units_of(movable.tolist())
        places = find_destinations(
            where, units, rng=np.random.default_rng(0), budget=self.budget, search=search, by=by
        )
        return where, units, stays, places


def _vms_per_host(room: IntArray, demand: IntArray) -> IntArray:
    """Return how many VMs of a demand fit on each host, (X,); many if it is nothing."""
    if not demand.any():
        return np.full(len(room), 2**31, dtype=np.int64)
    return np.maximum(vms_that_fit(room, demand), 0)
