"""Plain values that cross the border to a hypervisor: no libvirt type leaves this package."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal
from uuid import UUID


def domain_name(vm_id: str | UUID) -> str:
    """Name of a VM's domain on its host."""
    return f"fuga-{vm_id}"


def volume_name(assignment_id: str | UUID) -> str:
    """Name of the disk that one attempt to build a VM makes for itself."""
    return f"fuga-{assignment_id}.qcow2"


def seed_name(assignment_id: str | UUID) -> str:
    """Name of the volume from which the guest of one attempt learns who it is."""
    return f"fuga-{assignment_id}-seed.img"


class DomainState(StrEnum):
    """What a domain does, as far as the controller cares."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Our metadata element inside a domain: whose it is, and from which attempt."""

    vm_id: str
    assignment_id: str
    generation: int
    tenant: str
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainSeen:
    """One domain on a host. ``mark`` is None for a domain that is not ours."""

    uuid: str
    name: str
    state: DomainState
    vcpus: int
    memory_mib: int  #: what it is defined with
    mark: Mark | None
    cpu_time_ns: int | None = None
    memory_used_mib: int | None = None  #: resident memory, where the driver tells
    disk_gib: int = 0  #: virtual size of its disks, rounded up, where the driver tells
    run: int | None = None  #: another number after each start; None: it is off
    off_reason: str | None = None  #: of a stopped one: guest, hand, crash or host


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSeen:
    """One volume in a host's pool."""

    name: str
    capacity_bytes: int
    allocation_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """One look at a host. Consumption is None where a driver does not tell."""

    hostname: str
    vcpus: int
    memory_mib: int
    disk_gib: int  #: capacity of the pool
    cpu_busy_percent: float | None  #: since the previous report of this connection
    memory_used_mib: int | None
    disk_used_gib: int | None
    domains: tuple[DomainSeen, ...]
    volumes: tuple[VolumeSeen, ...]
    machine_uuid: str | None = None  #: as the host's libvirt tells it


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleTail:
    """The last of what a guest wrote on its serial console."""

    content: bytes
    end: int  #: of the log, up to which this is


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleExchange:
    """What came of typing into a console that is held."""

    taken: int  #: bytes of what was typed that are on their way to the guest
    content: bytes  #: what the guest wrote since the exchange before
    ended: bool  #: the guest is off, or somebody else took its console


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainSpec:
    """A VM to define: what its domain XML is built from."""

    mark: Mark
    name: str  #: of the domain, unique on the host
    domain_type: str  #: "kvm", "qemu" or "test", a setting of the host
    vcpus: int
    memory_mib: int  #: what the guest really gets
    pool: str
    volume: str
    network: str  #: of the host's libvirt, or a bridge
    network_kind: Literal["network", "bridge"] = "network"
    mac: str | None = None  #: None: libvirt makes one up
    seed_volume: str | None = None  #: in the same pool; attached as a second, read-only disk
