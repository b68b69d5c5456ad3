"""What leaves the register center: frozen values; nothing loads lazily behind a caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from registry.errors import RoundPurgedError
from registry.lifecycle import (
    AssignmentState,
    CopyState,
    FenceState,
    HostAdmin,
    HostHealth,
    ImageState,
    PowerState,
    RequestState,
    SlotLoopState,
    VmDesired,
    VmObserved,
)
from registry.reconciliation import Answer, Difference
from registry.subnets import Subnet

Role = Literal["operator", "tenant"]
DecidedBy = Literal["policy", "fallback"]
#: What becomes of a request above a quota: it is refused, or accepted and waits.
OverQuota = Literal["refuse", "wait"]
ImageFormat = Literal["qcow2", "raw"]
SeedKind = Literal["none", "nocloud"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceDef:
    """One resource: a name, its unit, and its place on the resource axis."""

    name: str
    unit: str
    position: int
    overhead_per_vm: int = 0  #: what each VM holds of it beyond its type


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What one host offers of one resource."""

    resource: str
    detected: int | None  #: by the monitor
    override: int | None  #: the operator's word, instead
    reserved: int
    foreign: int  #: held by what no assignment stands for: others' domains, copies of images
    ratio_thousandths: int  #: over-commit in force; 1000 is none
    own_ratio_thousandths: int | None  #: the host's own; None: that of its labels, if any
    committed: int  #: the sum over unreleased assignments, kept by triggers
    capacity: int  #: max(0, (override or detected − reserved − foreign) × ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """How far it has come that a host which is down is proven to be off."""

    state: FenceState
    asked_by: str
    asked_at: datetime
    attempts: int  #: that failed
    last_error: str | None
    again_at: datetime | None  #: when it is tried again at the earliest
    fenced_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceOrder:
    """A host that a worker is to fence, and its claim on that."""

    host_id: UUID
    host: str
    target: str  #: what the operator's command is told
    token: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A physical machine running libvirt."""

    id: UUID
    name: str
    uri: str
    credential: str | None  #: name of the files that open it, which are not kept here
    ssh_host_keys: tuple[str, ...]  #: public keys, of which it must show one
    admin: HostAdmin
    health: HostHealth
    labels: tuple[str, ...]
    version: int  #: raised by whatever can invalidate a placement here
    domain_type: str
    pool: str
    network: str
    base_volume: str | None
    memory_backing_mib: int | None
    max_builds: int
    inventories: tuple[Inventory, ...]  #: in the order of the resource axis
    last_polled_at: datetime | None
    last_error: str | None
    missed_polls: int
    held_back_until: datetime | None  #: no VMs until then: builds failed here
    created_at: datetime
    warnings: tuple[str, ...] = ()  #: what of its settings is doubtful
    failed_builds: int = 0  #: in a row; one that succeeds clears it
    fence_target: str | None = None  #: what the fencing command is told
    fence: Fence | None = None  #: while it is down, and asked to be proven off
    returning_since: datetime | None = None  #: it answers, and is not yet clear of leftovers
    machine_uuid: str | None = None  #: of the machine, as its libvirt tells it
    found_machine_uuid: str | None = None  #: of another one that answers in its place


@dataclass(frozen=True, slots=True, kw_only=True)
class NewHost:
    """A host to register. Amounts and ratios are by resource name."""

    name: str
    uri: str
    credential: str | None = None
    ssh_host_keys: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    overrides: Mapping[str, int] = field(default_factory=dict)
    reserved: Mapping[str, int] = field(default_factory=dict)
    ratios: Mapping[str, int] = field(default_factory=dict)  #: in thousandths
    domain_type: str = "kvm"
    pool: str = "default"
    network: str = "default"
    base_volume: str | None = None
    memory_backing_mib: int | None = None
    max_builds: int = 2
    fence_target: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainReport:
    """One domain as the monitor saw it. Without an ``assignment_id`` it is a stranger."""

    uuid: UUID
    name: str
    state: str  #: running, paused or stopped
    vcpus: int
    memory_mib: int
    disk_gib: int
    assignment_id: UUID | None = None
    generation: int | None = None
    cpu_time_ns: int | None = None
    memory_used_mib: int | None = None
    off_reason: str | None = None  #: of a stopped one: guest, hand, crash or host


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """One look at a host. Consumption is None where the driver does not tell."""

    hostname: str
    detected: Mapping[str, int]
    cpu_busy_percent: float | None
    memory_used_mib: int | None
    disk_used_gib: int | None
    domains: tuple[DomainReport, ...]
    volumes: tuple[str, ...]  #: names, of the host's pool
    started_at: datetime
    polled_at: datetime
    took_ms: int
    machine_uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDifference:
    """One thing in which a host differs from the ledger, and what is done about it."""

    host: str
    difference: Difference
    subject: str  #: a VM's id, or the name of a domain, volume, resource or machine
    what: str
    answer: Answer
    action: str
    why: str
    on_word: str | None  #: what is done if an operator says so
    assignment_id: UUID | None = None
    vm_uuid: UUID | None = None  #: of a domain


@dataclass(frozen=True, slots=True, kw_only=True)
class VmType:
    """A named resource vector on offer."""

    id: UUID
    name: str
    revision: int
    resources: Mapping[str, int]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewImage:
    """What an operator says of an image; its content says the rest."""

    name: str
    format: ImageFormat
    seed_kind: SeedKind = "none"
    min_memory_mib: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One revision of a disk image that VMs' disks rest on."""

    id: UUID
    name: str
    revision: int
    state: ImageState
    sha256: str
    format: ImageFormat
    seed_kind: SeedKind  #: how a guest of it is told its name, keys and address
    min_memory_mib: int  #: that a VM of it needs; 0: not known
    size_bytes: int | None  #: of the file; None until it is here
    virtual_size_bytes: int | None  #: of the disk in it
    source: str | None  #: the file's name or the URL that it came from; told to operators
    received_bytes: int  #: of an import under way
    last_error: str | None
    created_at: datetime
    removed_at: datetime | None

    @property
    def reference(self) -> str:
        """``NAME:REVISION``: what is asked for to get this one and no later one."""
        return f"{self.name}:{self.revision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageCopy:
    """An image on one host."""

    id: UUID
    host: str
    image: str  #: its reference
    state: CopyState
    disk_gib: int  #: what it takes of the host's disk
    uploaded_bytes: int
    size_bytes: int
    attempts: int
    last_error: str | None
    present_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A party whose share is accounted, or a group of such parties."""

    id: UUID
    name: str
    weight: float  #: against its siblings
    parent: str | None  #: the group that it is part of
    is_group: bool  #: asks for nothing itself: its tenants do
    created_at: datetime
    removed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTo:
    """Where a tenant or group is moved in the tree."""

    parent: str | None  #: None: no group, the top


@dataclass(frozen=True, slots=True, kw_only=True)
class SshKey:
    """A public key of a tenant: it opens every VM built for that tenant from now on."""

    id: UUID
    tenant: str
    name: str
    public_key: str
    fingerprint: str  #: as `ssh-keygen -l` prints it
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class UserData:
    """What is told of a request's user-data, which may hold secrets."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestAccess:
    """What the guest of a VM is to learn so that its tenant can log in."""

    ssh_keys: tuple[str, ...]
    user_data: bytes | None = field(repr=False)  #: never to be logged


