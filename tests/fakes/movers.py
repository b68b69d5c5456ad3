"""Moves between hosts in memory, with the methods of Mover, that can misbehave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from hypervisor import (
    DomainState,
    HostDomain,
    HostEndpoint,
    HostSilentError,
    HostUnreachableError,
    HypervisorError,
    MigrationObstacle,
    MigrationProgress,
    MigrationRefusedError,
    MoveResult,
    MoveSpec,
    OperationFailedError,
)
from tests.fakes.hypervisor import FakeHypervisor

MEMORY_BYTES: Final = 96 << 20
STEPS: Final = 4  #: how often a move tells how far it is


class Breaks(StrEnum):
    """Where a move that misbehaves has left the guest: each was seen on real hosts."""

    BEFORE = "before"  #: runs at the source, the destination has nothing
    COPYING = "copying"  #: the same, after it was told how far it is
    PENDING = "pending"  #: runs at the source, and the destination still has what arrives, paused
    NOWHERE = "nowhere"  #: paused at the source, the destination has nothing
    BOTH_PAUSED = "both_paused"  #: paused at both
    SWITCHED = "switched"  #: runs at the destination, and paused at the source
    ARRIVED = "arrived"  #: whole at the destination but paused, the source has forgotten it
    DONE = "done"  #: runs at the destination, the source has forgotten it


@dataclass
class MoveFault:
    """What comes of the next move."""

    breaks: Breaks
    error: HypervisorError


@dataclass
class FakeMovers:
    """Makes movers between hosts that it knows by URI.

    Make moves misbehave with `fail`, `hang` and `refuse`, each for the next move alone; let
    something happen in the middle of it with `during`. Read in `log` what was asked, as
    (operation, VM).
    """

    hosts: Mapping[str, FakeHypervisor]
    during: Callable[[], None] | None = None  #: called once, after the first progress is told
    log: list[tuple[str, str]] = field(default_factory=list)
    specs: list[MoveSpec] = field(default_factory=list)
    _faults: list[MoveFault] = field(default_factory=list)
    _obstacles: list[tuple[MigrationObstacle, str]] = field(default_factory=list)

    def __call__(
        self, source: HostEndpoint, destination: HostEndpoint, *, deadline_s: float = 10.0
    ) -> FakeMover:
        """Return a mover, as the class of the real one does."""
        return FakeMover(self, self.hosts[source.uri], self.hosts[destination.uri])

    def fail(self, breaks: Breaks, error: HypervisorError | None = None) -> None:
        """Let the next move fail, by default with a host's refusal."""
        shown = error or OperationFailedError("live_move", "told to fail", 78)
        self._faults.append(MoveFault(breaks, shown))

    def hang(self, breaks: Breaks) -> None:
        """Let the process of the next move be killed for its silence."""
        self.fail(breaks, HostSilentError("fake", "live move: no answer within 15.0 s"))

    def refuse(self, obstacle: MigrationObstacle, detail: str = "told to refuse") -> None:
        """Let the next check find an obstacle."""
        self._obstacles.append((obstacle, detail))

    def next_obstacle(self) -> tuple[MigrationObstacle, str] | None:
        return self._obstacles.pop(0) if self._obstacles else None

    def next_fault(self) -> MoveFault | None:
        return self._faults.pop(0) if self._faults else None

    def happen(self) -> None:
        during, self.during = self.during, None
        if during is not None:
            during()


