"""Plain values about moves: their specification, progress, result and refusals."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from hypervisor.credential import Credential
from hypervisor.model import Guard, Mark


@dataclass(frozen=True, slots=True)
class HostEndpoint:
    """URI and credential of one of the two hosts of a move."""

    uri: str
    credential: Credential | None = None
    machine: str | None = None  #: UUID; another machine is refused


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveSpec:
    """Specification of a move: the VM, and its domain at the destination."""

    vm_id: str
    mark: Mark  #: of the arriving assignment; in the destination's domain from the start
    pool: str  #: of the destination, like all following fields
    volume: str  #: made before; on a shared pool the guest's own volume
    seed_volume: str | None  #: made before; None: the VM has none
    network: str
    network_kind: Literal["network", "bridge"] = "network"
    guard: Guard | None = None  #: None: the interface keeps its filters
    #: False: the volume is in a shared pool. Removing either assignment must not delete it.
    copy_disk: bool = True
    bandwidth_mib_s: int | None = None  #: of memory, and of each disk; None: unlimited
    downtime_ms: int | None = None  #: maximum downtime; None: QEMU's default
    auto_converge: bool = False  #: throttle a guest that writes faster than memory is copied
    encrypt: bool = True  #: memory and disk, with certificates of both hosts
    #: Address at which the destination receives; None: libvirt chooses. An IP address is the only
    #: one listened on.
    address: str | None = None
    ports: tuple[int, int] = (49152, 49215)  #: first and last port at which it receives
    hang_s: float = 30.0  #: time without progress after which a move counts as hung


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationProgress:
    """Progress of a move."""

    elapsed_ms: int
    memory_total_bytes: int
    memory_remaining_bytes: int
    disk_total_bytes: int
    disk_remaining_bytes: int
    rate_bytes_s: int
    iteration: int  #: passes over memory; 0 while the disk is copied


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveResult:
    """Result of a move."""

    total_ms: int
    downtime_ms: int | None  #: None: the guest was off, or it is unknown
    memory_bytes: int  #: sent
    disk_bytes: int  #: sent
    attempts: int = 1  #: more if ports were taken or blocked


class MigrationObstacle(StrEnum):
    """Reasons why a VM cannot be moved as requested."""

    ABSENT = "absent"  #: the source has no domain of the VM in the required state
    CPU_MODEL = "cpu_model"  #: the destination's CPUs lack features of the guest
    MACHINE_TYPE = "machine_type"  #: the destination's QEMU lacks the guest's machine type
    NETWORK = "network"  #: the destination lacks it or cannot filter it
    POOL = "pool"  #: missing at the destination, inactive, or too full
    VOLUME = "volume"  #: missing at the destination, or of another size
    BASE_VOLUME = "base_volume"  #: the destination lacks the disk's backing file
    SNAPSHOTS = "snapshots"  #: it has snapshots, whose files would stay behind
    LOCAL_VOLUME = "local_volume"  #: a data volume is attached, which would stay behind
    HOST_DEVICE = "host_device"  #: the guest uses a host device, or files that fuga did not make
    ADDRESS = "address"  #: the destination has no or an invalid address to receive at
    NAME_TAKEN = "name_taken"  #: the destination has a domain of that name or UUID
    SAME_HOST = "same_host"  #: source and destination are one host
