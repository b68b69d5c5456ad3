"""The inputs, decisions and records of rounds: frozen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from registry.errors import RoundDamagedError, RoundPurgedError
from registry.lifecycle import SlotLoopState
from registry.records.networks import NetworkLimit
from registry.records.requests import Rules, WaitingStatus

DecidedBy = Literal["policy", "fallback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A right to act alone until it expires, by the database's clock."""

    name: str
    holder: str
    epoch: int
    expires_at: datetime
    held_since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLoopStatus:
    """Whether the slot loop runs or is paused, and by whom."""

    state: SlotLoopState
    reason: str | None
    changed_by: str | None
    changed_at: datetime | None  #: None if it was never paused
    last_slot_at: datetime | None = None  #: start of the last slot that was decided
    slot_length_s: float | None = None  #: length of that slot


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
class SpotEnd:
    """A spot or borrowed VM that a round ends, and for which request."""

    vm_id: UUID
    host_id: UUID
    request_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotCommit:
    """A round's decisions on placed spot and borrowed VMs."""

    ends: tuple[SpotEnd, ...] = ()
    lets_in: tuple[KeptRoom, ...] = ()
    grace_s: int = 0
    hold_s: int = 0  #: seconds for which the room is kept after the end
    keeps_rooms: bool = False  #: whether the round saw room that spot VMs leave


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
class KeptForReservation:
    """The hosts on which a round keeps room for a reservation."""

    reservation_id: UUID
    kept: tuple[tuple[UUID, int], ...]  #: hosts, and the number of VMs with room on each
    before: Mapping[UUID, int]  #: number of VMs on each host before this round
    short: int  #: VMs for which there is no room
    short_before: int
    lost: bool  #: whether room beyond ``before`` is stored that no longer exists

    @property
    def changes(self) -> bool:
        """Whether the round changed the room that is kept for the reservation."""
        return self.lost or self.short != self.short_before or dict(self.kept) != self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedCommit:
    """A round's decisions on reservations."""

    reservations: tuple[KeptForReservation, ...] = ()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A number of VMs of a request on a host."""

    request_id: UUID
    host_id: UUID
    count: int
    shared_pool: str | None = None  #: of VMs that have disks there
    borrowed: bool = False  #: VMs that the request borrows, which the commit creates


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundHoldings:
    """The pool of a round, and what its tenants hold by the round's shares of them."""

    resources: tuple[str, ...]
    pool: tuple[int, ...]  #: by resource
    #: by tenant and resource, tenants in the order of the round's shares
    before: Sequence[Sequence[int]]
    after: Sequence[Sequence[int]]  #: with the decided placements
    #: decayed means of what they held, in millionths; None: past holdings do not count
    past: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastHolding:
    """What is kept of the past holdings of a tenant or group, by resource."""

    past: Mapping[str, int]  #: decayed mean at ``at_us``, in millionths of a unit
    charged: Mapping[str, int]  #: what counts as held since
    at_us: int  #: microseconds since 1970, by the database's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class PastHoldingChanges:
    """Changes of past holdings, by the id of a tenant or group."""

    kept: Mapping[UUID, PastHolding] = field(default_factory=dict)
    gone: tuple[UUID, ...] = ()
    replaces_all: bool = False  #: whether everything that was kept is deleted first


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
    outcome: bytes  #: its document, packed by `registry.db.packed_json`
    shares: Sequence[Mapping[str, Any]]
    bound: float | None
    #: mean |share - fair target| of the tenants per mean target
    fair_distance: float | None
    timings: Mapping[str, float]
    placements: tuple[Placement, ...]
    host_versions: Mapping[UUID, int]
    waiting: Mapping[UUID, WaitingStatus]
    group_shares: Sequence[Mapping[str, Any]] = ()  #: of the groups of tenants
    prices: Mapping[str, Any] | None = None  #: None: nothing is known of them
    spot: SpotCommit = SpotCommit()
    reserved: ReservedCommit = ReservedCommit()
    holdings: RoundHoldings | None = None  #: None: proofs do not let tenants recompute shares
    #: half-life and horizon of past holdings; None: they did not count
    memory: Mapping[str, int] | None = None
    past_holdings: PastHoldingChanges | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRound:
    """The committed part of a round."""

    number: int
    #: by request: what its VMs got
    assignments: Mapping[UUID, tuple[UUID, ...]]
    #: their host moved, their VMs were deleted, or their group is elsewhere by now
    dropped: tuple[Placement, ...]

    @property
    def assignment_ids(self) -> tuple[UUID, ...]:
        """The assignments that the round made, in the order of their requests."""
        return tuple(key for keys in self.assignments.values() for key in keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundListEntry:
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
    prices: Mapping[str, Any] | None = None  #: None: of a round from before, or not known
    #: half-life and horizon of past holdings; None: they did not count
    memory: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofPool:
    """The capacity of all hosts that a round's shares are fractions of."""

    resources: tuple[str, ...]
    amounts: tuple[int, ...]  #: by resource


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofMemory:
    """The decay of past holdings in a round."""

    half_life_s: int
    horizon_s: int  #: mean life of VMs


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofHeader:
    """The public fields of a round."""

    round: int
    slot_start_at: str  #: ISO 8601, UTC, to the microsecond
    policy: str
    decided_by: str
    cut: bool
    seed: int
    engine_version: str
    inputs_digest: str
    bound: float | None
    fair_distance: float | None
    pool: ProofPool | None  #: None: of a round from before version 2
    memory: ProofMemory | None = None  #: None: past holdings do not count


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofHeld:
    """What a tenant's shares are computed from, by resource in the order of the pool."""

    before: tuple[int, ...]
    after: tuple[int, ...]  #: with the decided placements


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofLevel:
    """Both parts of a tenant's level after a round, and the past that it follows from."""

    past: float  #: parts of the pool, for what it held in the past
    now: float  #: parts of the pool, for what it holds
    #: decayed mean of what it held, in millionths, by resource in the order of the pool
    past_millionths: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRow:
    """The values that a round discloses to one tenant about the tenant."""

    tenant: str
    weight: float
    before: float  #: dominant share of the tenant before the round
    after: float  #: dominant share with the round's placements
    target: float | None  #: fair dominant share
    asked: int  #: number of the tenant's VMs that waited
    given: int  #: number of VMs that the round placed
    held: ProofHeld | None  #: None: of a round from before version 2
    level: ProofLevel | None = None  #: None: past holdings do not count


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSignature:
    """The site's signature of a link, and thereby of all links before it."""

    key: str  #: public key, Ed25519, hexadecimal
    signature: str  #: hexadecimal


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteKey:
    """A public key of the site, and the rounds whose links it signs."""

    public_key: str  #: Ed25519, hexadecimal
    first_round: int
    last_round: int | None  #: None: the present key
    #: the signature by which the key before it names it; None: that key does not
    endorsement: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundProof:
    """The link of a round in the hash chain, with one tenant's row; digests are hexadecimal."""

    round: int
    previous: str  #: the link before
    content: str  #: digest of the header and the root
    link: str  #: digest of the link before and the content
    header: ProofHeader | None = None  #: None: purged, the link alone is kept
    root: str | None = None  #: root of the Merkle tree
    row: ProofRow | None = None  #: None: the round has none of this tenant
    salt: str | None = None  #: salt of the row's leaf
    path: tuple[
        tuple[Literal["left", "right"], str], ...
    ] = ()  #: from leaf to root: the sibling digests
    signed: HeadSignature | None = None  #: None: the link is not signed


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestRound:
    """The values of the latest round that the next one needs."""

    number: int
    slot_start_at: datetime
    placed: int
    left_out: int
    dropped: int
    cut: bool
    inputs_digest: str
    memory: Mapping[str, int] | None = None  #: None: it counted no past holdings


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDecision:
    """The stored inputs and outcome of a round."""

    inputs: bytes
    outcome: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord(RoundListEntry):
    """A round with its parameters and, while they are kept, all that a replay needs."""

    parameters: Mapping[str, Any]
    budget_units: int | None
    stored: StoredDecision | None  #: None if purged or damaged
    damaged: bool = False  #: whether the stored data cannot be read

    def decision(self) -> StoredDecision:
        """Return the inputs and outcome for a replay of the round.

        Raises
        ------
        RoundPurgedError
            If they were purged.
        RoundDamagedError
            If they cannot be read.
        """
        if self.damaged:
            raise RoundDamagedError(self.number)
        if self.stored is None:
            raise RoundPurgedError(self.number, self.created_at)
        return self.stored
