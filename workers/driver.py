"""The infrastructure managers' interfaces to hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from hypervisor import (
    ConsoleExchange,
    ConsoleTail,
    DomainSpec,
    Guard,
    HostDomain,
    Mark,
    MigrationProgress,
    MoveResult,
    MoveSpec,
)
from registry.hosts import HostAccess


class HostDriver(Protocol):
    """The operations of a worker on one host.

    Every call is bounded. It raises `HostUnreachableError` if the host did not answer in time (the
    outcome is unknown then), and `OperationFailedError` if the host answered with an error. All
    calls may be repeated.
    """

    def find(self, vm_id: str, *, deadline_s: float | None = None) -> HostDomain | None:
        """Return the domain with this UUID on the host, also a foreign one; None if none."""

    def create_overlay(
        self,
        *,
        pool: str,
        name: str,
        base_volume: str | None,
        base_format: str | None,
        capacity_gib: int,
    ) -> None:
        """Create a qcow2 overlay on a base image, if no volume has that name."""

    def has_volume(self, pool: str, name: str) -> bool:
        """Return whether a pool has a volume, which another host may have made."""

    def overlays_of(self, pool: str, name: str) -> list[str]:
        """Return the names of files in a pool whose backing chain contains a VM's disk."""

    def put_volume(self, pool: str, name: str, content: bytes) -> None:
        """Create a small raw volume on the host; replace an existing one."""

    def define(self, spec: DomainSpec) -> None:
        """Define a domain; raises if a domain with its UUID has another mark."""

    def start_paused(self, vm_id: str, *, guard: Guard | None = None) -> None:
        """Start a domain paused, with the guard's network filters, if it is not started."""

    def resume(self, vm_id: str) -> None:
        """Resume a paused domain, if it does not run."""

    def shut_down(self, vm_id: str, *, run: int) -> None:
        """Press a domain's power button, if the domain is still in this run."""

    def power_off(self, vm_id: str, *, run: int) -> None:
        """Cut the power of a domain, if it is still in this run."""

    def reset(self, vm_id: str, *, run: int) -> None:
        """Press a domain's reset button; raises if the domain is off or in another run."""

    def destroy(self, vm_id: str, *, mark: Mark | None = None) -> None:
        """Stop a domain hard, if it exists and, when ``mark`` is given, has this mark."""

    def files_removed_with(
        self, vm_id: str, *, assignment_id: str, pool: str, volumes: Sequence[str]
    ) -> list[str]:
        """Return the names of files that `remove` deletes with these volumes."""

    def remove(
        self,
        vm_id: str,
        *,
        assignment_id: str,
        generation: int | None,
        pool: str,
        volumes: Sequence[str],
    ) -> bool:
        """Remove an attempt's domain and volumes; return whether they are proven absent."""

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
        """Upload an image into a new volume; a failed upload deletes the volume if possible."""

    def console_tail(
        self, vm_id: str, max_bytes: int, *, after: int = 0, deadline_s: float | None = None
    ) -> ConsoleTail:
        """Return the last bytes of a domain's serial log after the offset ``after``."""

    def open_console(self, vm_id: str, *, force: bool, deadline_s: float | None = None) -> None:
        """Hold a domain's console; raises if another client holds it, unless ``force``."""

    def exchange_console(
        self, typed: bytes, *, wait_s: float, deadline_s: float | None = None
    ) -> ConsoleExchange:
        """Type into the held console of a domain, and return what the guest wrote."""

    def release_console(self, *, deadline_s: float | None = None) -> None:
        """Release the held console of a domain."""

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
        """Attach a data volume to a VM as a disk, if it has none of that serial number."""

    def detach_disk(
        self, vm_id: str, *, assignment_id: str, serial: str, deadline_s: float | None = None
    ) -> bool:
        """Detach a disk of a VM; return whether the VM has released it."""

    def abort_move(self, vm_id: str) -> None:
        """Abort a move of a domain away from this host, if any."""

    def domains_using(
        self, pool: str, volumes: Sequence[str], *, deadline_s: float | None = None
    ) -> list[str]:
        """Return the names of domains whose disks or backing chains contain these volumes."""

    def delete_volume(self, pool: str, name: str) -> None:
        """Delete a volume if it exists; raises while a domain uses it."""


class Migrator(Protocol):
    """Moves one VM between two hosts.

    After `MigrationRefusedError` nothing was begun. After other errors the guest may be on either
    host: check both.
    """

    def check(self, spec: MoveSpec) -> None:
        """Raise `MigrationRefusedError` if the destination cannot take the VM."""

    def move_live(
        self, spec: MoveSpec, *, deadline_s: float, on_progress: Callable[[MigrationProgress], None]
    ) -> MoveResult:
        """Move a running guest. An error of ``on_progress`` aborts the move and is raised again."""

    def move_cold(
        self, spec: MoveSpec, *, deadline_s: float, on_progress: Callable[[MigrationProgress], None]
    ) -> MoveResult:
        """Copy the disk of a stopped VM, and define it at the destination."""


class HostDrivers(Protocol):
    """Lends a driver for a host."""

    def migrator(
        self, source: HostAccess, destination: HostAccess
    ) -> AbstractContextManager[Migrator]:
        """Lend a migrator from ``source`` to ``destination``, for use by one thread."""

    def use(self, host: HostAccess) -> AbstractContextManager[HostDriver]:
        """Lend a driver of a host, for use by one thread."""
