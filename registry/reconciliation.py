"""Differences between the ledger and a host, and the remedy of each, without SQL.

`mark_difference` and `vm_difference` name the difference; `DECIDED` has the answer. The
monitor's poll applies the remedies, and `fuga doctor --hosts` shows the differences.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Protocol
from uuid import UUID

from registry.lifecycle import VmDesired, VmObserved

#: A VM that crashes this soon after a start is not started again.
CRASHES_S: Final = 600.0


class ObservedDomain(Protocol):
    """A domain as the last poll found it."""

    @property
    def state(self) -> str:
        """The state of the domain: running, paused or stopped."""

    @property
    def off_reason(self) -> str | None:
        """Why a stopped domain stopped: by its guest, by hand, by a crash or with its host."""


class Difference(StrEnum):
    """How a host and the ledger differ."""

    VM_MISSING = "vm_missing"
    VM_LOST_POWER = "vm_lost_power"
    VM_CRASHED = "vm_crashed"
    VM_CRASHES = "vm_crashes"
    VM_STOPPED = "vm_stopped"
    VM_RUNS = "vm_runs"
    VM_PAUSED = "vm_paused"
    VM_UNFILTERED = "vm_unfiltered"
    STRANGER = "stranger"
    UNKNOWN_MARK = "unknown_mark"
    WRONG_HOST = "wrong_host"
    DISK_ELSEWHERE = "disk_elsewhere"
    STRAY_FILES = "stray_files"
    VOLUME_MISSING = "volume_missing"
    VOLUME_IN_USE = "volume_in_use"
    OLDER_GENERATION = "older_generation"
    LEFTOVER = "leftover"
    CAPACITY_SHRANK = "capacity_shrank"
    ANOTHER_MACHINE = "another_machine"
    SAME_MACHINE = "same_machine"
    NO_MACHINE_UUID = "no_machine_uuid"
    SILENT = "silent"


class Remedy(StrEnum):
    """The kind of remedy for a difference."""

    REPAIR = "repair"  #: repaired without confirmation
    NOTE = "note"  #: only an event is added
    CONFIRM = "confirm"  #: nothing is done without an operator's confirmation


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceDecision:
    """The remedy of a difference, and the reason."""

    remedy: Remedy
    action: str
    why: str
    on_confirmation: str | None = None  #: the repair that an operator can confirm


DECIDED: Final[Mapping[Difference, DifferenceDecision]] = MappingProxyType(
    {
        Difference.VM_MISSING: DifferenceDecision(
            remedy=Remedy.CONFIRM,
            action="the VM is lost, its place is kept",
            why="its disk may still be there, and only its tenant knows whether it is needed",
            on_confirmation="its place is cleared and the next round decides it again, with an"
            " empty disk",
        ),
        Difference.VM_LOST_POWER: DifferenceDecision(
            remedy=Remedy.REPAIR,
            action="a worker starts it again",
            why="its host rebooted or its libvirt lost it; its tenant wants it to run",
        ),
        Difference.VM_CRASHED: DifferenceDecision(
            remedy=Remedy.REPAIR,
            action="a worker starts it again",
            why="its QEMU ended by itself; its tenant wants it to run",
        ),
        Difference.VM_CRASHES: DifferenceDecision(
            remedy=Remedy.NOTE,
            action="it stays stopped until its tenant starts it",
            why="it crashed within ten minutes of its start",
        ),
        Difference.VM_STOPPED: DifferenceDecision(
            remedy=Remedy.NOTE,
            action="it stays stopped and keeps its place until its tenant starts it",
            why="its guest powered off, or it was stopped by hand on its host",
        ),
        Difference.VM_RUNS: DifferenceDecision(
            remedy=Remedy.REPAIR,
            action="a worker stops it",
            why="its tenant stopped it, and it was started by hand on its host",
        ),
        Difference.VM_PAUSED: DifferenceDecision(
            remedy=Remedy.NOTE,
            action="it stays paused: when the cause is gone, `virsh resume` it there, or let its"
            " tenant stop and start it",
            why="its QEMU could not write to its disk, as where the pool is full, or it was"
            " suspended by hand on its host",
        ),
        Difference.VM_UNFILTERED: DifferenceDecision(
            remedy=Remedy.NOTE,
            action="it is filtered from its next start: stop and start it",
            why="it was started by a release without these filters, or by hand",
        ),
        Difference.STRANGER: DifferenceDecision(
            remedy=Remedy.NOTE,
            action="it is left alone, and its resources are not offered",
            why="it is not ours",
        ),
        Difference.UNKNOWN_MARK: DifferenceDecision(
            remedy=Remedy.CONFIRM,
            action="it is left alone, and its resources are not offered",
            why="it is another fuga's, or younger than the backup that was restored",
            on_confirmation="a worker removes it; its disk stays, as another site may have it open",
        ),
        Difference.WRONG_HOST: DifferenceDecision(
            remedy=Remedy.CONFIRM,
            action="it is left alone, and its resources are not offered",
            why="the ledger has or had this VM on another host: it was moved or copied by hand, or"
            " its host is here under another name",
            on_confirmation="a worker removes it here, if the VM runs where the ledger says; a disk"
            " of that VM stays until the VM is gone",
        ),
        Difference.DISK_ELSEWHERE: DifferenceDecision(
            remedy=Remedy.NOTE,
            action="it is left alone, and removed once its VM is gone",
            why="its VM is on another host, and may have it open there: if the pools of both are"
            " one, give both hosts the label shared_pool=NAME",
        ),
        Difference.STRAY_FILES: DifferenceDecision(
            remedy=Remedy.NOTE,
            action="they are left alone; delete or move on the host what is not needed",
            why="neither the ledger nor a domain of the host names them: they were put there by"
            " hand, or a snapshot left them, with what a guest wrote",
        ),
        Difference.VOLUME_MISSING: DifferenceDecision(
            remedy=Remedy.NOTE,
            action="the volume keeps its state and its room, and no empty file takes its place",
            why="its tenant's data may lie elsewhere: look for the file, and bring it back under"
            " its name; if it is lost, its tenant removes the volume",
        ),
        Difference.VOLUME_IN_USE: DifferenceDecision(
            remedy=Remedy.NOTE,
            action="neither the domain nor the file is touched: unless its guest needs the disk,"
            " detach it there (`virsh domblklist DOMAIN` names its target, `virsh detach-disk"
            " DOMAIN TARGET` with --live, --config or both)",
            why="somebody attached it by hand, or the ledger was restored from a backup: if two"
            " guests write one file, its data is lost",
        ),
        Difference.OLDER_GENERATION: DifferenceDecision(
            remedy=Remedy.REPAIR,
            action="a worker removes it",
            why="the VM has been placed again since",
        ),
        Difference.LEFTOVER: DifferenceDecision(
            remedy=Remedy.REPAIR, action="a worker removes it", why="its assignment is released"
        ),
        Difference.CAPACITY_SHRANK: DifferenceDecision(
            remedy=Remedy.NOTE,
            action="no VM is placed there; those that are there run on",
            why="less is offered than is committed",
        ),
        Difference.ANOTHER_MACHINE: DifferenceDecision(
            remedy=Remedy.CONFIRM,
            action="it counts as not answering, and nothing on it is touched",
            why="another machine answers at its address, without anything of ours: the host was"
            " rebuilt, or the address leads elsewhere and its VMs still run",
            on_confirmation="it is taken for the host: its VMs are lost, and new ones may come",
        ),
        Difference.SAME_MACHINE: DifferenceDecision(
            remedy=Remedy.NOTE,
            action="it gets no VMs and its capacity does not count; VMs that it holds run on: move"
            " them to other machines, then `fuga host remove` retires it",
            why="its machine is registered as another host already. If they are two machines with"
            " one UUID, give each a label machine=NAME",
        ),
        Difference.NO_MACHINE_UUID: DifferenceDecision(
            remedy=Remedy.NOTE,
            action="it is known by its VMs and their disks. If it shows none of them, it counts as"
            " not answering, and no copy of a VM is removed that may be on the same machine",
            why="its libvirt reported a UUID of the machine before: set host_uuid in its"
            " libvirtd.conf",
        ),
        Difference.SILENT: DifferenceDecision(
            remedy=Remedy.NOTE,
            action="its VMs wait, or are placed elsewhere once it is fenced, as its label"
            " on_failure= says: replace is for VMs on a shared pool, rebuild for those that may"
            " lose their disks",
            why="it does not answer, so what is there is not known",
        ),
    }
)
#: Differences of marked items that count as foreign all the same.
STRANGE: Final = (
    Difference.STRANGER,
    Difference.UNKNOWN_MARK,
    Difference.WRONG_HOST,
    Difference.DISK_ELSEWHERE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerAssignment:
    """An assignment in the ledger that is not live on the host."""

    host_id: UUID
    released_at: datetime | None  #: None if it is unreleased on another host
    vm_lives: bool  #: its VM is not deleted
    placed_anew: bool  #: its VM has a later unreleased assignment
    shared_pool: str | None = None  #: the shared pool with its volumes, if its host sees one
    disk_in_use: bool = False  #: a later assignment of its VM uses the disk, or will


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerVm:
    """A VM in the ledger that is active on a host."""

    desired: VmDesired
    observed: VmObserved
    started_at: datetime | None  #: when it was last started or built
    being_started: bool = False


def mark_difference(
    assignment_id: UUID | None,
    live: Container[UUID],
    known: Mapping[UUID, LedgerAssignment],
    poll_began_at: datetime,
    *,
    host_id: UUID,
) -> Difference | None:
    """Return the difference of a domain or volume with a mark; None if it belongs there.

    The result is also None while nothing is certain: the domain of an assignment that was released
    after the poll began may be gone by now. Remains of another host's released assignment are no
    leftover while its VM lives: an operator may have moved them, and they may be the only copy.
    """
    if assignment_id is None:
        return Difference.STRANGER
    if assignment_id in live:
        return None
    found = known.get(assignment_id)
    if found is None:
        return Difference.UNKNOWN_MARK
    if found.released_at is not None and found.released_at >= poll_began_at:
        return None
    if found.released_at is None or (found.host_id != host_id and found.vm_lives):
        return Difference.WRONG_HOST
    return Difference.OLDER_GENERATION if found.placed_anew else Difference.LEFTOVER


def volume_difference(
    assignment_id: UUID,
    live: Container[UUID],
    known: Mapping[UUID, LedgerAssignment],
    poll_began_at: datetime,
    *,
    host_id: UUID,
    shared_pool: str | None,
) -> Difference | None:
    """Return the difference of a volume with a mark, in a pool that other hosts may share.

    The volume may be the disk of a VM on another host, or of one that waits for a host. Hosts may
    share a pool without a label: a volume with the mark of a VM elsewhere never counts
    as a copy of the VM's disk.
    """
    found = known.get(assignment_id)
    if found is not None:
        lives = found.released_at is None
        there = shared_pool is not None and found.shared_pool == shared_pool
        if found.disk_in_use or (lives and there):
            return None
        if there:
            host_id = found.host_id
    difference = mark_difference(assignment_id, live, known, poll_began_at, host_id=host_id)
    return Difference.DISK_ELSEWHERE if difference == Difference.WRONG_HOST else difference


def vm_difference(
    vm: LedgerVm, domain: ObservedDomain | None, poll_began_at: datetime
) -> Difference | None:
    """Return how the domain of an active VM differs from the VM's desired state, or None."""
    if domain is None:
        return Difference.VM_MISSING
    if domain.state == "running":
        return Difference.VM_RUNS if vm.desired == VmDesired.STOPPED else None
    if domain.state != "stopped" or vm.desired != VmDesired.RUNNING:
        is_held = domain.state == "paused" and vm.observed == VmObserved.RUNNING
        return Difference.VM_PAUSED if is_held else None
    if vm.observed == VmObserved.STOPPED and not vm.being_started:
        # It was off before, whatever its host reports now: it is started again for no reason.
        is_crash = domain.off_reason == "crash"
        return Difference.VM_CRASHES if is_crash else Difference.VM_STOPPED
    if domain.off_reason == "crash":
        lived_s = (poll_began_at - (vm.started_at or poll_began_at)).total_seconds()
        return Difference.VM_CRASHES if lived_s < CRASHES_S else Difference.VM_CRASHED
    return Difference.VM_LOST_POWER if domain.off_reason == "host" else Difference.VM_STOPPED