class FakeMover:
    """One move between two hosts in memory."""

    def __init__(
        self, movers: FakeMovers, source: FakeHypervisor, destination: FakeHypervisor
    ) -> None:
        self._movers = movers
        self._source, self._destination = source, destination
        self.closed = False

    def __enter__(self) -> FakeMover:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self, spec: MoveSpec) -> None:
        self._begin("check", spec)
        found = self._movers.next_obstacle() or self._obstacle(spec)
        if found is not None:
            raise MigrationRefusedError(*found)

    def move_live(
        self, spec: MoveSpec, *, deadline_s: float, on_progress: Callable[[MigrationProgress], None]
    ) -> MoveResult:
        self._begin("live", spec)
        fault = self._movers.next_fault()
        if fault is not None and fault.breaks is Breaks.BEFORE:
            raise fault.error
        self._arrive(spec)
        try:
            for step in range(1, STEPS + 1):
                self._check_it_goes_on(spec)
                on_progress(_progress(step))
                self._movers.happen()
                self._check_it_goes_on(spec)
                _break_while_copying(fault, deadline_s)
        except BaseException:
            self._source.moving.discard(spec.vm_id)
            arriving = self._destination.domains.get(spec.vm_id)
            pending = fault is not None and fault.breaks is Breaks.PENDING
            if arriving is not None and arriving.state is DomainState.PAUSED and not pending:
                self._destination.forget_left(spec.vm_id)
            raise
        self._switch(spec, fault)
        return MoveResult(
            total_ms=1000,
            downtime_ms=150,
            memory_bytes=MEMORY_BYTES,
            disk_bytes=1 << 20 if spec.copy_disk else 0,
        )

    def move_cold(
        self, spec: MoveSpec, *, deadline_s: float, on_progress: Callable[[MigrationProgress], None]
    ) -> MoveResult:
        self._begin("cold", spec)
        fault = self._movers.next_fault()
        if fault is not None and fault.breaks is Breaks.BEFORE:
            raise fault.error
        seen = self._source.domains.get(spec.vm_id)
        if seen is None:
            raise OperationFailedError("cold_move", f"no domain {spec.vm_id}", 42)
        if seen.state is not DomainState.STOPPED:
            raise OperationFailedError("cold_move", "domain is running", 55)
        _refuse_attached(seen)
        if spec.vm_id in self._destination.domains:
            raise OperationFailedError(
                "cold_move", f"the destination has domain {spec.vm_id} already", 9
            )
        sent = self._copy_disk(spec, fault, deadline_s, on_progress) if spec.copy_disk else 0
        if not spec.copy_disk:
            self._prove_shared(spec)
        defined = self._source.specs.get(spec.vm_id)
        self._destination.define_arriving(spec, seen, defined)
        if fault is not None:
            raise fault.error
        return MoveResult(total_ms=100, downtime_ms=None, memory_bytes=0, disk_bytes=sent)

    def close(self) -> None:
        self.closed = True

    def _copy_disk(
        self,
        spec: MoveSpec,
        fault: MoveFault | None,
        deadline_s: float,
        on_progress: Callable[[MigrationProgress], None],
    ) -> int:
        name = self._source.volume_of(spec.vm_id) or ""
        disk = self._source.volumes.get(name)
        if disk is None:
            raise OperationFailedError(
                "cold_move", f"no storage vol with matching name '{name}'", 50
            )
        if self._destination.pool_full:
            raise OperationFailedError("cold_move", "No space left on device", 38)
        self._destination.volumes[spec.volume] = replace(disk, name=spec.volume)
        for step in range(1, STEPS + 1):
            on_progress(_progress(step, disk_bytes=disk.allocation_bytes))
            self._movers.happen()
            _break_while_copying(fault, deadline_s, "cold_move")
        return disk.allocation_bytes

    def _prove_shared(self, spec: MoveSpec) -> None:
        if self._source.volumes is not self._destination.volumes:
            raise MigrationRefusedError(MigrationObstacle.POOL, f"pool {spec.pool} is not shared")

    def _obstacle(self, spec: MoveSpec) -> tuple[MigrationObstacle, str] | None:
        """What a real host would find, of what hosts in memory have."""
        here, there = self._source, self._destination
        seen, taken = here.domains.get(spec.vm_id), there.domains.get(spec.vm_id)
        if here is there:
            return MigrationObstacle.SAME_HOST, here.hostname
        if seen is None:
            return MigrationObstacle.ABSENT, f"no domain {spec.vm_id}"
        if seen.attached:
            return MigrationObstacle.LOCAL_VOLUME, ", ".join(seen.attached)
        others = {each.name for each in there.domains.values() if each.uuid != spec.vm_id}
        if seen.name in others or (
            taken is not None and (taken.mark != spec.mark or taken.run is not None)
        ):
            return MigrationObstacle.NAME_TAKEN, seen.name
        if spec.pool != there.pool or there.pool_full:
            return MigrationObstacle.POOL, spec.pool
        needed = [] if seen.state is DomainState.STOPPED and spec.copy_disk else [spec.volume]
        for volume in filter(None, [*needed, spec.seed_volume]):
            if volume not in there.volumes:
                return MigrationObstacle.VOLUME, volume
        if not spec.copy_disk and here.volumes is not there.volumes:
            return MigrationObstacle.POOL, f"pool {spec.pool} is not shared"
        return None

    def _begin(self, op: str, spec: MoveSpec) -> None:
        self._movers.log.append((op, spec.vm_id))
        self._movers.specs.append(spec)
        for host in (self._source, self._destination):
            if host.unreachable:
                raise HostUnreachableError(host.uri, "told to be unreachable")

    def _arrive(self, spec: MoveSpec) -> None:
        seen = self._source.domains.get(spec.vm_id)
        if seen is None:
            raise OperationFailedError("live_move", f"no domain {spec.vm_id}", 42)
        if seen.state is DomainState.STOPPED:
            raise OperationFailedError("live_move", "domain is not running", 55)
        _refuse_attached(seen)
        if not spec.copy_disk:
            self._prove_shared(spec)
        self._destination.receive(spec, seen, self._source.specs.get(spec.vm_id))
        self._source.moving.add(spec.vm_id)

    def _check_it_goes_on(self, spec: MoveSpec) -> None:
        """What somebody did to either domain ends the move, as on real hosts."""
        if spec.vm_id not in self._source.moving:
            raise OperationFailedError("live_move", "it was called off", 78)
        for host in (self._source, self._destination):
            if host.unreachable:
                raise HostUnreachableError(host.uri, "told to be unreachable")
            seen = host.domains.get(spec.vm_id)
            if seen is None or seen.state is DomainState.STOPPED:
                raise OperationFailedError("live_move", "domain is not running", 55)

    def _switch(self, spec: MoveSpec, fault: MoveFault | None) -> None:
        source, destination, vm_id = self._source, self._destination, spec.vm_id
        source.stop_leaving(vm_id)
        breaks = Breaks.DONE if fault is None else fault.breaks
        if breaks is Breaks.NOWHERE:
            destination.forget_left(vm_id)
        elif breaks is not Breaks.BOTH_PAUSED:
            destination.run_arrived(vm_id)
        if breaks is Breaks.ARRIVED:
            seen = destination.domains[vm_id]
            destination.domains[vm_id] = replace(seen, state=DomainState.PAUSED)
        if breaks in {Breaks.ARRIVED, Breaks.DONE}:
            source.forget_left(vm_id)
        source.moving.discard(vm_id)
        destination.moving.discard(vm_id)
        if fault is not None:
            raise fault.error


def _break_while_copying(fault: MoveFault | None, deadline_s: float, op: str = "live_move") -> None:
    if fault is not None and fault.breaks in {Breaks.COPYING, Breaks.PENDING}:
        raise fault.error
    # No time passes here: a deadline of nothing is one that has passed.
    if deadline_s <= 0:
        raise OperationFailedError(op, "it was called off", 78)


def _refuse_attached(seen: HostDomain) -> None:
    if seen.attached:
        raise MigrationRefusedError(MigrationObstacle.LOCAL_VOLUME, ", ".join(seen.attached))


def _progress(step: int, *, disk_bytes: int = 0) -> MigrationProgress:
    memory_bytes = 0 if disk_bytes else MEMORY_BYTES
    left = STEPS - step
    return MigrationProgress(
        elapsed_ms=250 * step,
        memory_total_bytes=memory_bytes,
        memory_remaining_bytes=memory_bytes * left // STEPS,
        disk_total_bytes=disk_bytes,
        disk_remaining_bytes=disk_bytes * left // STEPS,
        rate_bytes_s=memory_bytes or disk_bytes,
        iteration=0 if disk_bytes else 1,
    )
