"""Live migration, managed by this process. In the child process only.

libvirt calls this client-managed migration: begin and perform are calls to the source, prepare and
finish to the destination. If the client ends, the move is cancelled.
"""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import libvirt

from hypervisor.child import disks, filters, migrating_domains, shared_pools
from hypervisor.child.domains import attachments
from hypervisor.child.move_hosts import MoveHosts
from hypervisor.errors import HostUnreachableError, MoveHangsError, OperationFailedError
from hypervisor.move_model import MigrationProgress, MoveResult, MoveSpec
from hypervisor.xml import domain as domain_xml
from hypervisor.xml import migration_target

_OPERATION: Final = "live_move"
_REPORT_EVERY_S: Final = 0.5
#: Interval between aborts. One abort does not stop a phase that begins after it.
_ABORT_EVERY_S: Final = 0.5
_NOTICED_S: Final = 0.05  #: interval of checks whether the move has ended
#: Time without progress after which a move counts as hung while the guest is paused.
_STANDSTILL_S: Final = 10.0
#: Attempts with other ports while a chosen port is taken.
_PAIRS: Final = 8
#: Messages for a taken port, by QEMU and by libvirt, which leaks the ports of failed moves until it
#: restarts.
_TAKEN: Final = ("Address already in use", "Failed to reserve port")
_MIGRATABLE: Final = libvirt.VIR_DOMAIN_XML_MIGRATABLE | libvirt.VIR_DOMAIN_XML_SECURE
_DEFINED: Final = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE


def move_running_vm(
    hosts: MoveHosts,
    spec: MoveSpec,
    stop: threading.Event,
    on_progress: Callable[[MigrationProgress], object],
) -> MoveResult:
    """Move a running guest; abort the move when ``stop`` is set.

    Raises libvirtError, OperationFailedError or HostUnreachableError. After the move has begun,
    none of them says where the guest is. After a MoveHangsError, libvirt's call still runs, and
    this process has to end first.
    """
    moving = _LiveMove(hosts, spec, stop, on_progress)
    for _ in range(_PAIRS - 1):
        with contextlib.suppress(_PortTakenError):
            return _move_with_share_fallback(moving, hosts)
    try:
        return _move_with_share_fallback(moving, hosts)
    except _PortTakenError as taken:
        raise taken.__cause__ or taken from None


def _move_with_share_fallback(moving: _LiveMove, hosts: MoveHosts) -> MoveResult:
    """Move a guest with CPU shares; without, if the destination refuses them."""
    # A host without the cpu controller of cgroups refuses CPU shares only after it started QEMU. So
    # this is checked before, if the host reports it.
    if hosts.destination.may_have_cpu_shares():
        try:
            return moving.attempt(shares=True)
        except _SharesRefusedError:
            hosts.destination.record_shares_refused()
    return moving.attempt(shares=False)


class _SharesRefusedError(Exception):
    """The destination refuses CPU shares."""


class _PortTakenError(Exception):
    """One of the chosen ports is taken."""


class _MigrationCall(threading.Thread):
    """libvirt's migration call in a thread of its own, which ends with the move."""

    def __init__(
        self,
        domain: libvirt.virDomain,
        destination: libvirt.virConnect,
        parameters: Mapping[str, Any],
        flags: int,
    ) -> None:
        super().__init__(name="move", daemon=True)
        self._call = (domain, destination, dict(parameters), flags)
        self.error: libvirt.libvirtError | None = None
        self.start()

    def run(self) -> None:
        """Call libvirt's migration, and store its error."""
        domain, destination, parameters, flags = self._call
        try:
            domain.migrate3(destination, parameters, flags)
        except libvirt.libvirtError as error:
            self.error = error


