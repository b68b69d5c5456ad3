"""Tasks of workers: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from registry.lifecycle import AssignmentState, PowerState
from registry.records.hosts import HostAccess
from registry.records.images import BuildImage, Image
from registry.records.networks import GuestNetwork, InterfaceRules
from registry.records.requests import GuestAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A lease on an assignment. A takeover sets another token."""

    assignment_id: UUID
    token: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A VM to create, or one whose creation has to be finished."""

    claim: Claim
    state: AssignmentState  #: creating; active: only the resume is missing
    vm_id: UUID
    request_id: UUID
    vm_name: str
    tenant: str
    generation: int
    disk_generation: int  #: of the attempt that made the disk: moves bring it along
    disk_of: UUID  #: the assignment whose name its disk carries: in shared pools maybe another's
    round: int
    resources: Mapping[str, int]
    host: HostAccess
    access: GuestAccess
    network: GuestNetwork | None  #: None if the host no longer has the network
    failed_before: int  #: failed attempts of this assignment
    image: BuildImage | None = None  #: None: the host's own base volume, if it names one
    limits: Mapping[str, int] = field(default_factory=dict)  #: limits of the VM type
    hostname: str | None = None  #: None: made from the VM's name

    @property
    def has_disk(self) -> bool:
        """Whether the VM's disk is in the pool already, made by an earlier attempt."""
        return self.disk_of != self.claim.assignment_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A VM to remove, or a failed build to prove absent."""

    claim: Claim
    vm_id: UUID
    generation: int
    quarantined: bool
    left_behind: bool  #: whether the VM is elsewhere now; a guest that runs there is not ended
    disk_of: UUID | None  #: the assignment whose name the disk carries; None: it stays
    host: HostAccess
    request_id: UUID
    neighbours: tuple[HostAccess, ...]  #: other hosts that see the disk, if it is deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportClaim:
    """A lease on an image that is fetched. A takeover sets another token."""

    image_id: UUID
    token: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """An image to fetch."""

    claim: ImportClaim
    image: Image  #: whose size is known: its content was sent, and is to be checked
    url: str
    signature: str | None  #: URL of the signature; None: next to the image, if any


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyClaim:
    """A lease on an image's copy. A takeover sets another token."""

    copy_id: UUID
    token: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """An image to bring to a host."""

    claim: CopyClaim
    image: Image
    host: HostAccess
    volume: str  #: volume of this upload; no other attempt uses its name
    left_volume: str | None  #: volume that an unfinished attempt may have left


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRemoval:
    """A copy whose image was removed."""

    claim: CopyClaim
    image: str
    host: HostAccess
    volume: str | None
    neighbours: tuple[HostAccess, ...] = ()  #: other hosts that see the pool


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerClaim:
    """A lease on the pending power change of a VM."""

    vm_id: UUID
    token: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerStep:
    """The next step of the pending power change of a VM."""

    claim: PowerClaim
    state: PowerState
    assignment_id: UUID
    generation: int
    host: HostAccess
    overdue: bool  #: whether the guest's time to shut down is over
    to_signal: bool  #: whether the guest is to be signalled, for the first time or again
    interface_rules: InterfaceRules  #: of the VM, when it is started


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A due task without a worker: its name and the id that it carries."""

    task: str
    id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A domain or volume of fuga that belongs to no assignment."""

    id: UUID
    token: UUID  #: of the claim
    owner: str  #: the worker that has the claim
    host: HostAccess
    kind: Literal["domain", "volume"]
    vm_uuid: UUID | None
    name: str
    assignment_id: UUID | None
    requested: bool = False  #: by an operator, whatever the ledger knows of it
    disk_stays: bool = False  #: an attempt of the VM uses it, in a pool that may be this host's
    seed_stays: bool = False  #: the same
    neighbours: tuple[HostAccess, ...] = ()  #: other hosts that see the pool
