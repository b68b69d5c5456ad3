"""The timetable of a plan's moves: begin and end of each, and VMs counted on both hosts."""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from placement.rebalancing.model import MovePlan, MoveReason
from placement.rebalancing.placement_state import PlacementState
from simulation.checkpoint import CheckpointData, MisfitError
from simulation.slots.moving.movable_vms import MovableVms, VmKey
from simulation.slots.moving.move_options import MovePrice


class MoveOutcome(StrEnum):
    """How a simulated move ended."""

    MOVED = "moved"
    GONE = "gone"  #: the VM ended, or was lost with its host, before it had moved
    REFUSED = "refused"  #: what was placed since the plan was made left no room for it
    CUT = "cut"  #: its destination failed or left while it moved, or before


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedMove:
    """One simulated move with its times."""

    vm: VmKey
    tenant: int
    kind: int
    constraints: int
    destination: int  #: a number of the cluster's host
    starts_s: float
    over_s: float
    why: MoveReason
    transfer_mib: int


@dataclass(frozen=True, slots=True)
class EndedMove:
    """A simulated move and how it ended."""

    move: TimedMove
    outcome: MoveOutcome


class Timetable:
    """The simulated moves of one plan that are not over, in order of their waves.

    A wave begins when the longest move of the wave before it is over.
    """

    def __init__(self) -> None:
        self.coming: deque[TimedMove] = deque()
        self.under_way: list[TimedMove] = []  #: they hold both hosts now

    def __bool__(self) -> bool:
        return bool(self.coming or self.under_way)

    def schedule(self, plan: MovePlan, fleet: MovableVms, at_s: float, price: MovePrice) -> float:
        """Schedule the moves of a plan that begins now; return the time at which it ends."""
        starts_s, latest_s, wave = at_s, at_s, 0
        # Of a VM that makes a detour the second move begins where the first ended.
        where: dict[int, VmKey] = {}
        for move in plan.moves:
            if move.wave > wave:
                starts_s, wave = latest_s, move.wave
            key = where.get(move.vm) or fleet.key(move.vm)
            destination = int(fleet.hosts[move.destination])
            over_s = starts_s + price.seconds(move.transfer_mib)
            timed = TimedMove(
                vm=key,
                tenant=int(fleet.tenant[move.vm]),
                kind=int(fleet.kind[move.vm]),
                constraints=int(fleet.constraints[move.vm]),
                destination=destination,
                starts_s=starts_s,
                over_s=over_s,
                why=move.why,
                transfer_mib=move.transfer_mib,
            )
            self.coming.append(timed)
            where[move.vm] = key._replace(host=destination)
            latest_s = max(latest_s, over_s)
        return latest_s

    def moving_vms(self) -> Counter[VmKey]:
        """Return how many VMs of each key move now."""
        return Counter(move.vm for move in self.under_way)

    def arrivals(self) -> list[tuple[int, int]]:
        """Return the request of each VM that moves now, and the host where it arrives."""
        return [(move.vm.request, move.destination) for move in self.under_way]

    def pop_ended(self, at_s: float) -> list[TimedMove]:
        """Pop the moves that end next, up to a time and before any move begins."""
        next_s = min((move.over_s for move in self.under_way), default=math.inf)
        if next_s > at_s or (self.coming and self.coming[0].starts_s < next_s):
            return []
        over = [move for move in self.under_way if move.over_s == next_s]
        self.under_way = [move for move in self.under_way if move.over_s > next_s]
        return over

    def pop_beginning(self, at_s: float) -> TimedMove | None:
        """Pop the move that begins next up to a time; None if there is none."""
        if self.coming and self.coming[0].starts_s <= at_s:
            return self.coming.popleft()
        return None

    def pop_of_host(self, host: int) -> tuple[list[TimedMove], list[TimedMove]]:
        """Pop the moves from or to a host: those under way, and those to come."""
        under_way, coming = (
            [move for move in moves if host in (move.vm.host, move.destination)]
            for moves in (self.under_way, self.coming)
        )
        self.under_way = [move for move in self.under_way if move not in under_way]
        self.coming = deque(move for move in self.coming if move not in coming)
        return under_way, coming

    def pop_refused(self, fleet: MovableVms) -> list[TimedMove]:
        """Pop the scheduled moves that would now break a rule or lack room.

        What is left is gone through wave by wave, as it would happen. A move whose VM is not
        there is not refused: it may have ended.
        """
        where, known = PlacementState(fleet.running), fleet.by_key()
        place = {int(host): index for index, host in enumerate(fleet.hosts.tolist())}
        refused: list[TimedMove] = []
        wave = [(move, known[move.vm].pop(0)) for move in self.under_way if known.get(move.vm)]
        by_start = itertools.groupby(list(self.coming), key=lambda move: move.starts_s)
        for _, begins in by_start:
            for move, vm in wave:
                where.leave(vm, place[move.destination])
                known.setdefault(move.vm._replace(host=move.destination), []).append(vm)
            wave = []
            for unit in _moves_by_unit(fleet, list(begins), known):
                vms, to = [vm for _, vm in unit], place.get(unit[0][0].destination, -1)
                if to >= 0 and _is_allowed(fleet, where, vms, to):
                    for vm in vms:
                        where.arrive(vm, to)
                    wave += unit
                else:
                    refused += [move for move, _ in unit]
        numbers = {id(move) for move in refused}
        self.coming = deque(move for move in self.coming if id(move) not in numbers)
        return refused

    def state(self) -> CheckpointData:
        """Return the scheduled moves for a checkpoint."""
        return {name: [_move_row(move) for move in getattr(self, name)] for name in _LISTS}

    def restore(self, kept: CheckpointData, hosts: int) -> None:
        """Restore the scheduled moves from a checkpoint."""
        self.under_way = [_parse_move(row, hosts) for row in kept["under_way"]]
        self.coming = deque(_parse_move(row, hosts) for row in kept["coming"])