class _LiveMove:
    """The live move of one guest; attempts repeat while nothing has been copied."""

    def __init__(
        self,
        hosts: MoveHosts,
        spec: MoveSpec,
        stop: threading.Event,
        on_progress: Callable[[MigrationProgress], object],
    ) -> None:
        self._hosts = hosts
        self._spec = spec
        self._stop = stop
        self._on_progress = on_progress
        self._started = time.monotonic()
        self._last: MigrationProgress | None = None
        self._downtime_ms: int | None = None  #: set on the domain once the move is under way
        self._attempts = 0

    def attempt(self, *, shares: bool) -> MoveResult:
        """Move the guest, with or without CPU shares at the destination."""
        domain = self._hosts.source.for_move.lookupByUUIDString(self._spec.vm_id)
        attachments.refuse_attached_disks(domain)
        if not self._spec.copy_disk:
            shared_pools.check_pool_shared(self._hosts, self._spec, domain)
        parameters = _migration_parameters(self._hosts, domain, self._spec, shares=shares)
        watched = self._hosts.source.for_queries.lookupByUUIDString(self._spec.vm_id)
        self._started, self._downtime_ms = time.monotonic(), self._spec.downtime_ms
        self._attempts += 1
        if self._stop.is_set():
            raise OperationFailedError(_OPERATION, "it was called off before it was begun")
        call = _MigrationCall(
            domain, self._hosts.destination.for_move, parameters, _migration_flags(self._spec)
        )
        why = self._watch_migration(call, watched)
        if call.error is None:
            self._resume_at_destination()
            done = _move_result(self._hosts, self._spec, self._last, self._started)
            return replace(done, attempts=self._attempts)
        if why is not None:
            raise self._abort_error(why, call.error)
        if shares and call.error.get_error_code() == libvirt.VIR_ERR_CONFIG_UNSUPPORTED:
            self._attempts -= 1
            raise _SharesRefusedError
        if any(words in str(call.error) for words in _TAKEN):
            raise _PortTakenError from call.error
        raise call.error

    def _resume_at_destination(self) -> None:
        """Resume the guest at the destination, after the source has dropped it."""
        there = self._hosts.destination.for_queries.lookupByUUIDString(self._spec.vm_id)
        if there.state()[0] == libvirt.VIR_DOMAIN_PAUSED:
            there.resume()

    def _watch_migration(self, call: _MigrationCall, watched: libvirt.virDomain) -> str | None:
        """Report progress until the migration is over; return why it was aborted, or None."""
        why: str | None = None
        aborted_at = time.monotonic()
        hangs = _HangDetector(self._spec)
        while call.is_alive():
            if why is None:
                aborted_at = time.monotonic()
            if why is None and self._stop.is_set():
                why = "it was called off"
            if why is None and not self._hosts.destination.is_alive():
                # The source's QEMU may wait for the destination for ever.
                why = "the destination does not answer any more"
            if why is None:
                with contextlib.suppress(libvirt.libvirtError):  # the move is over or has not begun
                    self._report_progress(watched)
                hangs.check(self._last, watched)
                self._wait_for_event(call)
            else:
                migrating_domains.abort_move(watched, since=aborted_at)
                call.join(_ABORT_EVERY_S)
        return why

    def _report_progress(self, watched: libvirt.virDomain) -> None:
        """Report the progress of the migration, and set the guest's downtime limit once."""
        found = watched.jobStats()
        if found.get("type", libvirt.VIR_DOMAIN_JOB_NONE) == libvirt.VIR_DOMAIN_JOB_NONE:
            return
        self._last = _read_progress(found)
        self._on_progress(self._last)
        if self._downtime_ms is not None:
            watched.migrateSetMaxDowntime(self._downtime_ms, 0)
            self._downtime_ms = None

    def _wait_for_event(self, call: _MigrationCall) -> None:
        """Wait until the next report is due, the move is over, or a stop is requested."""
        until = time.monotonic() + _REPORT_EVERY_S
        while call.is_alive() and not self._stop.is_set() and time.monotonic() < until:
            call.join(_NOTICED_S)

    def _abort_error(self, why: str, error: libvirt.libvirtError) -> Exception:
        """Return the error of an aborted move: the destination is silent, or the move failed."""
        if not self._hosts.destination.is_alive():
            return HostUnreachableError(self._hosts.destination.uri, f"{why}: {error}")
        return OperationFailedError(_OPERATION, f"{why}: {error}", error.get_error_code())


class _HangDetector:
    """Detects a move that makes no progress."""

    def __init__(self, spec: MoveSpec) -> None:
        self._spec = spec
        self._seen: tuple[int, ...] = ()
        self._since = time.monotonic()

    def check(self, progress: MigrationProgress | None, guest: libvirt.virDomain) -> None:
        """Raise `MoveHangsError` if the migration sent nothing for too long."""
        seen = () if progress is None else _progress_counters(progress)
        if seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        waited_s = time.monotonic() - self._since
        most_s = self._spec.hang_s
        if waited_s < min(most_s, _STANDSTILL_S):
            return
        try:
            stands_still = migrating_domains.is_paused_by_move(guest)
        except libvirt.libvirtError:  # the connection check reports that
            return
        if stands_still or waited_s >= most_s:
            first, last = self._spec.ports
            standing = "the guest stands still, and " if stands_still else ""
            raise MoveHangsError(
                _OPERATION,
                f"{standing}nothing of its memory or disk was sent for {waited_s:.0f} s: the hosts"
                " do not reach each other, or other processes hold the destination's ports; let a"
                f" firewall open ports {first} to {last} to hosts alone",
                begun=any(seen),
            )


def _progress_counters(progress: MigrationProgress) -> tuple[int, ...]:
    """Return the counters of a migration that change while it makes progress."""
    return (
        progress.memory_total_bytes,
        progress.memory_remaining_bytes,
        progress.disk_total_bytes,
        progress.disk_remaining_bytes,
        progress.iteration,
    )


