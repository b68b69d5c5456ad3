"""What an explanation of a request or a VM says: values, as REST and CLI show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from controller.queries.wait_estimates import WaitingTime
from registry.moves import Move
from registry.requests import ImageWait


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortageExplanation:
    """One resource that stood in the way of one more VM."""

    resource: str
    hosts_short: int  #: hosts with too little of it free
    hosts: int  #: hosts that the request may use
    nearest_host: str | None  #: the one that lacked least; for operators only
    missing: int  #: what that host lacked, in the resource's unit


@dataclass(frozen=True, slots=True, kw_only=True)
class ObstacleExplanation:
    """One reason why hosts take no VM of it; a host may have several."""

    kind: str
    what: str | None  #: the label, zone, group, resource, network or quota
    hosts: int  #: hosts that it speaks of, of all
    only: int  #: of them, those that have no other reason
    #: of a resource: what the nearest of them lacks; of a quota or addresses: what is wanting
    missing: int | None
    only_hosts: tuple[str, ...]  #: some of them; for operators only
    until: str | None = None  #: of hosts held back after failed builds: tried again then


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaExplanation:
    """One quota that stood in the way of more VMs."""

    tenant: str  #: whose quota: the tenant's own, or that of a group above it
    resource: str  #: "vms" is the number of VMs
    limit: int
    used: int  #: held after the round
    needed: int  #: by what would be placed next: a VM, or a gang


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareExplanation:
    """What its tenant holds of the cluster after the round, and what would be fair."""

    held: float
    fair: float
    above_fair: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseExplanation:
    """Nothing is decided at all: an operator wants that."""

    since: datetime | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndecidedExplanation:
    """Nothing is decided, unintentionally: no control centre works."""

    since: datetime | None  #: None: nothing was decided yet


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingExplanation:
    """Why VMs of a request were left out of the last round that looked at it."""

    count: int
    reason: str
    message: str
    round: int | None
    slot_start_at: str | None
    shortages: tuple[ShortageExplanation, ...]
    needed: int | None = None  #: VMs of a gang that must fit at once
    fit: int | None = None  #: VMs of a gang that did; to tenants a step
    held_back: int = 0  #: VMs that would have fitted where room is kept for others; the same
    held_hosts: int = 0  #: hosts on which room is kept for it
    held_host_names: tuple[str, ...] | None = None  #: for operators only
    #: the plan whose moves make room for it, and where; for operators only
    plan: str | None = None
    freed_host_names: tuple[str, ...] | None = None
    moves_make_room: bool = False
    network: str | None = None  #: that has no address left, or that hosts do not have
    gave_way_to: tuple[str, ...] = ()  #: requests of its tenant with a higher priority
    obstacles: tuple[ObstacleExplanation, ...] = ()
    would_help: tuple[str, ...] = ()  #: what would have to change for one more VM
    share: ShareExplanation | None = None
    quotas: tuple[QuotaExplanation, ...] = ()
    paused: PauseExplanation | None = None
    undecided: UndecidedExplanation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedVm:
    """Where one VM of a request is."""

    vm: UUID
    name: str
    host: str | None
    observed: str
    round: int | None
    waits_for_image: ImageWait | None  #: None: its image is on its host, or it has none
    unknown_since: datetime | None = None  #: since when its host is not heard; None: it is
    paused_since: datetime | None = None  #: since when its host has its guest paused
    ends_at: datetime | None = None  #: of a spot VM whose room is needed
    ending_for: str | None = None  #: TENANT/NAME of the request; to tenants of their own alone


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestExplanation:
    """The explanation of a request."""

    request: UUID
    name: str | None
    tenant: str
    state: str
    wanted: int
    placed: int
    running: int  #: on hosts that answer
    waiting: WaitingExplanation | None
    order: int | None  #: its place among the tenant's (for operators: among all) waiting requests
    vms: tuple[PlacedVm, ...]
    unknown: int = 0  #: VMs on hosts that do not answer any more
    estimate: WaitingTime | None = None  #: how long it may wait yet; None: nothing of it waits
    unbuilt: str | None = None  #: why what is placed is not built; None: nothing is in the way


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedCombination:
    """One strategy of a host in the game: what it would have taken, and its value for the host."""

    combination: Mapping[str, int]  #: VMs by vm_type
    minimum_utilization: float
    utility: float
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VmExplanation:
    """Why this host."""

    vm: UUID
    name: str
    host: str | None
    round: int | None
    slot_start_at: str | None
    policy: str | None
    decided_by: str | None
    phase: str | None  #: game, remainder, gang, held, priority, fallback or the policy's name
    utilities: tuple[WeighedCombination, ...]
    message: str
    waits_for_image: ImageWait | None = None  #: None: its image is on its host, or it has none
    last_move: Move | None = None  #: the latest, whatever became of it; None: it never moved
    moved_here: Move | None = None  #: that brought it to its host; None: the round placed it there
