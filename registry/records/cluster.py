"""Views of the cluster: what a round reads, frozen values of one consistent read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from registry.records.networks import NetworkLimit
from registry.records.requests import Rules, WaitingStatus
from registry.records.rounds import LatestRound


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """A host as a round sees it."""

    id: UUID
    name: str
    version: int
    accepts: bool  #: whether the host is active, up, not in backoff, and its pool answers
    labels: tuple[str, ...]
    capacity: tuple[int, ...]
    committed: tuple[int, ...]
    backoff_until: datetime | None = None  #: failed builds alone keep VMs from it


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantView:
    """A tenant as a round sees it."""

    id: UUID
    name: str
    weight: float
    held: tuple[int, ...]  #: amounts of all unreleased assignments, except those of spot VMs
    parent_id: UUID | None = None  #: group of the tenant
    vms: int = 0  #: number of VMs with an unreleased assignment
    spot_held: tuple[int, ...] = ()  #: amounts of spot VMs, which are not in `held`; (): none


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
    """The holdings of all tenants, in one consistent read."""

    resources: tuple[str, ...]
    pool: tuple[int, ...]  #: capacity of all hosts that are not retired
    tenants: tuple[TenantView, ...]  #: by creation
    groups: tuple[GroupView, ...]  #: by creation


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadView:
    """The VMs of a spread request by zone."""

    most: int  #: VMs in one zone
    #: number of the request's VMs in each zone, by the zone's name
    placed: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VmGroupView:
    """A VM group as a round sees it."""

    id: UUID
    name: str
    apart: bool
    hard: bool
    requests: tuple[UUID, ...]  #: members with VMs to place
    hosts: tuple[UUID, ...]  #: hosts on which VMs of the group hold capacity


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class BroughtVolumes:
    """The volumes that a request brings for one of its VMs."""

    names: tuple[str, ...] = ()  #: of those with a file
    hosts: tuple[str, ...] | None = None  #: those that reach these files, by name; None: all
    disk_gib: int = 0  #: of those without a file, which get it where the VM is placed
    leaving: tuple[str, ...] = ()  #: names of those whose file is being deleted


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
    #: hosts closed to the request: those in `failed_on`, and those without its network
    avoid: tuple[UUID, ...]
    age: int  #: number of rounds in which the request waited
    created_at: datetime
    #: VMs that wait for an address, their network, their image or a budget, and why
    short: WaitingStatus | None = None
    rules: Rules = field(default_factory=Rules)
    spread: SpreadView | None = None  #: of a request that is spread over zones
    failed_on: tuple[UUID, ...] = ()  #: hosts where its builds failed, or its image had no room
    retry_at: datetime | None = None  #: when the first of `failed_on` takes it again
    network: NetworkLimit | None = None
    shut_out: bool = False  #: `short` has all of its VMs
    #: its VMs have disks there: a part of a request, of which another row may have the rest
    shared_pool: str | None = None
    #: of each of its VMs, in its demand and its hosts: a part of a request, too
    volumes: BroughtVolumes | None = None
    named: tuple[str, ...] | None = None  #: its hosts without the limit by volumes
    priority: int = 0  #: priority among the tenant's requests
    spot: bool = False
    borrowed: bool = False  #: its VMs are those that the request borrows beyond its count


@dataclass(frozen=True, slots=True, kw_only=True)
class FreedView:
    """Room that a plan's moves free for a request."""

    plan_id: UUID
    request_id: UUID
    hosts: tuple[UUID, ...]  #: hosts on which the plan places its VMs
    #: hosts, and what VMs will hold there whose moves are not created yet
    coming: tuple[tuple[UUID, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptibleVm:
    """A spot VM or borrowed VM that is on a host."""

    id: UUID
    name: str
    request_id: UUID
    tenant_id: UUID
    host_id: UUID
    amounts: tuple[int, ...]
    may_end: bool  #: whether it neither ends nor moves already
    ending: bool = False  #: whether it is being deleted, or its end is announced


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRoom:
    """Room for VMs of a request on a host, which spot VMs leave or left."""

    request_id: UUID
    host_id: UUID
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotView:
    """Placed spot VMs and kept room, as a round sees them."""

    vms: tuple[PreemptibleVm, ...]  #: by the time of their placement
    kept: tuple[KeptRoom, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BorrowedView:
    """Placed borrowed VMs, and the requests that may borrow more, as a round sees them."""

    vms: tuple[PreemptibleVm, ...]  #: by the time of their placement
    asks: tuple[RequestView, ...]  #: by creation; ``count`` is how many more they may borrow


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationView:
    """A reservation as a round sees it."""

    asks: RequestView  #: request for the reserved VMs; its ``count`` is the number to keep room for
    in_force: bool
    starts_at: datetime
    ends_at: datetime
    #: hosts that take VMs, and the number of VMs for which room is kept there
    holds: tuple[tuple[UUID, int], ...]
    lost: bool = False  #: whether stored room no longer exists
    short: int = 0  #: VMs for which the latest round found no room


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedView:
    """The reservations as a round sees them."""

    reservations: tuple[ReservationView, ...]  #: by beginning
    #: reservation of each request that draws on one
    draws: Mapping[UUID, UUID] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The cluster in one consistent read."""

    epoch: int
    now: datetime
    resources: tuple[str, ...]
    hosts: tuple[HostView, ...]  #: all that are not retired, by name
    tenants: tuple[TenantView, ...]  #: by creation; those who may ask
    requests: tuple[RequestView, ...]  #: by creation
    groups: tuple[GroupView, ...] = ()  #: by creation
    vm_groups: tuple[VmGroupView, ...] = ()  #: of the requests, by creation
    quotas: tuple[QuotaView, ...] = ()
    last: LatestRound | None = None  #: None before the first round
    freed: tuple[FreedView, ...] = ()  #: by approval of the plans
    spot: SpotView | None = None  #: None: no spot VM exists or is requested, and no room is kept
    borrowed: BorrowedView | None = None  #: None: no request borrows VMs
    #: None: no room is kept for any; what is kept is committed on its hosts
    reserved: ReservedView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityView:
    """The hosts as they are, for VMs of one type."""

    resources: tuple[str, ...]
    demand: tuple[int, ...]  #: of one VM
    hosts: tuple[HostView, ...]  #: all that are not retired, by name
    apart_from: tuple[UUID, ...]  #: hosts that hold VMs of the group that keeps apart
    together_with: tuple[UUID, ...]  #: hosts that hold VMs of the group that keeps together
    cluster: ClusterView | None = None  #: of the same read, as a round would see it, if requested
