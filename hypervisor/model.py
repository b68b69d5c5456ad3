"""Plain values exchanged with callers: no libvirt type leaves this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal
from uuid import UUID

#: Maximum characters of a name from a host; file names have no more.
MAX_NAME: Final = 255
#: Maximum networks and addresses of hosts closed to a guest. Each costs a rule per interface, and
#: libvirt a run of `ebtables`.
MAX_CLOSED_NETWORKS: Final = 96
#: Maximum characters of a disk's serial number: a guest's virtio driver sees no more.
MAX_SERIAL: Final = 20
#: Name prefix of copies of images on every host.
IMAGE_PREFIX: Final = "fuga-image-"


def domain_name(vm_id: str | UUID) -> str:
    """Return the name of a VM's domain on its host."""
    return f"fuga-{vm_id}"


def volume_name(assignment_id: str | UUID) -> str:
    """Return the name of the disk of one attempt to build a VM."""
    return f"fuga-{assignment_id}.qcow2"


def seed_name(assignment_id: str | UUID) -> str:
    """Return the name of the cloud-init seed volume of one attempt to build a VM."""
    return f"fuga-{assignment_id}-seed.img"


def data_volume_name(volume_id: str | UUID) -> str:
    """Return the name of the file of a data volume, which outlives VMs."""
    return f"fuga-volume-{volume_id}.qcow2"


def disk_serial(volume_id: str | UUID) -> str:
    """Return the serial number under which guests see a data volume: 20 hex digits of its id."""
    return str(volume_id).replace("-", "")[:MAX_SERIAL]


class DomainState(StrEnum):
    """The state of a domain, as the controller distinguishes it."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """fuga's metadata element in a domain: its VM, tenant and attempt."""

    vm_id: str
    assignment_id: str
    generation: int
    tenant: str
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDomain:
    """One domain on a host. ``mark`` is None for a foreign domain."""

    uuid: str
    name: str
    state: DomainState
    vcpus: int
    memory_mib: int  #: of its definition
    mark: Mark | None
    cpu_time_ns: int | None = None
    memory_used_mib: int | None = None  #: resident memory, if the driver reports it
    #: Virtual size of its disks, rounded up, if the driver reports it. Each counts at most what the
    #: host's pool holds.
    disk_gib: int = 0
    capped_disk: str | None = None  #: the disk that claims most, if more than the pool holds
    run: int | None = None  #: changes with each start; None: it is off
    off_reason: str | None = None  #: why a stopped one stopped: guest, hand, crash or host
    filtered: bool | None = None  #: whether its interfaces have fuga's filters; None: no network
    #: Whether a move keeps it paused: it is arriving and has not run here yet, or it was paused
    #: here for the handover. Also True after a failed move.
    paused_by_move: bool = False
    attached: tuple[str, ...] = ()  #: serials of its disks beyond root and seed, sorted
    #: Names of data volumes in the host's pool that its disks name, sorted. Only a poll has them.
    volume_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostVolume:
    """One volume in a host's pool."""

    name: str
    capacity_bytes: int
    allocation_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPoll:
    """The result of one poll of a host. Consumption is None if the driver does not report it."""

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
    #: how long the pool has not answered; its size and volumes are unknown then
    pool_silent_s: float | None = None
    security_model: str | None = None  #: apparmor, selinux or none
    shares_kept: bool | None = None  #: whether CPU shares work; None: no guest runs
    can_filter: bool | None = None  #: whether it has network filters; None: no network
    largest_console_bytes: int = 0  #: of the console logs with a reader
    interfaces: tuple[tuple[str, str], ...] = ()  #: names and MAC addresses
    unnamed: tuple[str, ...] = ()  #: volumes that no domain or snapshot of the host names


@dataclass(frozen=True, slots=True, kw_only=True)
class HostInspection:
    """Capabilities of a host for guests, without its pool."""

    hostname: str
    driver: str  #: libvirt driver: QEMU or TEST
    machine_uuid: str | None
    libvirt_version: int  #: 9_000_000 is 9.0.0
    qemu_version: int
    domain_types: tuple[str, ...]  #: of x86_64 guests; kvm only if the host has /dev/kvm
    processor: str | None  #: host-model CPU as XML; None: unknown
    processor_model: str | None
    security_model: str
    can_filter: bool | None
    network_fault: str | None  #: why guests cannot use the network
    network_starts_by_itself: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolInspection:
    """A storage pool of a host."""

    kind: str
    active: bool
    starts_by_itself: bool
    capacity_bytes: int
    free_bytes: int
    clock_ahead_s: float | None  #: of this machine's clock; None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorComparison:
    """Result of a comparison of a host's CPU with other hosts'."""

    baseline: str | None  #: the CPU model that all of them support
    faults: Mapping[str, str]  #: by host: why guests with its CPU cannot run here


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleTail:
    """The last bytes of a serial console's log."""

    content: bytes
    end: int  #: offset in the log after the content


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleExchange:
    """Result of one exchange with a held console."""

    taken: int  #: typed bytes that the console accepted
    content: bytes  #: output of the guest since the last exchange
    ended: bool  #: the guest is off, or another client took its console


@dataclass(frozen=True, slots=True, kw_only=True)
class VmLimits:
    """I/O limits of a VM on its host; None: unlimited."""

    disk_iops: int | None = None  #: reads and writes a second, of all its disks
    disk_mib_s: int | None = None  #: MiB a second, of all its disks
    net_mbps: int | None = None  #: Mbit a second of its interface, each way


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Network restrictions of a guest's interface, enforced by its host."""

    filtered: bool  #: it may send only from its own MAC and IPv4 address
    isolated: bool  #: it cannot reach other isolated interfaces
    address: str | None = None  #: IPv4; None: assigned by DHCP
    subnet: str | None = None  #: it reaches only `reaches` in it; None: all
    reaches: tuple[str, ...] = ()  #: as CIDR
    closed: tuple[str, ...] = ()  #: networks of hosts that it cannot reach, as CIDR
    services: tuple[str, ...] = ()  #: addresses in `closed` with reachable `ports` and ICMP
    ports: tuple[int, ...] = (53, 67, 123)  #: of UDP and TCP


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainSpec:
    """Specification of a domain to define."""

    mark: Mark
    name: str  #: of the domain, unique on the host
    domain_type: str  #: "kvm", "qemu" or "test"; a setting of the host
    vcpus: int
    memory_mib: int  #: memory that the guest gets
    pool: str
    volume: str
    network: str  #: a libvirt network or a bridge
    network_kind: Literal["network", "bridge"] = "network"
    mac: str | None = None  #: None: libvirt generates one
    seed_volume: str | None = None  #: in the same pool; attached as a second, read-only disk
    limits: VmLimits = VmLimits()
    guard: Guard | None = None  #: None for the test driver, which has no network
