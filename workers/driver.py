"""What infrastructure managers need of a host, and nothing else of it."""

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
    MoveDone,
    MoveSpec,
)
from registry.hosts import HostAccess


class HostDriver(Protocol):
    """Acts on one host.

    Every call is bounded: it raises `HostUnreachableError` when the host did not
    answer in time (which says nothing about what it did) and
    `OperationFailedError` when it answered and refused. All may be repeated.
    """

    def find(self, vm_id: str, *, deadline_s: float | None = None) -> HostDomain | None:
        """Return the domain with this UUID, ours or not."""

    def create_overlay(
        self,
        *,
        pool: str,
        name: str,
        base_volume: str | None,
        base_format: str | None,
        capacity_gib: int,
    ) -> None:
        """Create a qcow2 volume on the base image; one of that name may be there already."""

    def has_volume(self, pool: str, name: str) -> bool:
        """Return whether a pool has a volume, which another host may have made."""

    def overlays_of(self, pool: str, name: str) -> list[str]:
        """Return the names of files of a pool that rest on a VM's disk, as snapshots make them."""

    def put_volume(self, pool: str, name: str, content: bytes) -> None:
        """Make a small raw volume, in place of one of that name."""

    def define(self, spec: DomainSpec) -> None:
        """Define a domain; refused where its UUID carries another mark."""

    def start_paused(self, vm_id: str, *, guard: Guard | None = None) -> None:
        """Start a domain, with such cards, without letting it run; nothing if it is started."""

    def resume(self, vm_id: str) -> None:
        """Let a domain run; nothing if it does."""

    def shut_down(self, vm_id: str, *, run: int) -> None:
        """Press the power button; nothing if it is off or in another run."""

    def power_off(self, vm_id: str, *, run: int) -> None:
        """Cut the power; nothing if it is off or in another run."""

    def reset(self, vm_id: str, *, run: int) -> None:
        """Press the reset button; refused if it is off or in another run."""

    def destroy(self, vm_id: str, *, mark: Mark | None = None) -> None:
        """Stop a domain hard, only if it is this attempt's; nothing if it is absent."""

    def remove(
        self,
        vm_id: str,
        *,
        assignment_id: str,
        generation: int | None,
        pool: str,
        volumes: Sequence[str],
    ) -> bool:
        """Remove an attempt's domain and volumes, look again, return whether all are gone."""

    def upload(
        self,
        *,
        pool: str,
        name: str,
        path: str,
        size_bytes: int,
        sha256: str,
        tell: Callable[[int], None],
        head: bytes = b"",
        margin_bytes: int = 0,
        deadline_s: float | None = None,
    ) -> None:
        """Bring a file into a new volume; an upload that ends early leaves none where it can."""

    def console_tail(
        self, vm_id: str, max_bytes: int, *, after: int = 0, deadline_s: float | None = None
    ) -> ConsoleTail:
        """Return the last bytes of a domain's serial log, of those after ``after``."""

    def open_console(self, vm_id: str, *, force: bool, deadline_s: float | None = None) -> None:
        """Hold a domain's console; refused if another holds it, unless ``force``."""

    def exchange_console(
        self, typed: bytes, *, wait_s: float, deadline_s: float | None = None
    ) -> ConsoleExchange:
        """Type into the console that is held, and return what the guest wrote."""

    def release_console(self, *, deadline_s: float | None = None) -> None:
        """Let go of the console that is held."""

    def abort_move(self, vm_id: str) -> None:
        """End a move of a domain away from this host; there is none: nothing."""

    def domains_using(
        self, pool: str, volumes: Sequence[str], *, deadline_s: float | None = None
    ) -> list[str]:
        """Return the names of domains whose disks are, or rest on, volumes of a pool."""

    def delete_volume(self, pool: str, name: str) -> None:
        """Delete a volume; nothing if it is absent; refused while a domain uses it."""


class Migrator(Protocol):
    """Moves one VM between two hosts.

    `MoveRefusedError` says that nothing was begun. Of the other errors none says where the
    guest is: ask both hosts.
    """

    def check(self, spec: MoveSpec) -> None:
        """Raise `MoveRefusedError` where the destination cannot take the VM."""

    def live(
        self, spec: MoveSpec, *, deadline_s: float, tell: Callable[[MigrationProgress], None]
    ) -> MoveDone:
        """Move a guest that runs; an error of ``tell`` aborts it, and is raised again."""

    def cold(
        self, spec: MoveSpec, *, deadline_s: float, tell: Callable[[MigrationProgress], None]
    ) -> MoveDone:
        """Copy the disk of a VM that is off, and define it at the destination."""


class HostDrivers(Protocol):
    """Lends a driver for a host."""

    def mover(
        self, source: HostAccess, destination: HostAccess
    ) -> AbstractContextManager[Migrator]:
        """Lend what moves VMs from one host to another, to one thread."""

    def use(self, host: HostAccess) -> AbstractContextManager[HostDriver]:
        """Lend a driver to one thread."""
