"""Which hosts the groups and spreads of running VMs leave open to a move for its gain.

Soft rules count like hard ones here: a move for a better balance has no need that
would excuse breaking one. VMs that are together already do not move apart, and one move
takes one VM, so of such a group nothing moves.
"""

from __future__ import annotations

import numpy as np

from placement.model.arrays import BoolArray, IntArray
from placement.rebalancing.model import RunningState


class GroupConstraints:
    """The hosts of the members of VM groups and spreads, updated with moves."""

    def __init__(self, running: RunningState) -> None:
        self.host = running.host.copy()  #: (V,) where each VM is now
        self._hosts = len(running.receives)
        self._zones = running.zones
        self._number_of_zones = int(running.zones.max(initial=-1)) + 1
        self._groups = running.groups
        self._spreads = running.spreads
        self._group_vms = [np.array(each.vms, dtype=np.int64) for each in running.groups]
        self._spread_vms = [np.array(each.vms, dtype=np.int64) for each in running.spreads]
        self._groups_of = _rows_of(self._group_vms)
        self._spreads_of = _rows_of(self._spread_vms)
        self.bound: BoolArray = np.zeros(len(running), dtype=np.bool_)  #: (V,) is it in any?
        for vms in (*self._group_vms, *self._spread_vms):
            self.bound[vms] = True

    def allowed_hosts(self, vm: int) -> BoolArray:
        """Return the hosts that groups and spreads leave open to a VM, shape (H,).

        A group that keeps apart excludes hosts of its other members. A group that keeps together
        allows only hosts of its other members, if there are any. A spread excludes hosts without
        a zone, and hosts in other zones that already hold their maximum.
        """
        open_to, own = np.ones(self._hosts, dtype=np.bool_), int(self.host[vm])
        for number in self._groups_of.get(vm, ()):
            group, others = self._groups[number], self._group_vms[number]
            hosts = [*self.host[others[others != vm]].tolist(), *group.hosts]
            if group.apart:
                open_to[hosts] = False
            elif hosts:
                together = np.zeros_like(open_to)
                together[hosts] = True
                open_to &= together
        for number in self._spreads_of.get(vm, ()):
            spread = self._spreads[number]
            held = self.vms_per_zone(number)
            full = np.append(held >= spread.maximum, True)  # the last place: hosts of no zone
            if self._zones[own] >= 0:
                full[self._zones[own]] = False
            open_to &= ~full[self._zones]
        return open_to

    def vms_per_zone(self, spread: int) -> IntArray:
        """Return how many VMs of a spread each zone holds, shape (Z,)."""
        zones = self._zones[self.host[self._spread_vms[spread]]]
        held: IntArray = np.bincount(zones[zones >= 0], minlength=self._number_of_zones)
        others = self._spreads[spread].others
        if others:
            held += np.array(others, dtype=np.int64)[: len(held)]
        return held

    def move(self, vm: int, destination: int) -> IntArray:
        """Record a VM's new host; return the VMs to which other hosts may now be open, (X,)."""
        self.host[vm] = destination
        members = [
            *(self._group_vms[number] for number in self._groups_of.get(vm, ())),
            *(self._spread_vms[number] for number in self._spreads_of.get(vm, ())),
        ]
        return np.concatenate(members) if members else np.zeros(0, dtype=np.int64)

    def rules_of(self, vm: int) -> tuple[tuple[str, int], ...]:
        """Return the groups and spreads that bind a VM to others, by kind and number."""
        groups = (("group", number) for number in self._groups_of.get(vm, ()))
        return (*groups, *(("spread", number) for number in self._spreads_of.get(vm, ())))


def _rows_of(members: list[IntArray]) -> dict[int, list[int]]:
    """Return the numbers of the groups or spreads that each VM is in."""
    rows: dict[int, list[int]] = {}
    for number, vms in enumerate(members):
        for vm in vms.tolist():
            rows.setdefault(vm, []).append(number)
    return rows
