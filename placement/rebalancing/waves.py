"""Order moves in waves, with every state between two waves feasible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placement.rebalancing.destinations import DestinationCriterion, Destinations
from placement.rebalancing.model import (
    Mobility,
    MoveReason,
    RebalanceLimits,
    RebalanceMove,
    RunningState,
)
from placement.rebalancing.placement_state import PlacementState
from placement.rebalancing.units import MoveUnit


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class UnitDestination:
    """A unit and its destination host."""

    unit: MoveUnit
    destination: int
    why: MoveReason


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WaveOrder:
    """Moves in waves, and the units that cannot reach their destinations in any order."""

    moves: tuple[RebalanceMove, ...]
    left: tuple[UnitDestination, ...]  #: stay where they are


def order_in_waves(
    running: RunningState, wanted: Sequence[UnitDestination], limits: RebalanceLimits
) -> WaveOrder:
    """Order moves in waves in which no host ever holds more than it has.

    A wave takes what it can in the order given: of each move both hosts hold the
    VM until the wave is over. If no unit can move, a cycle is broken: of the VMs on
    destinations of other units, the one with the least transfer moves to a third
    host, once, and from there to its destination as soon as it has room.

    Notes
    -----
    Each wave looks at the sources in turn until it is full, so n moves that do not
    block one another cost O(n).
    """
    return _WaveOrderer(running, wanted, limits).order()


class _WaveOrderer:
    """Assigns the moves of units to waves, with detours where they block one another."""

    def __init__(
        self, running: RunningState, wanted: Sequence[UnitDestination], limits: RebalanceLimits
    ) -> None:
        self._running = running
        self._wanted = wanted
        self._limits = limits
        self._where = PlacementState(running)
        self._moves: list[RebalanceMove] = []
        self._wave = 0
        self._detoured: set[int] = set()
        self._third_hosts: Destinations | None = None
        #: wanted moves by source, in order
        self._from: dict[int, list[int]] = {}
        for number, each in enumerate(wanted):
            self._from.setdefault(self._source_host(each), []).append(number)

    def order(self) -> WaveOrder:
        """Fill wave after wave, with a detour where no unit can move; return the order."""
        while self._from:
            taken = list(self._next_wave())
            if not taken and not self._make_detour():
                break
            for number in taken:
                each = self._wanted[number]
                for vm in each.unit.vms:
                    self._where.leave(vm, each.destination)
            self._wave += 1
        left = sorted(number for numbers in self._from.values() for number in numbers)
        moves = self._moves
        if self._detoured and left:
            # A VM that made a detour in vain should have stayed.
            vain = {vm for number in left for vm in self._wanted[number].unit.vms}
            if vain & self._detoured:
                kept = [w for w in self._wanted if not vain & set(w.unit.vms)]
                again = order_in_waves(self._running, kept, self._limits)
                gone = [w for w in self._wanted if vain & set(w.unit.vms)]
                return WaveOrder(moves=again.moves, left=(*gone, *again.left))
        return WaveOrder(moves=tuple(moves), left=tuple(self._wanted[number] for number in left))

    def _source_host(self, wanted: UnitDestination) -> int:
        """Return the host that a unit leaves, as things are."""
        return self._where.host[wanted.unit.vms[0]]

    def _next_wave(self) -> Iterator[int]:
        """Yield the units that can move in this wave, and count them on their destinations."""
        limits, there = self._limits, Counter[int]()
        going = 0
        for source in list(self._from):
            if going >= limits.at_once:
                return
            away, waiting = 0, []
            numbers = self._from[source]
            for place, number in enumerate(numbers):
                if away >= limits.per_source:
                    waiting += numbers[place:]
                    break
                each = self._wanted[number]
                vms, to = each.unit.vms, each.destination
                size = len(vms)
                if (
                    away + size > limits.per_source
                    or there[to] + size > limits.per_destination
                    or going + size > limits.at_once
                    or not self._where.fits(vms, to)
                    or not self._where.allows(vms, to)
                ):
                    waiting.append(number)
                    continue
                away, going = away + size, going + size
                there[to] += size
                for vm in vms:
                    self._where.arrive(vm, to)
                    self._record_move(vm, source, to, each.why)
                yield number
            if waiting:
                self._from[source] = waiting
            else:
                del self._from[source]

    def _record_move(self, vm: int, source: int, destination: int, why: MoveReason) -> None:
        """Record the move of a VM in the current wave."""
        live = bool(self._running.mobility[vm] == Mobility.LIVE)
        transfer_mib = int(self._running.transfer_mib[vm])
        self._moves.append(
            RebalanceMove(
                vm=vm,
                source=source,
                destination=destination,
                wave=self._wave,
                why=why,
                live=live,
                transfer_mib=transfer_mib,
            )
        )

    def _make_detour(self) -> bool:
        """Move one unit out of the way, to a third host; return False if none can move."""
        pending = [number for numbers in self._from.values() for number in numbers]
        destinations = {self._wanted[number].destination for number in pending}
        able = [
            number
            for number in pending
            if self._source_host(self._wanted[number]) in destinations
            and len(self._wanted[number].unit.vms) == 1
            and self._wanted[number].unit.hosts is None
            and self._wanted[number].unit.vms[0] not in self._detoured
        ]
        able.sort(key=lambda number: (self._wanted[number].unit.transfer_mib, number))
        if self._third_hosts is None:
            self._third_hosts = Destinations(self._where, DestinationCriterion.TIGHTEST)
        for number in able:
            each = self._wanted[number]
            # A third host that no other move needs does not close another cycle.
            third = self._third_hosts.choose_host(each.unit, destinations)
            if third is None:
                third = self._third_hosts.choose_host(each.unit, (each.destination,))
            if third is not None:
                vm, source = each.unit.vms[0], self._source_host(each)
                self._record_move(vm, source, third, MoveReason.DETOUR)
                self._where.move((vm,), third)
                self._detoured.add(vm)
                self._from[source].remove(number)
                if not self._from[source]:
                    del self._from[source]
                self._from.setdefault(third, []).append(number)
                return True
        return False
