"""Hosts, their reports, and how workers reach them: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from registry.lifecycle import FenceState, HostAdmin, HostHealth
from registry.reconciliation import Difference, Remedy
from registry.records.fields import Observed, Settable


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The inventory of one resource on one host."""

    resource: Settable[str]
    detected: Observed[int | None]  #: amount that the monitor detected
    override: Settable[int | None]  #: amount that the operator set in place of the detected one
    reserved: Settable[int]
    foreign: Observed[int]  #: amount held outside of assignments: foreign domains, copies of images
    ratio_thousandths: Observed[int]  #: over-commit ratio in force; 1000 means none
    #: ratio of the host itself; None: that of its labels, if any
    own_ratio_thousandths: Settable[int | None]
    committed: Observed[int]  #: sum over unreleased assignments and volumes, by triggers
    capacity: Observed[int]  #: max(0, (override or detected − reserved − foreign) × ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The progress of a host's fencing."""

    state: FenceState
    requested_by: str
    requested_at: datetime
    attempts: int  #: number of failed attempts
    last_error: str | None
    retry_at: datetime | None  #: earliest time of the next attempt
    fenced_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceOrder:
    """A host that a worker is to fence, with the worker's claim."""

    host_id: UUID
    host: str
    target: str  #: the argument of the operator's fencing command
    token: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A physical machine running libvirt."""

    id: Observed[UUID]
    name: Settable[str]
    uri: Settable[str]
    #: name of the host's credential; its files are not stored here
    credential: Settable[str | None]
    #: public SSH host keys, of which the host must present one
    ssh_host_keys: Settable[tuple[str, ...]]
    admin: Settable[HostAdmin]
    health: Observed[HostHealth]
    labels: Settable[tuple[str, ...]]
    version: Observed[int]  #: rises with each change that can invalidate a placement on the host
    domain_type: Settable[str]
    pool: Settable[str]
    network: Settable[str]
    base_volume: Settable[str | None]
    memory_backing_mib: Settable[int | None]
    max_builds: Settable[int]
    inventories: Settable[tuple[Inventory, ...]]  #: in the order of the resource axis
    last_polled_at: Observed[datetime | None]
    last_error: Observed[str | None]
    missed_polls: Observed[int]
    backoff_until: Observed[datetime | None]  #: end of the time without new VMs after failed builds
    created_at: Observed[datetime]
    warnings: Observed[tuple[str, ...]] = ()  #: warnings about its settings
    failed_builds: Observed[int] = 0  #: failed builds in a row; a successful one resets it
    fence_target: Settable[str | None] = None  #: the argument of the fencing command
    fence: Observed[Fence | None] = None  #: set while the host is down and its fencing is requested
    #: it answers, and is not yet clear of leftovers
    returning_since: Observed[datetime | None] = None
    machine_uuid: Observed[str | None] = None  #: UUID of the machine, as its libvirt reports it
    #: UUID of another machine that answers in the host's place
    found_machine_uuid: Observed[str | None] = None
    machine_name: Observed[str | None] = None  #: host name of the machine, without its domain
    machine_domain: Observed[str | None] = None  #: last known domain of the machine's host name
    found_machine_name: Observed[str | None] = None  #: host name of the other machine that answers
    #: host that is registered for the same machine; this one gets no VMs
    same_machine_as: Observed[str | None] = None
    #: since when the pool does not answer; its volumes are then unknown
    pool_silent_since: Observed[datetime | None] = None
    #: security model of its guests: apparmor, selinux or none
    security_model: Observed[str | None] = None
    shares_kept: Observed[bool | None] = None  #: whether vCPUs share busy processors fairly
    #: whether the host can filter what guests send; None: not reported
    can_filter: Observed[bool | None] = None
    shared_pool: Observed[str | None] = None  #: pool that other hosts see too, by the host's label


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedResource:
    """Capacity and committed amount of one resource on each host of a `HostMap`, in its order."""

    resource: str
    capacity: tuple[int, ...]
    committed: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMap:
    """All hosts that are not retired, in columns, whose nth entries belong to the nth host."""

    at: datetime
    names: tuple[str, ...]  #: host names; the other columns are in their order
    admin: tuple[HostAdmin, ...]
    health: tuple[HostHealth, ...]
    #: why a host that is up gets no VMs: held_back, pool_silent, returning or same_machine
    closed: tuple[str | None, ...]
    labels: tuple[str, ...]  #: labels of all hosts, each once
    labels_of: tuple[tuple[int, ...], ...]  #: positions in `labels`
    resources: tuple[MappedResource, ...]
    tenants: tuple[str, ...]  #: tenants whose VMs hold capacity, each once
    #: pairs of a position in `tenants` and how many of its VMs hold capacity there
    held_by: tuple[tuple[tuple[int, int], ...], ...]


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
    filtered: bool | None = None  #: whether its interfaces have filters of fuga; None: not reported
    #: The disk that claims most, if more than the host's pool holds; it counts as the whole pool.
    capped_disk: str | None = None
    #: Serial numbers of its disks beyond root and seed; None: not reported, by an earlier release.
    attached: tuple[str, ...] | None = None
    volume_files: tuple[str, ...] = ()  #: of tenants' volumes in the pool that its disks name


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """One poll of a host. Consumption is None where the driver does not report it."""

    hostname: str
    detected: Mapping[str, int]
    cpu_busy_percent: float | None
    memory_used_mib: int | None
    disk_used_gib: int | None
    domains: tuple[DomainReport, ...]
    volumes: tuple[str, ...]  #: names of volumes in the host's pool
    started_at: datetime
    polled_at: datetime
    took_ms: int
    machine_uuid: str | None = None
    #: since when the pool does not answer; its volumes are then unknown
    pool_silent_since: datetime | None = None
    security_model: str | None = None
    shares_kept: bool | None = None
    #: whether the host can filter what guests send; None: not reported
    can_filter: bool | None = None
    largest_console_bytes: int = 0  #: size of the largest console log that was read
    #: MAC address by name of its network interfaces; none where its libvirt lists no devices
    interfaces: Mapping[str, str] = field(default_factory=dict)
    addresses: tuple[str, ...] = ()  #: IP addresses of the name in its URI
    unnamed: tuple[str, ...] = ()  #: volumes of the pool that no domain of the host uses


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDifference:
    """One difference between a host and the ledger, with its remedy."""

    host: str
    difference: Difference
    subject: str  #: a VM's id, or the name of a domain, volume, resource or machine
    what: str
    remedy: Remedy
    action: str
    why: str
    on_confirmation: str | None  #: what an operator's confirmation does
    assignment_id: UUID | None = None
    vm_uuid: UUID | None = None  #: UUID of the domain's VM


@dataclass(frozen=True, slots=True)
class Miss:
    """A failed poll of a host."""

    error: str
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MissPolicy:
    """The numbers of failed polls after which a host is unreachable or down."""

    unreachable_after: int
    down_after: int
    apart_s: float = 0.0  #: failed polls that began closer together than this count once


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorRecord:
    """A monitor, with the data of its last heartbeat."""

    id: UUID
    name: str  #: its machine and process
    started_at: datetime
    heartbeat_at: datetime
    lease_until: datetime
    is_live: bool  #: whether its lease is live
    watched: int  #: number of hosts that it polls
    late: int  #: number of these with an overdue poll


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedHost:
    """The data of a host that a monitor needs."""

    id: UUID
    name: str
    uri: str
    pool: str
    credential: str | None
    ssh_host_keys: tuple[str, ...]
    health: HostHealth


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsRead:
    """Hosts that are not retired, all or only changed ones, and those retired since."""

    cursor: int  #: where the next read continues
    hosts: tuple[WatchedHost, ...]
    gone: frozenset[UUID]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAccess:
    """The data of a host that a worker needs."""

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
    #: UUID of the machine, once it answered; `UUID/NAME` where others report the UUID, too. `?`
    #: before it: its last report had no UUID, and was the host's by what it showed.
    machine: str | None = None
    #: whether the pool does not answer; only work without storage is possible
    pool_silent: bool = False
