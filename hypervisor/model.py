"""Plain values that cross the border to a hypervisor: no libvirt type leaves this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal
from uuid import UUID

#: Characters that are kept of what a host calls a thing: a file's name has no more.
MOST_NAME: Final = 255
#: Networks and addresses of hosts closed to a guest: each costs a rule of each card, and libvirt
#: a run of `ebtables`.
MOST_CLOSED: Final = 96
#: With which the names of images' copies begin on every host.
IMAGE_PREFIX: Final = "fuga-image-"


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
class HostDomain:
    """One domain on a host. ``mark`` is None for a domain that is not ours."""

    uuid: str
    name: str
    state: DomainState
    vcpus: int
    memory_mib: int  #: what it is defined with
    mark: Mark | None
    cpu_time_ns: int | None = None
    memory_used_mib: int | None = None  #: resident memory, where the driver reports it
    disk_gib: int = 0  #: virtual size of its disks, rounded up, where the driver reports it
    run: int | None = None  #: another number after each start; None: it is off
    off_reason: str | None = None  #: of a stopped one: guest, hand, crash or host
    filtered: bool | None = None  #: a filter of ours is on its cards; None: there is no network
    #: A move holds it: it arrives and has not run here yet, or it stopped here and has not been
    #: seen to run elsewhere. Also after a move that broke off.
    paused_by_move: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostVolume:
    """One volume in a host's pool."""

    name: str
    capacity_bytes: int
    allocation_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPoll:
    """One poll of a host. Consumption is None if a driver does not report it."""

    hostname: str
    vcpus: int
    memory_mib: int
    disk_gib: int | None  #: capacity of the pool
    cpu_busy_percent: float | None  #: since the previous report of this connection
    memory_used_mib: int | None
    disk_used_gib: int | None
    domains: tuple[HostDomain, ...]
    volumes: tuple[HostVolume, ...]
    machine_uuid: str | None = None  #: as the host's libvirt reports it
    #: how long the pool has not answered: then nothing is known of it and its volumes
    pool_silent_s: float | None = None
    security_model: str | None = None  #: what confines guests: apparmor, selinux or none
    shares_kept: bool | None = None  #: of processors; None: no guest runs to ask about
    can_filter: bool | None = None  #: what guests send; None: there is no network to filter
    largest_console_bytes: int = 0  #: of the logs that were read since its VM came
    interfaces: tuple[tuple[str, str], ...] = ()  #: names and MAC addresses
    unnamed: tuple[str, ...] = ()  #: volumes that no domain of the host names, nor a snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class HostInspection:
    """What a host offers guests, without its pool."""

    hostname: str
    driver: str  #: of its libvirt: QEMU, or TEST
    machine_uuid: str | None
    libvirt_version: int  #: 9_000_000 is 9.0.0
    qemu_version: int
    domain_types: tuple[str, ...]  #: of guests of x86_64: kvm only where /dev/kvm is
    processor: str | None  #: of guests with the host's model, as XML; None: libvirt does not say
    processor_model: str | None
    security_model: str
    can_filter: bool | None
    network_fault: str | None  #: missing, inactive, unsupported, or why nothing filters there
    network_starts_by_itself: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolInspection:
    """A storage pool of a host."""

    kind: str
    active: bool
    starts_by_itself: bool
    capacity_bytes: int
    free_bytes: int
    clock_ahead_s: float | None  #: of this machine's clock; None: the pool does not show it


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorComparison:
    """Whether guests of other hosts could run on a host."""

    baseline: str | None  #: the model that all of them have
    faults: Mapping[str, str]  #: by host: why guests with its processor cannot


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
    ended: bool  #: the guest is off, or another client took its console


@dataclass(frozen=True, slots=True, kw_only=True)
class VmLimits:
    """What a VM may take of its host at most; None: whatever it gets."""

    disk_iops: int | None = None  #: reads and writes a second, of all its disks
    disk_mib_s: int | None = None  #: MiB a second, of all its disks
    net_mbps: int | None = None  #: Mbit a second of its card, each way


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What a guest's card may do: its host sees to it."""

    filtered: bool  #: it speaks from its own MAC and IPv4 address alone
    isolated: bool  #: it does not reach other isolated cards of its bridge
    address: str | None = None  #: IPv4; None: what DHCP gives it
    subnet: str | None = None  #: of which it reaches `reaches` alone; None: it reaches all of it
    reaches: tuple[str, ...] = ()  #: as CIDR
    closed: tuple[str, ...] = ()  #: networks of hosts, as CIDR, whose addresses it does not reach
    services: tuple[str, ...] = ()  #: addresses in `closed` of which it reaches `ports` and ICMP
    ports: tuple[int, ...] = (53, 67, 123)  #: of UDP and TCP


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
    limits: VmLimits = VmLimits()
    guard: Guard | None = None  #: None: of the test driver, which has no network
