"""The host of each VM during planning, and the room and rules that remain."""

from __future__ import annotations

from collections.abc import Sequence

from placement.model.arrays import BoolArray
from placement.rebalancing.model import RunningState


class PlacementState:
    """The hosts of VMs while moves are planned, with the room and rules that remain.

    A VM that was let in (`arrive`) and has not left (`leave`) holds both hosts.

    Attributes
    ----------
    room : ndarray of int64, shape (H, R)
        What is left, below 0 where more is committed than there is.
    host : list of int
        The host of each VM: the old host until the VM has left it.
    changed : list of int
        Hosts in the order in which their room changed.
    """

    def __init__(self, running: RunningState) -> None:
        self.running = running
        self.room = running.room
        self.host: list[int] = running.host.tolist()
        self.changed: list[int] = []
        self._zones: list[int] = running.zones.tolist()
        self._open: dict[bytes, BoolArray] = {}
        #: groups that keep apart, by VM: those that must, and those that would rather
        self._apart: dict[int, list[int]] = {}
        self._rather: dict[int, list[int]] = {}
        self._on: dict[int, dict[int, int]] = {}
        for number, group in enumerate(running.groups):
            if group.apart:
                on = self._on[number] = dict.fromkeys(group.hosts, 1)
                members = self._apart if group.hard else self._rather
                for vm in group.vms:
                    members.setdefault(vm, []).append(number)
                    on[self.host[vm]] = on.get(self.host[vm], 0) + 1
        #: the same of requests that wait, by request; spreads that they are the rest of
        self._apart_waiting: dict[int, list[int]] = {}
        self._spread_waiting: dict[int, list[int]] = {}
        for number, group in enumerate(running.groups):
            for request in group.requests if group.apart and group.hard else ():
                self._apart_waiting.setdefault(request, []).append(number)
        for number, spread in enumerate(running.spreads):
            if spread.request is not None:
                self._spread_waiting.setdefault(spread.request, []).append(number)
        self._spread: dict[int, list[int]] = {}
        self._in_zone: list[list[int]] = []
        zones = max(self._zones, default=-1) + 1
        for number, spread in enumerate(running.spreads):
            in_zone = [*spread.others] or [0] * zones
            for vm in spread.vms:
                self._spread.setdefault(vm, []).append(number)
                if (zone := self._zones[self.host[vm]]) >= 0:
                    in_zone[zone] += 1
            self._in_zone.append(in_zone)

    def is_ruled(self, vm: int) -> bool:
        """Return whether a VM is in an anti-affinity group or a spread."""
        return vm in self._apart or vm in self._rather or vm in self._spread

    def is_spread(self, vm: int) -> bool:
        """Return whether a VM is of a request that is spread over zones."""
        return vm in self._spread

    def apart_groups(self, vm: int) -> Sequence[int]:
        """Return the hard anti-affinity groups that a VM is in."""
        return self._apart.get(vm, ())

    def open_to(self, eligible: BoolArray) -> BoolArray:
        """Return which hosts take VMs that may use these classes, (C,); shape (H,)."""
        key = eligible.tobytes()
        if key not in self._open:
            snapshot = self.running.snapshot
            self._open[key] = eligible[snapshot.host_class] & self.running.receives
        return self._open[key]

    def zones_open_to(self, vms: Sequence[int]) -> list[int] | None:
        """Return the zones that spreads leave open to these VMs; None if no spread binds them."""
        needs = self._spreads_of(vms)
        if not needs:
            return None
        zones = range(max(self._zones, default=-1) + 1)
        return [zone for zone in zones if self._zone_takes(needs, vms, zone)]

    def is_kept_apart(self, vms: Sequence[int], host: int, *, soft: bool = False) -> bool:
        """Return whether an anti-affinity group forbids these VMs on a host."""
        for vm in vms:
            for group in self._apart.get(vm, ()):
                if self._on[group].get(host):
                    return True
            for group in self._rather.get(vm, ()) if soft else ():
                if self._on[group].get(host):
                    return True
        return False

    def allows(self, vms: Sequence[int], host: int, *, soft: bool = False) -> bool:
        """Return whether anti-affinity groups and spreads allow these VMs on another host."""
        if self.is_kept_apart(vms, host, soft=soft):
            return False
        needs = self._spreads_of(vms)
        return not needs or self._zone_takes(needs, vms, self._zones[host])

    def fits(self, vms: Sequence[int], host: int) -> bool:
        """Return whether a host has room for these VMs."""
        room: list[int] = self.room[host].tolist()
        for vm in vms:
            demand = self.running.demand[self.running.kind[vm]].tolist()
            for resource, amount in enumerate(demand):
                if amount:
                    room[resource] -= amount
                    if room[resource] < 0:
                        return False
        return True

    def arrive(self, vm: int, host: int) -> None:
        """Count a VM on the host to which it moves; it still counts on its source."""
        self.room[host] -= self.running.demand[self.running.kind[vm]]
        self.changed.append(host)
        self._count_vm(vm, host, 1)
        self._count_in_zone(vm, host, self.host[vm], 1)

    def leave(self, vm: int, host: int) -> None:
        """Stop counting a VM on the host that it left."""
        old = self.host[vm]
        self.room[old] += self.running.demand[self.running.kind[vm]]
        self.changed.append(old)
        self._count_vm(vm, old, -1)
        self._count_in_zone(vm, old, host, -1)
        self.host[vm] = host

    def move(self, vms: Sequence[int], host: int) -> None:
        """Move VMs to a host, one after the other, with room and rules updated."""
        for vm in vms:
            self.arrive(vm, host)
            self.leave(vm, host)

    def admits(self, request: int, host: int) -> bool:
        """Return whether VM groups and spreads allow one more VM of a request on a host."""
        if any(self._on[group].get(host) for group in self._apart_waiting.get(request, ())):
            return False
        spreads = self._spread_waiting.get(request, ())
        zone = self._zones[host] if spreads else 0
        return zone >= 0 and all(
            self._in_zone[number][zone] < self.running.spreads[number].maximum for number in spreads
        )

    def admit(self, request: int, host: int, count: int = 1) -> None:
        """Count VMs of a waiting request on a host; a negative count removes them."""
        self.room[host] -= count * self.running.snapshot.demand[request]
        self.changed.append(host)
        for group in self._apart_waiting.get(request, ()):
            on = self._on[group]
            on[host] = on.get(host, 0) + count
        for number in self._spread_waiting.get(request, ()):
            self._in_zone[number][self._zones[host]] += count

    def _spreads_of(self, vms: Sequence[int]) -> list[int]:
        """Return the spreads that these VMs are in."""
        return sorted({spread for vm in vms for spread in self._spread.get(vm, ())})

    def _zone_takes(self, spreads: Sequence[int], vms: Sequence[int], zone: int) -> bool:
        """Return whether a zone may take these VMs, by the most VMs that spreads allow there."""
        if zone < 0:
            return False
        for number in spreads:
            entering = sum(
                number in self._spread.get(vm, ()) and self._zones[self.host[vm]] != zone
                for vm in vms
            )
            maximum = self.running.spreads[number].maximum
            if entering and self._in_zone[number][zone] + entering > maximum:
                return False
        return True

    def _count_vm(self, vm: int, host: int, change: int) -> None:
        """Add a VM to the anti-affinity counts of a host, or remove it."""
        for group in (*self._apart.get(vm, ()), *self._rather.get(vm, ())):
            on = self._on[group]
            on[host] = on.get(host, 0) + change

    def _count_in_zone(self, vm: int, host: int, other: int, change: int) -> None:
        """Add a VM to the spread counts of a host's zone, or remove it, if it changes zones."""
        spreads = self._spread.get(vm, ())
        if spreads and (zone := self._zones[host]) >= 0 and zone != self._zones[other]:
            for number in spreads:
                self._in_zone[number][zone] += change
