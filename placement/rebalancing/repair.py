"""Repair: move VMs that break a hard rule, and VMs of hosts over their capacity."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from placement.model.arrays import IntArray
from placement.model.budget import Budget
from placement.rebalancing.destination_search import SearchLimits
from placement.rebalancing.destinations import DestinationCriterion, Destinations
from placement.rebalancing.evacuate import plan_parameters
from placement.rebalancing.measures import measure_moves
from placement.rebalancing.model import (
    MovePlan,
    MoveReason,
    RebalanceLimits,
    RunningState,
    StayingVm,
    StayReason,
)
from placement.rebalancing.placement_state import PlacementState
from placement.rebalancing.stay_reasons import StayExplainer
from placement.rebalancing.units import MoveUnit, UnitBuilder
from placement.rebalancing.waves import UnitDestination, order_in_waves


def repair(
    running: RunningState,
    *,
    limits: RebalanceLimits | None = None,
    search: SearchLimits | None = None,
    seed: int = 0,
    budget_units: int | None = None,
) -> MovePlan:
    """Plan the moves that bring hosts within capacity and restore hard rules.

    A host over its capacity loses one VM if one is enough: the one with the least transfer.
    Otherwise it loses the VMs with the least transfer for the room that they free. Of VMs that
    must keep apart, the one with the largest transfer stays. A group that must keep together
    gathers on the host that has most of its transfer.

    Parameters
    ----------
    budget_units : int or None
        The most hosts that are weighed as destinations; None: no limit.

    Returns
    -------
    MovePlan
        Without moves if no rule is broken and no host is over its capacity. ``stays`` has the VMs
        that should move but have no destination. The seed changes nothing; the plan records it.
    """
    limits, search = limits or RebalanceLimits(), search or SearchLimits()
    repairing = _RepairPlanner(running, limits, search, Budget(budget_units))
    repairing.run()
    order = order_in_waves(running, repairing.destinations, limits)
    stays = {each.vm: each for each in repairing.stays}
    for each in order.left:
        stays |= {vm: StayingVm(vm=vm, why=StayReason.NO_ORDER) for vm in each.unit.vms}
    moved = {move.vm for move in order.moves}
    return MovePlan(
        policy="repair",
        parameters=plan_parameters(search, budget_units),
        seed=seed,
        limits=limits,
        moves=order.moves,
        measures=measure_moves(running, order.moves, search.ranking),
        stays=tuple(stays[vm] for vm in sorted(stays) if vm not in moved),
        work=repairing.budget.spent,
        cut=repairing.cut,
    )


def misplaced_vms(where: PlacementState) -> dict[int, set[int]]:
    """Return the VMs that break a hard rule where they are, with the zones they must leave.

    Groups that must keep together are not checked here. Of several that break one together those
    that may stay are left out: first VMs that cannot move, then those with the largest transfer.
    """
    running = where.running
    host = np.array(where.host, dtype=np.int64)
    at = running.snapshot.host_class[host]
    found: dict[int, set[int]] = {
        vm: set() for vm in np.flatnonzero(~running.eligible[running.kind, at]).tolist()
    }
    for group in running.groups:
        if group.hard and group.apart:
            for vm in _vms_too_close(where, group.vms, group.hosts):
                found.setdefault(vm, set())
    for spread in running.spreads:
        for vm in _surplus_in_zones(where, spread.vms, spread.maximum, spread.others):
            found.setdefault(vm, set()).add(int(running.zones[where.host[vm]]))
    return found


def _order_of_staying(running: RunningState, vms: Sequence[int]) -> list[int]:
    """Return VMs of a broken rule in the order in which they may stay.

    VMs that cannot move come first, then those with the largest transfer.
    """
    return sorted(vms, key=lambda vm: (bool(running.movable[vm]), -running.transfer_mib[vm], vm))


def _vms_by_host(where: PlacementState, vms: Sequence[int]) -> dict[int, list[int]]:
    """Return the VMs by their present host."""
    on: dict[int, list[int]] = {}
    for vm in vms:
        on.setdefault(where.host[vm], []).append(vm)
    return on


def _vms_too_close(
    where: PlacementState, vms: Sequence[int], hosts: Sequence[int]
) -> Iterator[int]:
    """Yield the VMs that must leave so that an anti-affinity group is kept again."""
    for host, there in sorted(_vms_by_host(where, vms).items()):
        yield from _order_of_staying(where.running, there)[0 if host in hosts else 1 :]


def _surplus_in_zones(
    where: PlacementState, vms: Sequence[int], max_in_zone: int, others: Sequence[int]
) -> Iterator[int]:
    """Yield the VMs that must leave their zone so that a spread is kept again."""
    zones = where.running.zones
    in_zone: dict[int, list[int]] = {}
    for vm in vms:
        in_zone.setdefault(int(zones[where.host[vm]]), []).append(vm)
    for zone, there in sorted(in_zone.items()):
        stay = 0 if zone < 0 else max(0, max_in_zone - (others[zone] if others else 0))
        yield from _order_of_staying(where.running, there)[stay:]


class _RepairPlanner:
    """Plans repairs: hosts over capacity first, then groups, then other broken rules."""

    def __init__(
        self, running: RunningState, limits: RebalanceLimits, search: SearchLimits, budget: Budget
    ) -> None:
        self.budget = budget
        self.cut = False
        self.stays: list[StayingVm] = []
        self._why: dict[tuple[int, ...], MoveReason] = {}
        self._units: dict[tuple[int, ...], MoveUnit] = {}
        self._running = running
        self._all_units = UnitBuilder(running, limits)
        self._where = PlacementState(running)
        self._by = [
            Destinations(self._where, choice, search.ranking) for choice in DestinationCriterion
        ]
        self._explaining: list[MoveUnit] = []

    @property
    def destinations(self) -> list[UnitDestination]:
        """Return the moved units with their destinations and reasons."""
        return [
            UnitDestination(unit=unit, destination=self._where.host[vms[0]], why=self._why[vms])
            for vms, unit in self._units.items()
        ]

    def run(self) -> None:
        """Unload hosts, gather groups, and move every other VM that breaks a hard rule."""
        for host in np.flatnonzero((self._where.room < 0).any(axis=1)).tolist():
            self._unload_host(host)
        for number, group in enumerate(self._running.groups):
            if group.hard and not group.apart:
                self._gather_group(number)
        tried: set[int] = set()
        for vm, zones in misplaced_vms(self._where).items():
            if vm in tried:
                continue
            # Another host of a zone that is too full would repair nothing.
            leaves = np.isin(self._running.zones, list(zones)) if zones else np.zeros(0)
            without = frozenset(np.flatnonzero(leaves).tolist())
            units, stays = self._all_units.units_of([vm])
            self.stays += stays
            for unit in units:
                tried.update(unit.vms)
                if not self._has_moved(unit) and not self._move_unit(
                    unit, MoveReason.REPAIRS_RULE, without
                ):
                    self._explaining.append(unit)
        explaining = StayExplainer(self._where)
        for unit in self._explaining:
            if self.cut:
                self.stays += [StayingVm(vm=vm, why=StayReason.CUT) for vm in unit.vms]
            else:
                self.stays += explaining.stays(unit)

    def _has_moved(self, unit: MoveUnit) -> bool:
        """Return whether a VM of a unit has moved already."""
        return any(self._where.host[vm] != self._running.host[vm] for vm in unit.vms)

    def _move_unit(
        self, unit: MoveUnit, why: MoveReason, without: frozenset[int] = frozenset()
    ) -> bool:
        """Move a unit to its best host; return False if it has none."""
        for by in self._by:
            before = by.weighed
            host = None if self.cut else by.choose_host(unit, without)
            if not self.budget.spend(by.weighed - before):
                self.cut = True
            elif host is not None:
                self._where.move(unit.vms, host)
                self._units[unit.vms], self._why[unit.vms] = unit, why
                return True
        return False

    def _unload_host(self, host: int) -> None:
        """Move VMs away from a host until it is within its capacity."""
        room = self._where.room
        units, stays = self._all_units.units_of(self._running.vms_on([host]).tolist())
        waiting = [unit for unit in units if not self._has_moved(unit)]
        missed: list[MoveUnit] = []
        gone: list[MoveUnit] = []
        while (room[host] < 0).any():
            lacks = np.maximum(-room[host], 0)
            useful = [unit for unit in waiting if (np.minimum(unit.demand, lacks) > 0).any()]
            if not useful:
                break
            unit = min(useful, key=lambda each: _unload_order(each, lacks))
            waiting.remove(unit)
            (gone if self._move_unit(unit, MoveReason.REPAIRS_CAPACITY) else missed).append(unit)
        for unit in sorted(gone, key=lambda each: -each.transfer_mib):
            demanded = unit.demand > 0
            if (room[host][demanded] >= unit.demand[demanded]).all():
                self._where.move(unit.vms, host)
                del self._units[unit.vms], self._why[unit.vms]
        if (room[host] < 0).any():
            lacks = room[host] < 0
            self._explaining += missed
            kinds = self._running.kind
            self.stays += [
                each for each in stays if self._running.demand[kinds[each.vm]][lacks].any()
            ]

    def _gather_group(self, number: int) -> None:
        """Move an affinity group to the host that holds most of it and has room for the others."""
        group = self._running.groups[number]
        on = _vms_by_host(self._where, group.vms)
        if len(on.keys() | set(group.hosts)) < 2:
            return
        heavy = {
            host: sum(int(self._running.transfer_mib[vm]) for vm in vms) for host, vms in on.items()
        }
        homes = sorted({*on, *group.hosts}, key=lambda host: (-heavy.get(host, 0), host))
        if group.hosts:
            homes = [host for host in homes if {host} == set(group.hosts)]
        for home in homes:
            rest = [vm for vm in group.vms if self._where.host[vm] != home]
            units, stays = self._all_units.units_of(rest)
            if stays or any(self._has_moved(unit) for unit in units):
                continue
            done: list[MoveUnit] = []
            for unit in units:
                there = dataclasses.replace(unit, hosts=(home,))
                if not self._move_unit(there, MoveReason.REPAIRS_RULE):
                    break
                done.append(there)
            if len(done) == len(units):
                return
            for unit in done:
                self._where.move(unit.vms, int(self._running.host[unit.vms[0]]))
                del self._units[unit.vms], self._why[unit.vms]
        maximum = homes[0] if homes else -1
        self.stays += [
            StayingVm(vm=vm, why=StayReason.AFFINITY)
            for vm in group.vms
            if self._where.host[vm] != maximum
        ]


def _unload_order(unit: MoveUnit, lacks: IntArray) -> tuple[bool, float, int]:
    """Return the sort key of a unit that could leave a host that lacks room, (R,)."""
    freed = np.minimum(unit.demand, lacks)
    enough = bool((freed == lacks).all())
    part = float(np.divide(freed, lacks, out=np.zeros(len(lacks)), where=lacks > 0).sum())
    cost = float(unit.transfer_mib)
    return not enough, cost if enough else cost / part, unit.vms[0]