SourceKind = Literal["network", "bridge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSource:
    """What a host calls a network: a network of its libvirt, or a bridge."""

    kind: SourceKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network that VMs may be put on."""

    name: str
    default: NetworkSource | None  #: of hosts that `hosts` does not name; None: not there
    hosts: Mapping[str, NetworkSource]
    subnet: Subnet | None  #: None: addresses come from elsewhere (DHCP)
    addresses: int  #: that may be given to VMs
    addresses_used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestNetwork:
    """How a VM is attached on its host, and what its guest is told of its network."""

    mac: str | None  #: None: of a VM from before MACs were kept; libvirt makes one up
    kind: SourceKind
    source: str  #: on its host
    address: str | None = None  #: with the length of the prefix; None: it asks by DHCP
    gateway: str | None = None
    dns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLimit:
    """How far a request's network lets its VMs be placed."""

    network: str
    without: frozenset[UUID]  #: hosts that do not have it
    left: int | None  #: VMs that have or can get an address; None: it gives none


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUse:
    """How much of one thing may be had at most, and how much of it is."""

    tenant: str  #: whose quota: a tenant's own, or that of a group above it
    resource: str  #: "vms" is the number of VMs
    limit: int
    asked: int  #: by all VMs that are wanted
    held: int  #: by all assignments that are not released


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What a tenant or group may have at most, by its own limits and those of groups above."""

    tenant: str
    over_quota: OverQuota | None  #: its own word; None: as the nearest group above says
    limits: tuple[QuotaUse, ...]  #: its own first, then the groups' upwards


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Why VMs of a request wait. ``round`` and ``since`` are filled in by the store."""

    count: int
    reason: str
    round: int | None = None
    since: datetime | None = None  #: when the request began to wait
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipRule:
    """A request's VMs belong to a group of its tenant's."""

    group: str
    soft: bool = False  #: only as far as there is room for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Where VMs of a request may be, beside the labels and hosts that it requires."""

    forbids: tuple[str, ...] = ()  #: labels that a host must not carry
    prefers: tuple[str, ...] = ()  #: hosts with all of these labels are taken first
    zone: str | None = None
    anti_affinity: MembershipRule | None = None  #: one VM of the group on a host at most
    affinity: MembershipRule | None = None  #: all VMs of the group on one host
    spread: str | None = None  #: ``zone``: as many VMs in each zone as in any other


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A tenant asking for ``count`` VMs of one type."""

    id: UUID
    name: str
    tenant: str
    vm_type: str
    count: int
    min_count: int
    requires: tuple[str, ...]
    hosts: tuple[str, ...] | None
    state: RequestState
    waiting: Waiting | None
    vms_placed: int  #: with an assignment that is not released
    vms_running: int
    created_at: datetime
    updated_at: datetime
    labels: Mapping[str, str] = field(default_factory=dict)  #: the tenant's own words
    expires_at: datetime | None = None  #: it ends by itself then; None: never
    image: str | None = None  #: reference of the image; None: whatever its hosts name
    network: str | None = None  #: None: that of each host's own settings
    ssh_keys: tuple[str, ...] = ()  #: fingerprints of the keys that came with it
    user_data: UserData | None = None
    hostname: str | None = None  #: of its only VM, or numbered; None: its VMs' names
    rules: Rules = Rules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """What is asked of a VM's power and not done yet."""

    state: PowerState
    asked_by: str
    asked_at: datetime
    timeout_s: int  #: given to a guest that is told to shut down; 0: it is not told
    force_at: datetime | None  #: when it is forced; None: it was not told yet
    waits_for: str | None  #: what keeps workers from it
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageWait:
    """An image that is not yet on the host where a VM is to be built."""

    image: str  #: its reference
    state: CopyState
    uploaded_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Vm:
    """One virtual machine. Host, assignment and round are of its unreleased assignment."""

    id: UUID
    name: str
    request_id: UUID
    tenant: str
    vm_type: str
    host: str | None
    desired: VmDesired
    observed: VmObserved
    assignment_id: UUID | None
    assignment_state: AssignmentState | None
    round: int | None
    generation: int  #: of the latest assignment; 0: never placed
    last_error: str | None
    power: Power | None = None  #: None: nothing is asked
    labels: Mapping[str, str] = field(default_factory=dict)  #: the tenant's own words
    created_at: datetime
    deleted_at: datetime | None  #: deleted and gone
    network: str | None = None  #: None: that of its host's own settings
    mac: str | None = None
    address: str | None = None  #: from the network's subnet
    hostname: str | None = None  #: what its guest calls itself; None: as the VM is called
    waits_for_image: ImageWait | None = None  #: None: it is there, or the VM has no image or host


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that changed, who did it and why."""

    id: int
    at: datetime
    actor: str
    kind: str
    subject_type: str
    subject_id: str
    tenant: str | None
    from_state: str | None
    to_state: str | None
    event: str | None
    reason: str | None
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Who may call the API. The secret itself is nowhere."""

    id: UUID
    name: str
    role: Role
    tenant: str | None
    read_only: bool = False
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None
    last_used_at: datetime | None = None  #: to the hour


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A call that could change something, and how it ended."""

    id: int
    at: datetime
    request_id: str  #: as in the log and in `X-Request-Id`
    token_id: UUID | None
    token: str | None  #: its name; None: there was no good one
    tenant: str | None  #: None: an operator, or nobody
    address: str  #: where it came from
    method: str
    path: str
    route: str | None  #: None: refused before it was looked for
    subject: str | None  #: id of what it was about
    status: int | None  #: None: whoever served it died before it could answer
    untold: int  #: calls like it that were refused before it and have no row


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A right to act alone until it expires, by the database's clock."""

    name: str
    holder: str
    epoch: int
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLoopStatus:
    """Whether slots are decided, and who said so."""

    state: SlotLoopState
    reason: str | None
    changed_by: str | None
    changed_at: datetime | None  #: None: never paused yet


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """A key of a creating call: unique in its scope, and for one body (its fingerprint)."""

    scope: str
    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """What the first call with an idempotency key was answered."""

    status: int
    body: str


# ---- rounds -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """A host as a round sees it."""

    id: UUID
    name: str
    version: int
    accepts: bool  #: active, up and not held back
    labels: tuple[str, ...]
    capacity: tuple[int, ...]
    committed: tuple[int, ...]
    held_back_until: datetime | None = None  #: failed builds alone keep VMs from it


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantView:
    """A tenant as a round sees it."""

    id: UUID
    name: str
    weight: float
    held: tuple[int, ...]  #: by every unreleased assignment
    parent_id: UUID | None = None  #: the group that it is part of
    vms: int = 0  #: with an unreleased assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group of tenants as a round sees it."""

    id: UUID
    name: str
    weight: float
    parent_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaView:
    """One quota as a round sees it."""

    owner_id: UUID  #: a tenant, or a group with all below it
    owner: str
    resource: str  #: "vms" is the number of VMs
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """What every tenant holds of the pool, in one consistent read."""

    resources: tuple[str, ...]
    pool: tuple[int, ...]  #: capacity of all hosts that are not retired
    tenants: tuple[TenantView, ...]  #: by creation
    groups: tuple[GroupView, ...]  #: by creation


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadView:
    """How the VMs of a request are spread over zones."""

    most: int  #: VMs in one zone
    placed: tuple[tuple[str, int], ...]  #: each zone, and the VMs there, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class VmGroup:
    """VMs of a tenant that keep apart or together."""

    id: UUID
    name: str
    tenant: str
    rule: Literal["anti_affinity", "affinity"]
    soft: bool  #: only as far as there is room
    requests: tuple[str, ...]  #: names of its members that are not over
    vms: int  #: of its members, placed or not
    hosts: Mapping[str, int]  #: how many of them have their place where
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class VmGroupView:
    """VMs that keep apart or together, as a round sees them."""

    id: UUID
    name: str
    apart: bool
    hard: bool
    requests: tuple[UUID, ...]  #: members with VMs to place
    hosts: tuple[UUID, ...]  #: on which VMs of it hold capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """A request with VMs to place."""

    id: UUID
    name: str
    tenant_id: UUID
    vm_type: str
    demand: tuple[int, ...]  #: of one VM
    count: int  #: VMs wanted, absent, and without an unreleased assignment
    min_count: int
    requires: tuple[str, ...]
    hosts: tuple[str, ...] | None
    avoid: tuple[UUID, ...]  #: hosts closed to it: of `failed_on`, and what its network closes
    age: int  #: rounds in which it waited
    created_at: datetime
    short: Waiting | None = None  #: of those that wait for an address or their network
    rules: Rules = Rules()
    spread: SpreadView | None = None  #: of a request that is spread over zones
    failed_on: tuple[UUID, ...] = ()  #: hosts where its builds failed, or its image had no room
    network: NetworkLimit | None = None
    shut_out: bool = False  #: its network lets none of its VMs be placed


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The cluster in one consistent read."""

    epoch: int
    now: datetime
    resources: tuple[str, ...]
    hosts: tuple[HostView, ...]  #: by name; all that are not retired
    tenants: tuple[TenantView, ...]  #: by creation; those who may ask
    requests: tuple[RequestView, ...]  #: by creation
    groups: tuple[GroupView, ...] = ()  #: by creation
    vm_groups: tuple[VmGroupView, ...] = ()  #: of the requests, by creation
    quotas: tuple[QuotaView, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityView:
    """The hosts as they are, for VMs of one type."""

    resources: tuple[str, ...]
    demand: tuple[int, ...]  #: of one VM
    hosts: tuple[HostView, ...]  #: by name; all that are not retired
    apart_from: tuple[UUID, ...]  #: hosts that hold VMs of the group that keeps apart
    together_with: tuple[UUID, ...]  #: hosts that hold VMs of the group that keeps together


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """So many VMs of a request on a host."""

    request_id: UUID
    host_id: UUID
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCommit:
    """A round's decision and its record, for one transaction."""

    holder: str
    epoch: int
    slot_start_at: datetime
    slot_length_s: float
    policy: str
    decided_by: DecidedBy
    fallback_reason: str | None
    parameters: Mapping[str, Any]
    seed: int
    engine_version: str
    budget_units: int | None
    work: int
    cut: bool
    inputs: bytes
    inputs_digest: str
    outcome: Mapping[str, Any]
    shares: Sequence[Mapping[str, Any]]
    bound: float | None
    #: mean |share - fair target| of the tenants per mean target
    fair_distance: float | None
    timings: Mapping[str, float]
    placements: tuple[Placement, ...]
    host_versions: Mapping[UUID, int]
    waiting: Mapping[UUID, Waiting]
    group_shares: Sequence[Mapping[str, Any]] = ()  #: of the groups of tenants


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRound:
    """What of a round came to be."""

    number: int
    #: by request: what its VMs got
    assignments: Mapping[UUID, tuple[UUID, ...]]
    #: their host moved, their VMs were deleted, or their group is elsewhere by now
    dropped: tuple[Placement, ...]

    @property
    def assignment_ids(self) -> tuple[UUID, ...]:
        """All assignments, in the order of their requests."""
        return tuple(key for keys in self.assignments.values() for key in keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSummary:
    """A round in a list."""

    number: int
    slot_start_at: datetime
    slot_length_s: float
    policy: str
    decided_by: DecidedBy
    fallback_reason: str | None
    placed: int
    left_out: int
    dropped: int
    cut: bool
    work: int
    shares: tuple[Mapping[str, Any], ...]
    bound: float | None
    #: mean |share - fair target| of the tenants per mean target
    fair_distance: float | None
    timings: Mapping[str, float]
    engine_version: str
    seed: int
    inputs_digest: str
    created_at: datetime
    group_shares: tuple[Mapping[str, Any], ...] = ()  #: of the groups of tenants


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDecision:
    """What a round was decided on, and what was decided."""

    inputs: bytes
    outcome: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord(RoundSummary):
    """A round with its parameters and, while they are kept, all that a replay needs."""

    parameters: Mapping[str, Any]
    budget_units: int | None
    stored: StoredDecision | None  #: None: purged

    def decision(self) -> StoredDecision:
        """Return what a replay needs, or raise `RoundPurgedError`."""
        if self.stored is None:
            raise RoundPurgedError(self.number, self.created_at)
        return self.stored


# ---- work on hosts ----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAccess:
    """What a worker must know of a host."""

    id: UUID
    name: str
    uri: str
    domain_type: str
    pool: str
    network: str
    base_volume: str | None
    memory_backing_mib: int | None
    credential: str | None = None
    ssh_host_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A lease on an assignment. Whoever takes it over gets another token."""

    assignment_id: UUID
    token: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildImage:
    """The image that a VM's disk rests on, as it lies on the VM's host."""

    reference: str
    format: ImageFormat
    seed_kind: SeedKind
    volume: str


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
    round: int
    resources: Mapping[str, int]
    host: HostAccess
    access: GuestAccess
    network: GuestNetwork | None  #: None: its host does not have it any more
    failed_before: int  #: attempts of this assignment that failed
    image: BuildImage | None = None  #: None: the host's own base volume, if it names one
    hostname: str | None = None  #: None: made from the VM's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A VM to remove, or a failed build to prove absent."""

    claim: Claim
    vm_id: UUID
    generation: int
    quarantined: bool
    host: HostAccess
    request_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportClaim:
    """A lease on an image that is fetched. Whoever takes it over gets another token."""

    image_id: UUID
    token: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """An image to fetch."""

    claim: ImportClaim
    image: Image
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyClaim:
    """A lease on an image's copy. Whoever takes it over gets another token."""

    copy_id: UUID
    token: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """An image to bring to a host."""

    claim: CopyClaim
    image: Image
    host: HostAccess
    volume: str  #: to upload to: no other attempt writes there
    left_volume: str | None  #: what an attempt that did not end may have left


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRemoval:
    """A copy whose image was removed."""

    claim: CopyClaim
    image: str
    host: HostAccess
    volume: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerClaim:
    """A lease on what is asked of a VM's power."""

    vm_id: UUID
    token: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerStep:
    """The next step towards what is asked of a VM's power."""

    claim: PowerClaim
    state: PowerState
    assignment_id: UUID
    generation: int
    host: HostAccess
    overdue: bool  #: the guest is not asked any more
    to_signal: bool  #: it is to be told, for the first time or again


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A task that nobody works on: its name and the id that it carries."""

    task: str
    id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A domain or volume of ours that no assignment stands for."""

    id: UUID
    host: HostAccess
    kind: Literal["domain", "volume"]
    vm_uuid: UUID | None
    name: str
    assignment_id: UUID | None
    asked: bool = False  #: by an operator, whatever the ledger knows of it
