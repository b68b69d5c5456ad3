"""A libvirt host in memory, with the methods of HostConnection, that can misbehave."""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from hypervisor import (
    ConsoleExchange,
    ConsoleTail,
    DomainSpec,
    DomainState,
    Guard,
    HostDomain,
    HostPoll,
    HostUnreachableError,
    HostVolume,
    Mark,
    MoveSpec,
    OperationFailedError,
)
from hypervisor.model import MAX_SERIAL

T = TypeVar("T")
GIB = 1 << 30
PIECE = 1 << 12  #: of an upload: small, so that small files have several


@dataclass
class OperationFault:
    """What happens at an operation, ``times`` times. ``after``: once its work was done."""

    error: Exception
    after: bool
    times: int


class FakeHypervisor:
    """One host. Several connections to it are several names for the same object.

    Make it misbehave with `unreachable`, `pool_full`, `fail_at`, `hang_at` and `before`;
    read what was asked of it in `log`, as (operation, subject).
    """

    def __init__(
        self,
        uri: str = "fake+tcp://host/system",
        *,
        pool: str = "default",
        vcpus: int = 16,
        memory_mib: int = 32768,
        disk_gib: int = 300,
        base_volumes: tuple[str, ...] = ("base.qcow2",),
    ) -> None:
        self.uri = uri
        self.pool = pool
        self.hostname = "fakehost"
        self.machine_uuid: str | None = None
        self.vcpus, self.memory_mib, self.disk_gib = vcpus, memory_mib, disk_gib
        self.domains: dict[str, HostDomain] = {}
        self.volumes: dict[str, HostVolume] = {
            name: HostVolume(name=name, capacity_bytes=32 << 20, allocation_bytes=16 << 20)
            for name in base_volumes
        }
        self.users: dict[str, str] = {}  #: domains that are not fuga's, by the volume they use
        self.layers: dict[str, list[str]] = {}  #: what snapshots made, by the disk it rests on
        self.specs: dict[str, DomainSpec] = {}  #: what each domain was defined from
        self.consoles: dict[str, bytes] = {}
        self.contents: dict[str, bytes] = {}  #: of volumes that were put there
        self.log: list[tuple[str, str]] = []
        self.unreachable = False  #: every operation: HostUnreachableError
        self.pool_full = False  #: create_overlay: OperationFailedError
        self.started: list[str] = []  #: vm ids, once per start of a domain
        self.guards: dict[str, Guard | None] = {}  #: with what a domain was last started
        self.deaf: set[str] = set()  #: vm ids whose guests ignore the power button
        self.clinging: set[str] = set()  #: vm ids whose guests do not release a disk
        self.attached: dict[str, dict[str, str]] = {}  #: volumes by vm id and serial
        self.moving: set[str] = set()  #: vm ids of which a move is under way, at either end
        self.pool_silent_s: float | None = None  #: report: for how long the pool hangs
        self.closed = False
        self.held_console: str | None = None  #: the VM's whose console is held
        self._heard = b""  #: of a line that has not ended
        self._runs = 0  #: that ever began here
        self._volume_of: dict[str, tuple[str, str]] = {}  #: domain uuid: pool, volume
        self._faults: dict[str, list[OperationFault]] = defaultdict(list)
        self._before: dict[str, Callable[[], None]] = {}
        self._lock = threading.RLock()

    # --- misbehaving ------------------------------------------------------------

    def fail_at(
        self, op: str, error: Exception | None = None, *, times: int = 1, after: bool = False
    ) -> None:
        """Make an operation fail, by default with the host's refusal; ``after`` doing it."""
        error = error or OperationFailedError(op, "told to fail", 1)
        self._faults[op].append(OperationFault(error, after, times))

    def hang_at(self, op: str, *, times: int = 1, after: bool = False) -> None:
        """Let a deadline pass at an operation; ``after``: the host did it all the same."""
        self.fail_at(
            op, HostUnreachableError(self.uri, f"{op}: no answer"), times=times, after=after
        )

    def before(self, op: str, action: Callable[[], None]) -> None:
        """Call something once, right before the next such operation (to cross two workers)."""
        self._before[op] = action

    def add_stranger(self, uuid: str, name: str = "stranger", **fields: Any) -> None:
        """Put a domain there that is not ours."""
        defaults: dict[str, Any] = {
            "state": DomainState.RUNNING,
            "vcpus": 1,
            "memory_mib": 512,
            "mark": None,
        }
        self.domains[uuid] = HostDomain(uuid=uuid, name=name, **{**defaults, **fields})

    def half_volume(self, name: str) -> HostVolume:
        """What an upload leaves that nobody ended."""
        return HostVolume(name=name, capacity_bytes=PIECE // 2, allocation_bytes=PIECE // 2)

    def power_cycle(self) -> None:
        """The host went off and came back: what ran is off."""
        for uuid, seen in self.domains.items():
            self.domains[uuid] = replace(seen, state=DomainState.STOPPED, run=None)

    # --- one end of a move ------------------------------------------------------

    def volume_of(self, vm_id: str) -> str | None:
        """The disk of a domain."""
        return self._volume_of.get(vm_id, ("", None))[1]

    def receive(self, spec: MoveSpec, seen: HostDomain, defined: DomainSpec | None) -> None:
        """Have what arrives, paused. ``seen`` and ``defined`` are how the source has it."""
        self._check_pool("live_move", spec.pool)
        for volume in filter(None, (spec.volume, spec.seed_volume)):
            if volume not in self.volumes:
                raise OperationFailedError(
                    "live_move", f"no storage vol with matching name '{volume}'", 50
                )
        if spec.vm_id in self.domains and self.domains[spec.vm_id].run is not None:
            raise OperationFailedError("live_move", "domain is already active", 55)
        if any(each.name == seen.name and each.uuid != seen.uuid for each in self.domains.values()):
            raise OperationFailedError("live_move", f"domain '{seen.name}' already exists", 9)
        self._runs += 1
        self.domains[spec.vm_id] = replace(
            seen, mark=spec.mark, state=DomainState.PAUSED, run=self._runs, paused_by_move=True
        )
        self._take_over(spec, defined)
        self.moving.add(spec.vm_id)

    def define_arriving(self, spec: MoveSpec, seen: HostDomain, defined: DomainSpec | None) -> None:
        """Have what arrives, off."""
        self.domains[spec.vm_id] = replace(
            seen, mark=spec.mark, state=DomainState.STOPPED, run=None
        )
        self._take_over(spec, defined)

    def _take_over(self, spec: MoveSpec, defined: DomainSpec | None) -> None:
        self._volume_of[spec.vm_id] = (spec.pool, spec.volume)
        if defined is not None:
            self.specs[spec.vm_id] = replace(
                defined,
                mark=spec.mark,
                pool=spec.pool,
                volume=spec.volume,
                seed_volume=spec.seed_volume,
                network=spec.network,
                network_kind=spec.network_kind,
                guard=spec.guard,
            )
        self.guards[spec.vm_id] = spec.guard

    def run_arrived(self, vm_id: str) -> None:
        """Let what arrived run."""
        self.moving.discard(vm_id)
        self.domains[vm_id] = replace(
            self.domains[vm_id], state=DomainState.RUNNING, paused_by_move=False
        )

    def stop_leaving(self, vm_id: str) -> None:
        """Have what leaves stand still."""
        self.domains[vm_id] = replace(
            self.domains[vm_id], state=DomainState.PAUSED, paused_by_move=True
        )

    def forget_left(self, vm_id: str) -> None:
        """Have the domain no more. Its volumes stay."""
        self.moving.discard(vm_id)
        self.domains.pop(vm_id, None)
        self.attached.pop(vm_id, None)

    # --- HostConnection -----------------------------------------------------------

    def report(self, pool: str, *, deadline_s: float | None = None) -> HostPoll:
        return self._do("report", pool, lambda: self._report(pool))

    def find(self, vm_id: str, *, deadline_s: float | None = None) -> HostDomain | None:
        return self._do("find", vm_id, lambda: self.domains.get(vm_id))

    def create_overlay(
        self,
        *,
        pool: str,
        name: str,
        base_volume: str | None,
        base_format: str | None = None,
        capacity_gib: int,
        deadline_s: float | None = None,
    ) -> None:
        self._do(
            "create_overlay",
            name,
            lambda: self._create_overlay(pool, name, base_volume, capacity_gib),
        )

    def put_volume(
        self, pool: str, name: str, content: bytes, *, deadline_s: float | None = None
    ) -> None:
        self._do("put_volume", name, lambda: self._put_volume(pool, name, content))

    def define(self, spec: DomainSpec, *, deadline_s: float | None = None) -> None:
        self._do("define", spec.mark.vm_id, lambda: self._define(spec))

    def start_paused(
        self, vm_id: str, *, guard: Guard | None = None, deadline_s: float | None = None
    ) -> None:
        self._do("start_paused", vm_id, lambda: self._start_paused(vm_id, guard))

    def resume(self, vm_id: str, *, deadline_s: float | None = None) -> None:
        self._do("resume", vm_id, lambda: self._resume(vm_id))

    def shut_down(self, vm_id: str, *, run: int, deadline_s: float | None = None) -> None:
        self._do("shut_down", vm_id, lambda: self._shut_down(vm_id, run))

    def power_off(self, vm_id: str, *, run: int, deadline_s: float | None = None) -> None:
        self._do("power_off", vm_id, lambda: self._power_off(vm_id, run))

    def reset(self, vm_id: str, *, run: int, deadline_s: float | None = None) -> None:
        self._do("reset", vm_id, lambda: self._reset(vm_id, run))

    def destroy(
        self, vm_id: str, *, mark: Mark | None = None, deadline_s: float | None = None
    ) -> None:
        self._do("destroy", vm_id, lambda: self._destroy(vm_id, mark))

    def undefine(
        self, vm_id: str, *, mark: Mark | None = None, deadline_s: float | None = None
    ) -> None:
        self._do("undefine", vm_id, lambda: self._undefine(vm_id, mark))

    def upload(
        self,
        *,
        pool: str,
        name: str,
        path: str,
        size_bytes: int,
        sha256: str,
        on_progress: Callable[[int], None],
        head: bytes = b"",
        margin_bytes: int = 0,
        deadline_s: float | None = None,
    ) -> None:
        self._check_pool("upload", pool)
        try:
            self._do("upload_begin", name, lambda: self._write(name, 0))
            content = head + _content(path)[len(head) :]
            for sent in [*range(PIECE, size_bytes, PIECE), size_bytes]:
                self._do("upload_send", name, lambda sent=sent: self._write(name, sent))
                on_progress(sent)
            self._do("upload_end", name, lambda: _check_content(path, content, sha256))
        except HostUnreachableError:
            raise
        except BaseException:
            self.volumes.pop(name, None)
            raise

    def attach_disk(
        self,
        vm_id: str,
        *,
        assignment_id: str,
        pool: str,
        volume: str,
        serial: str,
        deadline_s: float | None = None,
    ) -> None:
        self._do(
            "attach_disk",
            vm_id,
            lambda: self._attach_disk(vm_id, assignment_id, pool, volume, serial),
        )

    def detach_disk(
        self, vm_id: str, *, assignment_id: str, serial: str, deadline_s: float | None = None
    ) -> bool:
        return self._do(
            "detach_disk", vm_id, lambda: self._detach_disk(vm_id, assignment_id, serial)
        )

    def abort_move(self, vm_id: str, *, deadline_s: float | None = None) -> None:
        self._do("abort_move", vm_id, lambda: self.moving.discard(vm_id))

    def has_volume(self, pool: str, name: str, *, deadline_s: float | None = None) -> bool:
        self._check_pool("has_volume", pool)
        return self._do("has_volume", name, lambda: name in self.volumes)

    def overlays_of(self, pool: str, name: str, *, deadline_s: float | None = None) -> list[str]:
        self._check_pool("layers_on", pool)
        return self._do("layers_on", name, lambda: sorted(self.layers.get(name, ())))

    def domains_using(
        self, pool: str, volumes: Sequence[str], *, deadline_s: float | None = None
    ) -> list[str]:
        self._check_pool("users_of", pool)
        users = {domain for name, domain in self.users.items() if name in volumes}
        users |= {each.name for name in volumes for each in self._domains_with(name)}
        return self._do("users_of", ",".join(volumes), lambda: sorted(users))

    def delete_volume(self, pool: str, name: str, *, deadline_s: float | None = None) -> None:
        self._do("delete_volume", name, lambda: self._delete_volume(pool, name))

    def files_removed_with(
        self,
        vm_id: str,
        *,
        assignment_id: str,
        pool: str,
        volumes: Sequence[str],
        deadline_s: float | None = None,
    ) -> list[str]:
        self._check_pool("files_removed_with", pool)
        found = {layer for name in volumes for layer in self.layers.get(name, ())}
        return self._do("files_removed_with", vm_id, lambda: sorted(found - set(volumes)))

    def remove(
        self,
        vm_id: str,
        *,
        assignment_id: str,
        generation: int | None,
        pool: str,
        volumes: Sequence[str],
        deadline_s: float | None = None,
    ) -> bool:
        return self._do(
            "remove", vm_id, lambda: self._remove(vm_id, assignment_id, generation, pool, volumes)
        )

    def console_tail(
        self, vm_id: str, max_bytes: int = 65536, *, after: int = 0, deadline_s: float | None = None
    ) -> ConsoleTail:
        return self._do("console_tail", vm_id, lambda: self._console_tail(vm_id, max_bytes, after))

    def open_console(self, vm_id: str, *, force: bool, deadline_s: float | None = None) -> None:
        self._do("open_console", vm_id, lambda: self._open_console(vm_id, force))

    def exchange_console(
        self, typed: bytes, *, wait_s: float, deadline_s: float | None = None
    ) -> ConsoleExchange:
        held = self.held_console or "none"
        return self._do("exchange_console", held, lambda: self._exchange_console(typed))

    def release_console(self, *, deadline_s: float | None = None) -> None:
        self._do("release_console", self.held_console or "none", self._release_console)

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> FakeHypervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the host -------------------------------------------------------------------

    def _do(self, op: str, subject: str, action: Callable[[], T]) -> T:
        before = self._before.pop(op, None)
        if before is not None:
            before()
        with self._lock:
            self.log.append((op, subject))
            if self.unreachable:
                raise HostUnreachableError(self.uri, "told to be unreachable")
            fault = self._next_fault(op)
            if fault is not None and not fault.after:
                raise fault.error
            result = action()
            if fault is not None:
                raise fault.error
            return result

    def _next_fault(self, op: str) -> OperationFault | None:
        faults = self._faults[op]
        while faults and faults[0].times == 0:
            faults.pop(0)
        if not faults:
            return None
        faults[0].times -= 1
        return faults[0]

    def _check_pool(self, op: str, pool: str) -> None:
        if pool != self.pool:
            raise OperationFailedError(op, f"no storage pool with matching name '{pool}'", 49)

    def _report(self, pool: str) -> HostPoll:
        self._check_pool("report", pool)
        used = sum(volume.allocation_bytes for volume in self.volumes.values())
        if self.pool_silent_s is not None:
            return replace(
                self._answered(used),
                disk_gib=None,
                disk_used_gib=None,
                volumes=(),
                pool_silent_s=self.pool_silent_s,
            )
        return self._answered(used)

    def _answered(self, used: int) -> HostPoll:
        return HostPoll(
            hostname=self.hostname,
            machine_uuid=self.machine_uuid,
            vcpus=self.vcpus,
            memory_mib=self.memory_mib,
            disk_gib=self.disk_gib,
            cpu_busy_percent=0.0,
            memory_used_mib=0,
            disk_used_gib=-(-used // GIB),
            domains=tuple(self._with_disk(self.domains[uuid]) for uuid in sorted(self.domains)),
            volumes=tuple(self.volumes[name] for name in sorted(self.volumes)),
        )

    def _with_disk(self, seen: HostDomain) -> HostDomain:
        _, name = self._volume_of.get(seen.uuid, ("", ""))
        volume = self.volumes.get(name)
        return seen if volume is None else replace(seen, disk_gib=volume.capacity_bytes // GIB)

    def _create_overlay(
        self, pool: str, name: str, base_volume: str | None, capacity_gib: int
    ) -> None:
        self._check_pool("create_overlay", pool)
        if name in self.volumes:
            return
        if base_volume is not None and base_volume not in self.volumes:
            raise OperationFailedError(
                "create_overlay", f"pool {pool} has no base volume {base_volume}"
            )
        if self.pool_full:
            raise OperationFailedError("create_overlay", "No space left on device", 38)
        self.volumes[name] = HostVolume(
            name=name, capacity_bytes=capacity_gib * GIB, allocation_bytes=200704
        )

    def _put_volume(self, pool: str, name: str, content: bytes) -> None:
        self._check_pool("put_volume", pool)
        if self.pool_full:
            raise OperationFailedError("put_volume", "No space left on device", 38)
        size = len(content)
        self.volumes[name] = HostVolume(name=name, capacity_bytes=size, allocation_bytes=size)
        self.contents[name] = content

    def _define(self, spec: DomainSpec) -> None:
        seen = self.domains.get(spec.mark.vm_id)
        if seen is not None:
            if not _same(seen.mark, spec.mark):
                raise OperationFailedError("define", f"domain {spec.mark.vm_id} is another's")
            return
        if any(other.name == spec.name for other in self.domains.values()):
            raise OperationFailedError("define", f"domain '{spec.name}' already exists", 9)
        self.domains[spec.mark.vm_id] = HostDomain(
            uuid=spec.mark.vm_id,
            name=spec.name,
            state=DomainState.STOPPED,
            vcpus=spec.vcpus,
            memory_mib=spec.memory_mib,
            mark=spec.mark,
        )
        self.specs[spec.mark.vm_id] = spec
        self._volume_of[spec.mark.vm_id] = (spec.pool, spec.volume)

    def _expect(self, op: str, vm_id: str) -> HostDomain:
        if vm_id not in self.domains:
            raise OperationFailedError(op, f"no domain {vm_id}", 42)
        return self.domains[vm_id]

    def _set(self, vm_id: str, state: DomainState) -> None:
        off = state is DomainState.STOPPED
        run = None if off else self.domains[vm_id].run
        self.domains[vm_id] = replace(
            self.domains[vm_id], state=state, run=run, paused_by_move=False
        )

    def _is_in_run(self, vm_id: str, run: int) -> bool:
        seen = self.domains.get(vm_id)
        return seen is not None and seen.run == run

    def _attach_disk(
        self, vm_id: str, assignment_id: str, pool: str, volume: str, serial: str
    ) -> None:
        seen = self._expect("attach_disk", vm_id)
        if seen.mark is None or seen.mark.assignment_id != assignment_id:
            raise OperationFailedError("attach_disk", f"domain {vm_id} has not the mark")
        self._refuse_while_moved("attach_disk", vm_id)
        self._check_pool("attach_disk", pool)
        if not volume.startswith("fuga-volume-") or not serial or len(serial) > MAX_SERIAL:
            raise OperationFailedError("attach_disk", f"{volume} or {serial} is no name")
        if volume not in self.volumes:
            raise OperationFailedError("attach_disk", f"pool {pool} has no volume {volume}", 50)
        its = self.attached.setdefault(vm_id, {})
        if its.get(serial) == volume:
            return
        if serial in its or volume in its.values():
            raise OperationFailedError("attach_disk", f"domain {vm_id} has {serial} or {volume}")
        if users := [each.name for each in self._domains_with(volume)]:
            raise OperationFailedError("attach_disk", f"volume {volume} is used by domain {users}")
        its[serial] = volume
        self._show_attached(vm_id)

    def _detach_disk(self, vm_id: str, assignment_id: str, serial: str) -> bool:
        seen = self.domains.get(vm_id)
        if seen is None:
            return True
        its = self.attached.get(vm_id, {})
        if seen.mark is None or seen.mark.assignment_id != assignment_id:
            if serial in its:
                raise OperationFailedError("detach_disk", f"domain {vm_id} has not the mark")
            return True
        self._refuse_while_moved("detach_disk", vm_id)
        if seen.state is not DomainState.STOPPED and vm_id in self.clinging and serial in its:
            return False
        its.pop(serial, None)
        self._show_attached(vm_id)
        return True

    def _show_attached(self, vm_id: str) -> None:
        its = self.attached.get(vm_id, {})
        self.domains[vm_id] = replace(
            self.domains[vm_id],
            attached=tuple(sorted(its)),
            volume_files=tuple(sorted(its.values())),
        )

    def _domains_with(self, volume: str) -> list[HostDomain]:
        return [
            each
            for each in self.domains.values()
            if self.volume_of(each.uuid) == volume
            or volume in self.attached.get(each.uuid, {}).values()
        ]

    def _refuse_while_moved(self, op: str, vm_id: str) -> None:
        if vm_id in self.moving:
            raise OperationFailedError(op, f"a move of domain {vm_id} is under way", 87)

    def _shut_down(self, vm_id: str, run: int) -> None:
        if not self._is_in_run(vm_id, run):
            return
        self._refuse_while_moved("shut_down", vm_id)
        if vm_id not in self.deaf:
            self._set(vm_id, DomainState.STOPPED)

    def _power_off(self, vm_id: str, run: int) -> None:
        if self._is_in_run(vm_id, run):
            self._set(vm_id, DomainState.STOPPED)

    def _reset(self, vm_id: str, run: int) -> None:
        if not self._is_in_run(vm_id, run):
            raise OperationFailedError("reset", f"domain {vm_id} is off or was restarted")
        self._refuse_while_moved("reset", vm_id)
        self._set(vm_id, DomainState.RUNNING)

    def _start_paused(self, vm_id: str, guard: Guard | None) -> None:
        seen = self._expect("start_paused", vm_id)
        if seen.state is not DomainState.STOPPED:
            return
        _, volume = self._volume_of.get(vm_id, ("", ""))
        if volume and volume not in self.volumes:
            raise OperationFailedError(
                "start_paused", f"no storage vol with matching name '{volume}'", 50
            )
        self.started.append(vm_id)
        self._runs += 1
        self.guards[vm_id] = guard
        self.domains[vm_id] = replace(seen, state=DomainState.PAUSED, run=self._runs)

    def _resume(self, vm_id: str) -> None:
        seen = self._expect("resume", vm_id)
        self._refuse_while_moved("resume", vm_id)
        if seen.state is DomainState.STOPPED:
            raise OperationFailedError("resume", f"domain {vm_id} is off")
        if seen.state is DomainState.PAUSED:
            by_move = seen.paused_by_move
            self._set(vm_id, DomainState.RUNNING)
            if by_move:
                return  # it goes on where it stood
            self.consoles[vm_id] = f"LAB-GUEST-READY uuid={vm_id}\r\n".encode()

    def _destroy(self, vm_id: str, mark: Mark | None) -> None:
        seen = self.domains.get(vm_id)
        if seen is not None and (mark is None or _same(seen.mark, mark)):
            if vm_id in self.moving and seen.paused_by_move:
                self.forget_left(vm_id)  # what arrives is not defined yet
            else:
                self._set(vm_id, DomainState.STOPPED)

    def _undefine(self, vm_id: str, mark: Mark | None) -> None:
        seen = self.domains.get(vm_id)
        if seen is None or not (mark is None or _same(seen.mark, mark)):
            return
        if seen.state is not DomainState.STOPPED:
            raise OperationFailedError("undefine", f"domain {vm_id} still runs")
        del self.domains[vm_id]
        self.attached.pop(vm_id, None)

    def _write(self, name: str, size_bytes: int) -> None:
        self.volumes[name] = HostVolume(
            name=name, capacity_bytes=size_bytes, allocation_bytes=size_bytes
        )

    def _console_tail(self, vm_id: str, max_bytes: int, after: int) -> ConsoleTail:
        log = self.consoles.get(vm_id, b"")
        start = max(0, len(log) - max_bytes, after if after <= len(log) else 0)
        return ConsoleTail(content=log[start:], end=len(log))

    def _open_console(self, vm_id: str, force: bool) -> None:
        if self._expect("open_console", vm_id).state is DomainState.STOPPED:
            raise OperationFailedError("open_console", "domain is not running", 55)
        if self.held_console is not None and not force:
            raise OperationFailedError("open_console", "Active console session exists", 9)
        self.held_console, self._heard = vm_id, b""

    def _exchange_console(self, typed: bytes) -> ConsoleExchange:
        """The guest answers each line, like the guest of the lab; it is off: the end."""
        held = self.held_console
        if held is None:
            raise OperationFailedError("exchange_console", "none is held here")
        if held not in self.domains or self.domains[held].state is DomainState.STOPPED:
            self.held_console = None
            return ConsoleExchange(taken=0, content=b"", ended=True)
        *lines, self._heard = (self._heard + typed).split(b"\r")
        answers = b"".join(b"LAB-GUEST-HEARD " + line + b"\r\n" for line in lines)
        self.consoles[held] = self.consoles.get(held, b"") + answers
        return ConsoleExchange(taken=len(typed), content=answers, ended=False)

    def _release_console(self) -> None:
        self.held_console = None

    def _delete_volume(self, pool: str, name: str) -> None:
        self._check_pool("delete_volume", pool)
        if name in self.users:
            raise OperationFailedError(
                "remove", f"{name}: not deleted, as domain {self.users[name]} uses it"
            )
        if users := [each for each in self.attached if name in self.attached[each].values()]:
            raise OperationFailedError("remove", f"{name}: not deleted, as {users} use it")
        self.volumes.pop(name, None)

    def _remove(
        self,
        vm_id: str,
        assignment_id: str,
        generation: int | None,
        pool: str,
        volumes: Sequence[str],
    ) -> bool:
        seen = self.domains.get(vm_id)
        if seen is not None:
            if seen.mark is None:
                return False
            if seen.mark.assignment_id == assignment_id:
                if generation not in {None, seen.mark.generation}:
                    return False
                self.forget_left(vm_id)
        for volume in volumes:
            self._delete_volume(pool, volume)
        if vm_id not in self.domains:
            self.consoles.pop(vm_id, None)
        return True


def _check_content(path: str, content: bytes, sha256: str) -> None:
    if hashlib.sha256(content).hexdigest() != sha256:
        raise OperationFailedError("upload", f"the SHA-256 of {path} is no more {sha256}")


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise OperationFailedError("upload", f"{path} cannot be read: {error}") from error


def _same(one: Mark | None, other: Mark) -> bool:
    return one is not None and (one.assignment_id, one.generation) == (
        other.assignment_id,
        other.generation,
    )
