"""Decisions of a round, for one transaction, and what was committed of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from registry.records.cluster import BroughtVolumes, KeptRoom
from registry.records.requests import WaitingStatus
from registry.records.rounds import DecidedBy


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
class Placement:
    """A number of VMs of a request on a host."""

    request_id: UUID
    host_id: UUID
    count: int
    shared_pool: str | None = None  #: of VMs that have disks there
    volumes: BroughtVolumes | None = None  #: of each VM
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