_LISTS = ("under_way", "coming")


def _is_allowed(fleet: MovableVms, where: PlacementState, vms: list[int], to: int) -> bool:
    """Return whether a host takes VMs now, by its state, room and their rules."""
    running = fleet.running
    host_class = running.snapshot.host_class[to]
    return (
        bool(running.receives[to])
        and all(running.eligible[running.kind[vm], host_class] for vm in vms)
        and where.fits(vms, to)
        and where.allows(vms, to)
    )


def _moves_by_unit(
    fleet: MovableVms, begins: Sequence[TimedMove], known: dict[VmKey, list[int]]
) -> list[list[tuple[TimedMove, int]]]:
    """Return scheduled moves with their VMs, in units of VMs that keep together."""
    together = {vm for g in fleet.running.groups if g.hard and not g.apart for vm in g.vms}
    units: list[list[tuple[TimedMove, int]]] = []
    of_hosts: dict[tuple[int, int], list[tuple[TimedMove, int]]] = {}
    for move in begins:
        if not known.get(move.vm):
            continue
        vm = known[move.vm].pop(0)
        if vm in together:
            hosts = move.vm.host, move.destination
            if hosts not in of_hosts:
                units.append(of_hosts.setdefault(hosts, []))
            of_hosts[hosts].append((move, vm))
        else:
            units.append([(move, vm)])
    return units


def _move_row(move: TimedMove) -> list[Any]:
    """Return a scheduled move as JSON values, for a checkpoint."""
    # A life without end has no number in JSON.
    end_s = None if math.isinf(move.vm.end_s) else move.vm.end_s
    return [
        [move.vm.request, end_s, move.vm.host],
        [move.tenant, move.kind, move.constraints, move.destination, move.transfer_mib],
        [move.starts_s, move.over_s],
        move.why.value,
    ]


def _parse_move(row: Sequence[Any], hosts: int) -> TimedMove:
    """Read a scheduled move from a checkpoint."""
    (request, end_s, host), (tenant, kind, constraints, destination, transfer_mib), times, why = row
    for each in (host, destination):
        if type(each) is not int or not 0 <= each < hosts:
            raise MisfitError("a VM moves to or from a host that is not there")
    return TimedMove(
        vm=VmKey(int(request), math.inf if end_s is None else float(end_s), host),
        tenant=int(tenant),
        kind=int(kind),
        constraints=int(constraints),
        destination=destination,
        starts_s=float(times[0]),
        over_s=float(times[1]),
        why=MoveReason(why),
        transfer_mib=int(transfer_mib),
    )
