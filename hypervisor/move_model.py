"""Plain values about moves: their specification, progress, result and refusals."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from hypervisor.credential import Credential
from hypervisor.model import Guard, Mark


@dataclass(frozen=True, slots=True)
class HostEndpoint:
    """One of the two hosts of a move."""

    uri: str
    credential: Credential | None = None
    machine: str | None = None  #: its UUID; another one that answers is refused


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveSpec:
    """A VM to move, and what its domain is at the destination."""

    vm_id: str
    mark: Mark  #: the arriving assignment's, in the destination's domain from the first moment
    pool: str  #: of the destination, as all that follows
    volume: str  #: made beforehand; on a shared pool the very volume that the guest uses
    seed_volume: str | None  #: made beforehand; None: the VM has none
    network: str
    network_kind: Literal["network", "bridge"] = "network"
    guard: Guard | None = None  #: None: the card's protection stays what it is
    #: False: both hosts see the volume, on a shared pool. It is one volume, which the
    #: removal of either assignment must not delete.
    copy_disk: bool = True
    bandwidth_mib_s: int | None = None  #: of memory, and of each disk; None: what the network gives
    downtime_ms: int | None = None  #: how long the guest may stand still; None: QEMU's default
    auto_converge: bool = False  #: slow a guest down that writes faster than memory is copied
    encrypt: bool = True  #: memory and disk; both hosts show certificates
    #: At which the destination receives, and alone listens if it is no name; None: its libvirt's.
    address: str | None = None
    ports: tuple[int, int] = (49152, 49215)  #: from and to which it receives; firewalls open them
    hang_s: float = 30.0  #: without a byte of memory or disk, after which a move hangs


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationProgress:
    """How far a move is."""

    elapsed_ms: int
    memory_total_bytes: int
    memory_remaining_bytes: int
    disk_total_bytes: int
    disk_remaining_bytes: int
    rate_bytes_s: int
    iteration: int  #: how often memory was gone through; 0 while the disk is copied


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveDone:
    """What a move took."""

    total_ms: int
    downtime_ms: int | None  #: how long the guest stood still; None: it was off, or no host says
    memory_bytes: int  #: sent
    disk_bytes: int  #: sent
    attempts: int = 1  #: more where ports were taken or others held the first ones up


class MigrationObstacle(StrEnum):
    """Why a VM cannot be moved as requested. Nothing was begun."""

    ABSENT = "absent"  #: no domain of the VM at the source, or not in the state that it takes
    CPU_MODEL = "cpu_model"  #: the guest uses what the destination's processors lack
    MACHINE_TYPE = "machine_type"  #: the destination's QEMU does not know the guest's machine
    NETWORK = "network"  #: the destination lacks it, or cannot filter there
    POOL = "pool"  #: the destination lacks it, it is not active, or has too little room
    VOLUME = "volume"  #: missing at the destination, or of another size
    BASE_VOLUME = "base_volume"  #: what the disk rests on is missing at the destination
    SNAPSHOTS = "snapshots"  #: files of snapshots rest on its disk, and would stay behind
    HOST_DEVICE = "host_device"  #: the guest uses a device of its host, or files fuga did not make
    ADDRESS = "address"  #: the destination does not say where it receives, or not as requested
    NAME_TAKEN = "name_taken"  #: the destination has a domain of that name or UUID
    SAME_HOST = "same_host"  #: both ends are one host