def _migration_flags(spec: MoveSpec) -> int:
    """Return libvirt's flags of a live migration."""
    flags: int = (
        libvirt.VIR_MIGRATE_LIVE
        | libvirt.VIR_MIGRATE_PERSIST_DEST
        | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
        | libvirt.VIR_MIGRATE_ABORT_ON_ERROR
        # If the destination's last answer is lost, libvirt resumes the guest at the source, though
        # the destination may run it, too. So the guest arrives paused.
        | libvirt.VIR_MIGRATE_PAUSED
    )
    for wanted, flag in (
        (spec.copy_disk, libvirt.VIR_MIGRATE_NON_SHARED_INC),
        # libvirt may not know that both hosts share the folder; `shared_pools` has proven it.
        (not spec.copy_disk, libvirt.VIR_MIGRATE_UNSAFE),
        (spec.auto_converge, libvirt.VIR_MIGRATE_AUTO_CONVERGE),
        (spec.encrypt, libvirt.VIR_MIGRATE_TLS),
    ):
        flags |= flag if wanted else 0
    return flags


def _migration_parameters(
    hosts: MoveHosts, domain: libvirt.virDomain, spec: MoveSpec, *, shares: bool
) -> Mapping[str, Any]:
    """Return libvirt's parameters of a live migration: domain XML, ports and limits."""
    destination = hosts.destination.for_move
    files = disks.files_in_pool(destination, spec.pool, spec.volume, spec.seed_volume)
    live = migration_target.destination_xml(domain.XMLDesc(_MIGRATABLE), spec, files, shares=shares)
    defined = migration_target.destination_xml(domain.XMLDesc(_DEFINED), spec, files, shares=shares)
    filters.define_filter(destination, domain_xml.parse_tree(live), spec.guard)
    parameters: dict[str, Any] = {
        libvirt.VIR_MIGRATE_PARAM_DEST_XML: live,
        libvirt.VIR_MIGRATE_PARAM_PERSIST_XML: defined,
    }
    if spec.bandwidth_mib_s is not None:
        parameters[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH] = spec.bandwidth_mib_s
    return {**parameters, **_destination_parameters(spec)}


def _destination_parameters(spec: MoveSpec) -> Mapping[str, Any]:
    """Return the migration parameters of the destination's address and of random ports.

    libvirt's own choice, the first free ports, is predictable. Without an address only
    libvirt knows the URI, so the port for memory is libvirt's.
    """
    memory, disks_ = secrets.SystemRandom().sample(range(spec.ports[0], spec.ports[1] + 1), 2)
    parameters: dict[str, Any] = {}
    if spec.copy_disk:
        parameters[libvirt.VIR_MIGRATE_PARAM_DISKS_PORT] = disks_
    if spec.address is not None:
        shown = f"[{spec.address}]" if ":" in spec.address else spec.address
        parameters[libvirt.VIR_MIGRATE_PARAM_URI] = f"tcp://{shown}:{memory}"
        # A name may resolve to another address at the destination, such as loopback.
        with contextlib.suppress(ValueError):
            listening = str(ipaddress.ip_address(spec.address))
            parameters[libvirt.VIR_MIGRATE_PARAM_LISTEN_ADDRESS] = listening
    return parameters


def _move_result(
    hosts: MoveHosts, spec: MoveSpec, last: MigrationProgress | None, started: float
) -> MoveResult:
    """Return duration, downtime and bytes of a live move, as the destination reports them."""
    found: Mapping[str, Any] = {}
    with contextlib.suppress(libvirt.libvirtError):
        there = hosts.destination.for_queries.lookupByUUIDString(spec.vm_id)
        found = there.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)
    last_memory = 0 if last is None else last.memory_total_bytes
    last_disk = 0 if last is None else last.disk_total_bytes
    return MoveResult(
        total_ms=round(1000 * (time.monotonic() - started)),
        downtime_ms=found.get("downtime"),
        memory_bytes=found.get("memory_processed", last_memory),
        disk_bytes=found.get("disk_processed", last_disk),
    )


def _read_progress(found: Mapping[str, Any]) -> MigrationProgress:
    """Return the progress of a migration from libvirt's job statistics."""
    return MigrationProgress(
        elapsed_ms=found.get("time_elapsed", 0),
        memory_total_bytes=found.get("memory_total", 0),
        memory_remaining_bytes=found.get("memory_remaining", 0),
        disk_total_bytes=found.get("disk_total", 0),
        disk_remaining_bytes=found.get("disk_remaining", 0),
        rate_bytes_s=found.get("memory_bps", 0) or found.get("disk_bps", 0),
        iteration=found.get("memory_iteration", 0),
    )
