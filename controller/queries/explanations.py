"""Explanations of requests and VMs, as the API and the CLI show them."""

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
    """A resource of which too little was free for one more VM."""

    resource: str
    hosts_short: int  #: hosts with too little of it free
    hosts: int  #: hosts that the request may use
    nearest_host: str | None  #: the host that lacked least; operators only
    missing: int  #: what that host lacked, in the resource's unit


@dataclass(frozen=True, slots=True, kw_only=True)
class ObstacleExplanation:
    """A reason why hosts take no VM of the request; a host may have several."""

    kind: str
    what: str | None  #: the label, zone, group, resource, network or quota
    hosts: int  #: hosts to which it applies
    only: int  #: hosts without any other reason
    #: amount that the nearest host lacks, or that the quota or the addresses lack
    missing: int | None
    only_hosts: tuple[str, ...]  #: some of the hosts in ``only``; operators only
    until: str | None = None  #: for hosts held back after failed builds: the next attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaExplanation:
    """A quota that did not allow more VMs."""

    tenant: str  #: the owner of the quota: the tenant or a group above it
    resource: str  #: "vms" is the number of VMs
    limit: int
    used: int  #: held after the round
    needed: int  #: by the next VM or gang to be placed


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetExplanation:
    """A budget that has ended in the month of the round."""

    tenant: str  #: the owner of the budget: the tenant or a group above it
    resource: str  #: "vms" is the number of VMs, "cost" the costs
    amount: str  #: of a month: unit hours, or costs in the currency
    until: datetime  #: the end of the month


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareExplanation:
    """The tenant's share of the cluster after the round, and its fair share."""

    held: float
    fair: float
    above_fair: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseExplanation:
    """An operator paused the slot loop, so nothing is decided."""

    since: datetime | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndecidedExplanation:
    """No control centre works, so nothing is decided."""

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
    fit: int | None = None  #: VMs of a gang that fitted; for tenants in steps
    held_back: int = 0  #: VMs that fit only where room is kept for others; in steps, too
    held_hosts: int = 0  #: hosts on which room is kept for it
    held_host_names: tuple[str, ...] | None = None  #: for operators only
    #: the plan whose moves make room for the request, and the hosts; operators only
    plan: str | None = None
    freed_host_names: tuple[str, ...] | None = None
    moves_make_room: bool = False
    moves_could_make_room: bool = False  #: enough is free in all, and no plan comes by itself
    volumes: tuple[str, ...] = ()  #: volumes that limit it to the hosts that reach their files
    network: str | None = None  #: the network without free addresses, or missing on hosts
    gave_way_to: tuple[str, ...] = ()  #: requests of its tenant with a higher priority
    obstacles: tuple[ObstacleExplanation, ...] = ()
    would_help: tuple[str, ...] = ()  #: what would have to change for one more VM
    share: ShareExplanation | None = None
    quotas: tuple[QuotaExplanation, ...] = ()
    budgets: tuple[BudgetExplanation, ...] = ()
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
    unknown_since: datetime | None = None  #: None: its host answers
    paused_since: datetime | None = None  #: time since which the guest is paused on its host
    borrowed: bool = False
    ends_at: datetime | None = None  #: announced end of a spot or borrowed VM
    ending_for: str | None = None  #: TENANT/NAME of the request that gets the room


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
    order: int | None  #: position in the tenant's queue (for operators: in the whole queue)
    vms: tuple[PlacedVm, ...]
    unknown: int = 0  #: VMs on hosts that do not answer any more
    estimate: WaitingTime | None = None  #: estimated waiting time; None: no VM of it waits
    leaving: int = 0  #: VMs that are being deleted and still hold a place
    unbuilt: str | None = None  #: the reason why placed VMs are not built; None: there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedCombination:
    """One strategy of a host in the game: what it would have taken, and its value for the host."""

    combination: Mapping[str, int]  #: VMs by vm_type
    minimum_utilization: float
    utility: float
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VmExplanation:
    """Why a VM is on its host."""

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
    last_move: Move | None = None  #: the latest move, even if it failed; None: it never moved
    moved_here: Move | None = None  #: the move to its present host; None: the round placed it there
