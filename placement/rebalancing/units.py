"""Units of moves: a VM, or a hard group that moves together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from placement.model.arrays import BoolArray, IntArray
from placement.rebalancing.model import (
    OBSTACLES,
    RebalanceLimits,
    RunningState,
    StayingVm,
    StayReason,
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MoveUnit:
    """VMs of one host that must move together, to one other host in one wave."""

    vms: tuple[int, ...]
    demand: IntArray  #: (R,) of all of them
    eligible: BoolArray  #: (C,) classes that all of them may use
    transfer_mib: int
    hosts: tuple[int, ...] | None = None  #: the only ones that will do; None: any

    @property
    def key(self) -> tuple[bytes, bytes]:
        """The key that alike units share."""
        return self.demand.tobytes(), self.eligible.tobytes()


class UnitBuilder:
    """Makes units of moves from the running VMs of a cluster.

    A group that keeps together and is on one host moves whole; of one that is on
    several already, a VM may go where another is.
    """

    def __init__(self, running: RunningState, limits: RebalanceLimits) -> None:
        self._running = running
        self._maximum = min(limits.per_source, limits.per_destination, limits.at_once)
        self._together: dict[int, list[int]] = {}
        self._apart: dict[int, list[int]] = {}
        for number, group in enumerate(running.groups):
            if group.hard:
                of_vm = self._apart if group.apart else self._together
                for vm in group.vms:
                    of_vm.setdefault(vm, []).append(number)

    def units_of(self, vms: Iterable[int]) -> tuple[list[MoveUnit], list[StayingVm]]:
        """Return the units in which some VMs move, and the VMs that cannot move."""
        units: list[MoveUnit] = []
        stays: list[StayingVm] = []
        seen: set[int] = set()
        for vm in vms:
            if vm in seen:
                continue
            found = self._group_unit(vm) if vm in self._together else self._single_unit(vm)
            if isinstance(found, MoveUnit):
                seen.update(found.vms)
                units.append(found)
            else:
                seen.add(vm)
                stays.append(found)
        return units, stays

    def _single_unit(self, vm: int) -> MoveUnit | StayingVm:
        """Return the unit of one VM, or why it cannot move."""
        running = self._running
        if (obstacle := int(running.obstacle[vm])) >= 0:
            return StayingVm(vm=vm, why=StayReason.OBSTACLE, obstacle=OBSTACLES[obstacle])
        kind = running.kind[vm]
        return MoveUnit(
            vms=(vm,),
            demand=running.demand[kind],
            eligible=running.eligible[kind],
            transfer_mib=int(running.transfer_mib[vm]),
        )

    def _group_unit(self, vm: int) -> MoveUnit | StayingVm:
        """Return the unit of a VM with all that must move with it, or why they cannot move."""
        running, home = self._running, int(self._running.host[vm])
        if (obstacle := int(running.obstacle[vm])) >= 0:
            return StayingVm(vm=vm, why=StayReason.OBSTACLE, obstacle=OBSTACLES[obstacle])
        members, waiting = {vm}, [vm]
        hosts: set[int] | None = None
        while waiting:
            for number in self._together.get(waiting.pop(), ()):
                group = running.groups[number]
                where = {int(running.host[each]) for each in group.vms} | set(group.hosts)
                if where == {home} and not group.hosts:
                    waiting += [each for each in group.vms if each not in members]
                    members.update(group.vms)
                else:
                    elsewhere = where - {home}
                    hosts = elsewhere if hosts is None else hosts & elsewhere
        stuck = any(running.obstacle[each] >= 0 for each in members)
        if stuck or self._must_keep_apart(members):
            return StayingVm(vm=vm, why=StayReason.AFFINITY)
        if len(members) > self._maximum:
            return StayingVm(vm=vm, why=StayReason.LIMITS)
        vms = tuple(sorted(members))
        kinds = running.kind[list(vms)]
        return MoveUnit(
            vms=vms,
            demand=running.demand[kinds].sum(axis=0),
            eligible=np.all(running.eligible[kinds], axis=0),
            transfer_mib=int(running.transfer_mib[list(vms)].sum()),
            hosts=None if hosts is None else tuple(sorted(hosts)),
        )

    def _must_keep_apart(self, members: set[int]) -> bool:
        """Return whether two members of a unit must also keep apart."""
        groups = [number for vm in members for number in self._apart.get(vm, ())]
        return len(set(groups)) < len(groups)
