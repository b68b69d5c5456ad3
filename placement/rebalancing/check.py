"""Check that a plan can be carried out, by code that shares nothing with planners."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from placement.errors import InfeasiblePlanError
from placement.rebalancing.model import (
    OBSTACLES,
    Mobility,
    MovePlan,
    MoveReason,
    RebalanceMove,
    RunningState,
)

#: What is not done to a VM that moved lately.
_FOR_BEAUTY = (MoveReason.BALANCES, MoveReason.PACKS)


def check_plan(running: RunningState, plan: MovePlan) -> None:
    """Raise unless the moves of ``plan`` keep every rule of ``running`` at every moment.

    The plan is replayed wave by wave. Within a wave a VM is at both hosts: its
    source holds it until the wave is over, its destination from the beginning.

    The rules: rows name VMs and hosts that exist, in order of waves without a gap;
    a VM moves from where it is, once, or twice where the first move is a detour,
    not within one wave, and never if it may not move, nor for beauty while it
    rests; it is moved live only if it can be; a destination takes VMs, may be used
    by this one, and holds to the unit what is there and what arrives; of a hard
    group that keeps apart no destination holds another VM; a hard group that keeps
    together is on one host after each wave, or on none that it was not on before it
    (in the wave in which it moves it is on both); a zone holds no more VMs of a
    spread than its part, unless the VM was in that zone before; no more moves go on
    at once than the limits say, for a host as for the site. What is broken already
    may stay so, but nothing arrives that breaks a rule. After the last wave what
    the plan lets in fits, as a round would check it (all but quotas).

    The measures are one more than the moves. Sums are taken in Python's integers.

    Raises
    ------
    InfeasiblePlanError
        Naming the first rule that is broken.
    """
    state = _ReplayState.of(running)
    if len(plan.measures) != len(plan.moves) + 1:
        raise InfeasiblePlanError(f"{len(plan.measures)} measures of {len(plan.moves)} moves")
    waves: list[list[RebalanceMove]] = []
    for move in plan.moves:
        if move.wave == len(waves):
            waves.append([])
        if move.wave != len(waves) - 1:
            raise InfeasiblePlanError(f"VM {move.vm} moves in wave {move.wave}, out of order")
        waves[-1].append(move)
    moved: dict[int, MoveReason] = {}
    for number, wave in enumerate(waves):
        for move in wave:
            _check_move(running, plan, state, move, moved)
            moved[move.vm] = move.why
        _check_limits(plan, number, wave)
        state.begin_wave(wave)
        for move in wave:
            state.check_arrival(move)
        state.end_wave(wave)
    for vm, why in moved.items():
        if why is MoveReason.DETOUR:
            raise InfeasiblePlanError(f"VM {vm} makes a detour and goes nowhere from there")
    _check_stays(running, plan, moved)
    state.check_admitted(plan.admitted)


def _check_move(
    running: RunningState,
    plan: MovePlan,
    state: _ReplayState,
    move: RebalanceMove,
    moved: dict[int, MoveReason],
) -> None:
    """Check one move by itself: the VM, its source and destination, and that it may move there."""
    vm, hosts = move.vm, len(running.receives)
    if not 0 <= vm < len(running.kind):
        raise InfeasiblePlanError(f"VM {vm} does not exist")
    if not 0 <= move.destination < hosts:
        raise InfeasiblePlanError(f"host {move.destination} does not exist")
    if move.source != state.host[vm]:
        raise InfeasiblePlanError(f"VM {vm} is on host {state.host[vm]}, not {move.source}")
    if move.destination == move.source:
        raise InfeasiblePlanError(f"VM {vm} moves to where it is, host {move.source}")
    if vm in moved and moved[vm] is not MoveReason.DETOUR:
        raise InfeasiblePlanError(f"VM {vm} moves twice")
    if vm in moved and move.why is MoveReason.DETOUR:
        raise InfeasiblePlanError(f"VM {vm} makes two detours")
    mobility = int(running.mobility[vm])
    if mobility == Mobility.NEVER:
        why = OBSTACLES[int(running.obstacle[vm])].value
        raise InfeasiblePlanError(f"VM {vm} may not move: {why}")
    if move.live != (mobility == Mobility.LIVE):
        raise InfeasiblePlanError(f"VM {vm} cannot move {'live' if move.live else 'cold'}")
    if move.transfer_mib != int(running.transfer_mib[vm]):
        raise InfeasiblePlanError(f"a move of VM {vm} carries {running.transfer_mib[vm]} MiB")
    if move.why in _FOR_BEAUTY and running.rests[vm]:
        raise InfeasiblePlanError(f"VM {vm} rests and is moved: {move.why.value}")
    if not running.receives[move.destination] or move.destination in plan.closed:
        raise InfeasiblePlanError(f"host {move.destination} takes no VMs")
    host_class = running.snapshot.host_class[move.destination]
    if not running.eligible[running.kind[vm], host_class]:
        raise InfeasiblePlanError(f"VM {vm} may not use host {move.destination}")


def _check_limits(plan: MovePlan, number: int, wave: list[RebalanceMove]) -> None:
    """Check that a wave has no more moves at once than the plan's limits allow."""
    away = Counter(move.source for move in wave)
    there = Counter(move.destination for move in wave)
    if len({move.vm for move in wave}) < len(wave):
        raise InfeasiblePlanError(f"a VM moves twice in wave {number}")
    if len(wave) > plan.limits.at_once:
        raise InfeasiblePlanError(f"wave {number} is {len(wave)} moves at once")
    for host, count in away.items():
        if count > plan.limits.per_source:
            raise InfeasiblePlanError(f"wave {number} moves {count} VMs away from host {host}")
    for host, count in there.items():
        if count > plan.limits.per_destination:
            raise InfeasiblePlanError(f"wave {number} moves {count} VMs to host {host}")


