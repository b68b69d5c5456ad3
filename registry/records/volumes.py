"""Volumes: frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from registry.lifecycle import VolumeState
from registry.records.fields import Observed, Settable
from registry.records.hosts import HostAccess

#: Seconds that a guest has to release a disk, after which it keeps the disk.
DETACH_TIMEOUT_S: Final = 60
MAX_SIZE_GIB: Final = 1 << 20
#: Volumes of one VM: each takes a slot of its machine's bus.
MAX_ATTACHED: Final = 16
#: Volumes of one tenant that are not removed.
MAX_OF_TENANT: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A disk that outlives VMs. Its VM and host are those of its present state."""

    id: Observed[UUID]
    name: Settable[str]
    tenant: Settable[str]
    size_gib: Settable[int]
    protected: Settable[bool]  #: whether its removal is refused
    state: Observed[VolumeState]
    host: Observed[str | None]  #: whose pool has its file; None: none yet
    vm_id: Settable[UUID | None]
    vm: Observed[str | None]  #: name of that VM
    #: name of the VM whose request brings it, until it is attached there
    waiting_vm: Observed[str | None]
    last_error: Observed[str | None]
    trouble: Observed[str | None]  #: why its host or VM keeps it from being used or changed now
    created_at: Observed[datetime]
    removed_at: Observed[datetime | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeClaim:
    """A lease on a volume. A takeover sets another token."""

    volume_id: UUID
    token: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeStep:
    """The next step of the change of a volume."""

    claim: VolumeClaim
    state: VolumeState
    size_gib: int
    vm_id: UUID | None
    assignment_id: UUID | None
    host: HostAccess
    overdue: bool  #: whether the guest's time to release the disk is over