def _check_stays(running: RunningState, plan: MovePlan, moved: dict[int, MoveReason]) -> None:
    """Check that the VMs that stay exist, are in order, and do not move."""
    before = -1
    for each in plan.stays:
        if not before < each.vm < len(running.kind):
            raise InfeasiblePlanError(f"VM {each.vm} stays, out of order or unknown")
        if each.vm in moved:
            raise InfeasiblePlanError(f"VM {each.vm} moves and stays")
        before = each.vm


@dataclass(slots=True)
class _ReplayState:
    """The host of every VM while a plan is replayed."""

    running: RunningState
    host: list[int]
    room: list[list[int]]
    groups_of: dict[int, list[int]]
    spreads_of: dict[int, list[int]]
    arriving: dict[int, int] = field(default_factory=dict)
    on_hosts_before: dict[int, set[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, running: RunningState) -> _ReplayState:
        """Return the state before the first wave of a plan."""
        free, over = running.snapshot.free.tolist(), running.over.tolist()
        groups_of: dict[int, list[int]] = {}
        for number, group in enumerate(running.groups):
            for vm in group.vms if group.hard else ():
                groups_of.setdefault(vm, []).append(number)
        spreads_of: dict[int, list[int]] = {}
        for number, spread in enumerate(running.spreads):
            for vm in spread.vms:
                spreads_of.setdefault(vm, []).append(number)
        return cls(
            running=running,
            host=running.host.tolist(),
            room=[
                [f - o for f, o in zip(*both, strict=True)] for both in zip(free, over, strict=True)
            ],
            groups_of=groups_of,
            spreads_of=spreads_of,
        )

    def demand(self, vm: int) -> list[int]:
        """Return the demand of one VM."""
        demand: list[int] = self.running.demand[self.running.kind[vm]].tolist()
        return demand

    def begin_wave(self, wave: list[RebalanceMove]) -> None:
        """Count the moving VMs of a wave on their destinations, and check the room of the hosts."""
        self.arriving = {move.vm: move.destination for move in wave}
        self.on_hosts_before = {
            number: self.hosts_of(number)
            for move in wave
            for number in self.groups_of.get(move.vm, ())
        }
        taken: dict[int, list[int]] = {}
        for move in wave:
            sums = taken.setdefault(move.destination, [0] * len(self.running.snapshot.resources))
            for resource, amount in enumerate(self.demand(move.vm)):
                sums[resource] += amount
        for host, sums in taken.items():
            for resource, amount in enumerate(sums):
                if amount and amount > self.room[host][resource]:
                    name = self.running.snapshot.resources[resource]
                    raise InfeasiblePlanError(
                        f"host {host} has {self.room[host][resource]} {name} free, "
                        f"and {amount} arrive in wave {wave[0].wave}"
                    )
                self.room[host][resource] -= amount

    def check_arrival(self, move: RebalanceMove) -> None:
        """Check anti-affinity groups and spreads of a moving VM while both hosts hold it."""
        for number in self.groups_of.get(move.vm, ()):
            group = self.running.groups[number]
            if not group.apart:
                continue
            here = [
                vm
                for vm in group.vms
                if vm != move.vm and move.destination in (self.host[vm], self.arriving.get(vm))
            ]
            if here or move.destination in group.hosts:
                raise InfeasiblePlanError(
                    f"VM {move.vm} arrives on host {move.destination}, which holds another of "
                    f"group {number}, which keeps apart"
                )
        zones = self.running.zones
        for number in self.spreads_of.get(move.vm, ()):
            zone, spread = int(zones[move.destination]), self.running.spreads[number]
            if zone < 0:
                raise InfeasiblePlanError(
                    f"VM {move.vm} is spread over zones, host {move.destination} is in none"
                )
            if int(zones[move.source]) == zone:
                continue
            there = self.vms_in_zone(number, zone)
            if there > spread.maximum:
                raise InfeasiblePlanError(
                    f"zone {zone} may hold {spread.maximum} VMs of spread {number}, holds {there}"
                )

    def vms_in_zone(self, number: int, zone: int) -> int:
        """Return how many VMs of a spread are in a zone or move to it."""
        spread, zones = self.running.spreads[number], self.running.zones
        others = spread.others[zone] if spread.others else 0
        hosts = [(self.host[vm], self.arriving.get(vm, self.host[vm])) for vm in spread.vms]
        return others + sum(zone in (int(zones[now]), int(zones[then])) for now, then in hosts)

    def hosts_of(self, number: int) -> set[int]:
        """Return the hosts that hold VMs of a group."""
        group = self.running.groups[number]
        return {self.host[vm] for vm in group.vms} | set(group.hosts)

    def end_wave(self, wave: list[RebalanceMove]) -> None:
        """Remove the moved VMs of a wave from their sources, and check affinity groups."""
        for move in wave:
            self.host[move.vm] = move.destination
            for resource, amount in enumerate(self.demand(move.vm)):
                self.room[move.source][resource] += amount
        self.arriving = {}
        for number, before in self.on_hosts_before.items():
            now = self.hosts_of(number)
            if not self.running.groups[number].apart and len(now) > 1 and not now <= before:
                raise InfeasiblePlanError(
                    f"group {number} keeps together and is on hosts {sorted(now)} "
                    f"after wave {wave[0].wave}"
                )

    def check_admitted(self, rows: tuple[tuple[int, int, int], ...]) -> None:
        """Check that the VMs for which the plan makes room fit once all moves are over."""
        snapshot = self.running.snapshot
        given: Counter[int] = Counter()
        for request, host, count in rows:
            if not 0 <= request < len(snapshot.count) or not 0 <= host < len(snapshot.capacity):
                raise InfeasiblePlanError(f"request {request} or host {host} does not exist")
            if count < 1 or not self.running.receives[host]:
                raise InfeasiblePlanError(f"host {host} takes no VMs of request {request}")
            if not snapshot.eligible[request, snapshot.host_class[host]]:
                raise InfeasiblePlanError(f"request {request} may not use host {host}")
            given[request] += count
            for resource, amount in enumerate(snapshot.demand[request].tolist()):
                if amount and count * amount > self.room[host][resource]:
                    name = snapshot.resources[resource]
                    raise InfeasiblePlanError(f"request {request} lacks {name} on host {host}")
                self.room[host][resource] -= count * amount
        for request, count in given.items():
            if count > int(snapshot.count[request]) or count < int(snapshot.min_count[request]):
                raise InfeasiblePlanError(f"{count} VMs of request {request} are let in")
        self._check_groups_admitted(rows)
        self._check_spreads_admitted(rows)

    def _check_groups_admitted(self, rows: tuple[tuple[int, int, int], ...]) -> None:
        """Check that the VMs for which the plan makes room keep hard groups."""
        for number, group in enumerate(self.running.groups):
            hosts: Counter[int] = Counter()
            for request, host, count in rows if group.hard else ():
                if request in group.requests:
                    hosts[host] += count
            held = self.hosts_of(number) if hosts else set()
            if group.apart:
                if any(count > 1 or host in held for host, count in hosts.items()):
                    raise InfeasiblePlanError(f"group {number}, let in, does not keep apart")
            elif hosts and not (hosts.keys() <= held if held else len(hosts) == 1):
                raise InfeasiblePlanError(f"group {number}, let in, does not keep together")

    def _check_spreads_admitted(self, rows: tuple[tuple[int, int, int], ...]) -> None:
        """Check that the VMs for which the plan makes room keep their spreads."""
        for number, spread in enumerate(self.running.spreads):
            zones: Counter[int] = Counter()
            for request, host, count in rows:
                if request == spread.request:
                    zones[int(self.running.zones[host])] += count
            for zone, count in zones.items():
                if zone < 0 or self.vms_in_zone(number, zone) + count > spread.maximum:
                    raise InfeasiblePlanError(f"spread {number}, let in, fills zone {zone}")
