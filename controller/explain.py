"""Straight answers: why a request waits, and why a VM is where it is.

Nothing is computed anew here. What is told was written down by the round that
decided it, so an explanation can be checked against the stored snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from controller.obstacles import what_would_help
from controller.round_inputs import decode_inputs
from placement import SHARE_TOLERANCE
from registry import (
    CopyState,
    ImageWait,
    Registry,
    Request,
    RequestState,
    RoundRecord,
    SlotLoopState,
    SlotLoopStatus,
    Vm,
    Waiting,
)

_WAITS = (RequestState.PENDING, RequestState.PARTLY_PLACED)
_PAGE = 500

_REASONS: Mapping[str, str] = {
    "no_host_large_enough": "no host is large enough for one of these VMs, even when empty",
    "no_eligible_host": "no host that takes VMs now fits what the request requires",
    "failed_builds": "the hosts that would take it are held back after failed builds",
    "no_room": "every host that it may use is too full",
    "above_overload": "room is left only above the overload threshold",
    "no_slots": "room is left, but not in whole slots",
    "gang_not_whole": "fewer of these VMs have room at once than its min_count needs",
    "quota": "a quota stands in the way",
    "held_back": "room is kept for a request that has waited longer",
    "no_address": "its network has no address left for them",
    "network_missing": "no host has its network",
    "anti_affinity": "every host with room holds a VM of its group, which keeps apart",
    "affinity": "no host with room is one where its group may be together",
    "zone_full": "every zone with room has its part of these VMs",
    "group_moved": "VMs of its group were placed while the round was decided; it is decided again",
    "nothing_asked": "its VM type demands nothing",
    "host_moved": "its host changed while the round was decided; it is decided again",
    "no_room_for_image": "the host chosen has no disk left for its image; another is looked for",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortageExplanation:
    """One resource that stood in the way of one more VM."""

    resource: str
    hosts_short: int  #: hosts with too little of it free
    hosts: int  #: hosts that the request may use
    nearest_host: str | None  #: the one that lacked least; told to operators only
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
    only_hosts: tuple[str, ...]  #: some of them; told to operators only
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
class WaitingExplanation:
    """Why VMs of a request were left out of the last round that looked at it."""

    count: int
    reason: str
    message: str
    round: int | None
    slot_start_at: str | None
    shortages: tuple[ShortageExplanation, ...]
    needed: int | None = None  #: VMs of a gang that must fit at once
    fit: int | None = None  #: VMs of a gang that did
    held_back: int = 0  #: VMs that would have fitted where room is kept for others
    held_hosts: int = 0  #: hosts on which room is kept for it
    held_host_names: tuple[str, ...] | None = None  #: told to operators only
    network: str | None = None  #: that has no address left, or that hosts do not have
    obstacles: tuple[ObstacleExplanation, ...] = ()
    would_help: tuple[str, ...] = ()  #: what would have to change for one more VM
    share: ShareExplanation | None = None
    quotas: tuple[QuotaExplanation, ...] = ()
    paused: PauseExplanation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedVm:
    """Where one VM of a request is."""

    vm: UUID
    name: str
    host: str | None
    observed: str
    round: int | None
    waits_for_image: ImageWait | None  #: None: its image is on its host, or it has none


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestExplanation:
    """What became of a request."""

    request: UUID
    name: str | None
    tenant: str
    state: str
    wanted: int
    placed: int
    running: int
    waiting: WaitingExplanation | None
    order: int | None  #: its place among the tenant's (for operators: among all) waiting requests
    vms: tuple[PlacedVm, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedCombination:
    """One strategy of a host in the game: what it would have taken, and its worth to it."""

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
    phase: str | None  #: game, remainder, gang, held, fallback or the policy's name
    utilities: tuple[WeighedCombination, ...]
    message: str
    waits_for_image: ImageWait | None = None  #: None: its image is on its host, or it has none


def explain_request(registry: Registry, request_id: UUID, *, operator: bool) -> RequestExplanation:
    """Tell what became of a request and why the rest of it waits.

    Raises
    ------
    NotFoundError
        If there is no such request.
    """
    request = registry.requests.get(request_id)
    waiting = None
    if request.state in _WAITS:
        status = registry.slot_loop.get()
        waiting = _while_paused(_waiting(request, operator=operator), status)
    return RequestExplanation(
        request=request.id,
        name=request.name,
        tenant=request.tenant,
        state=request.state.value,
        wanted=request.count,
        placed=request.vms_placed,
        running=request.vms_running,
        waiting=waiting,
        order=_place_in_line(registry, request, operator=operator) if waiting else None,
        vms=tuple(
            PlacedVm(
                vm=vm.id,
                name=vm.name,
                host=vm.host,
                observed=vm.observed.value,
                round=vm.round,
                waits_for_image=vm.waits_for_image,
            )
            for vm in _vms(registry, request_id)
        ),
    )


def explain_vm(registry: Registry, vm_id: UUID, *, operator: bool) -> VmExplanation:
    """Tell which round put a VM where it is, and what its host weighed then.

    Raises
    ------
    NotFoundError
        If there is no such VM.
    """
    vm = registry.vms.get(vm_id)
    if vm.round is None or vm.host is None:
        return VmExplanation(
            vm=vm.id,
            name=vm.name,
            host=None,
            round=None,
            slot_start_at=None,
            policy=None,
            decided_by=None,
            phase=None,
            utilities=(),
            message="it has no host yet; `fuga explain` of its request tells what it waits for",
        )
    placed = _placed(vm, registry.rounds.get(vm.round))
    image = vm.waits_for_image
    if image is None:
        return placed
    message = f"{placed.message}; it is built there once {image.image} is: {_how_far(image)}"
    return replace(placed, waits_for_image=image, message=message)


def _waiting(request: Request, *, operator: bool) -> WaitingExplanation:
    told: Waiting | None = request.waiting
    if told is None:
        return WaitingExplanation(
            count=request.count - request.vms_placed,
            reason="not_decided_yet",
            message="it waits for the start of the next slot",
            round=None,
            slot_start_at=None,
            shortages=(),
        )
    shortages = tuple(
        ShortageExplanation(
            resource=each["resource"],
            hosts_short=each["hosts_short"],
            hosts=each["hosts"],
            nearest_host=each["nearest_host"] if operator else None,
            missing=each["missing"],
        )
        for each in told.detail.get("shortages", ())
    )
    obstacles = tuple(told.detail.get("obstacles", ()))
    gang = told.detail.get("gang", {})
    names = tuple(each["host"] for each in told.detail.get("holding", ()))
    explanation = WaitingExplanation(
        count=told.count,
        reason=told.reason,
        message="",
        round=told.round,
        slot_start_at=told.detail.get("slot_start_at"),
        shortages=shortages,
        needed=gang.get("needed"),
        fit=gang.get("fit"),
        held_back=told.detail.get("held_back", 0),
        held_hosts=len(names),
        held_host_names=names if operator else None,
        network=told.detail.get("network"),
        obstacles=tuple(
            ObstacleExplanation(
                kind=each["kind"],
                what=each["what"],
                hosts=each["hosts"],
                only=each["only"],
                missing=each["missing"],
                only_hosts=tuple(each["only_hosts"]) if operator else (),
                until=each.get("until"),
            )
            for each in obstacles
        ),
        would_help=tuple(help_ for each in obstacles if (help_ := what_would_help(each))),
        share=_share(told.detail.get("share")),
        quotas=tuple(QuotaExplanation(**each) for each in told.detail.get("quota", ())),
    )
    return replace(explanation, message=_message(explanation))


def _while_paused(waiting: WaitingExplanation, status: SlotLoopStatus) -> WaitingExplanation:
    if status.state is not SlotLoopState.PAUSED:
        return waiting
    return replace(
        waiting,
        message=f"no slot is decided now, the operator says: {status.reason}; {waiting.message}",
        paused=PauseExplanation(since=status.changed_at, reason=status.reason),
    )


def _how_far(image: ImageWait) -> str:
    if image.state is CopyState.UPLOADING:
        return f"{image.uploaded_bytes} of {image.size_bytes} bytes came so far"
    if image.state is CopyState.FAILED:
        return "it could not be brought there, and this VM is decided again"
    return "it is not on its way yet"


def _share(share: Mapping[str, float] | None) -> ShareExplanation | None:
    if share is None:
        return None
    above = share["held"] > share["fair"] + SHARE_TOLERANCE
    return ShareExplanation(held=share["held"], fair=share["fair"], above_fair=above)


def _message(waiting: WaitingExplanation) -> str:
    message = _REASONS.get(waiting.reason, waiting.reason)
    if waiting.shortages:
        short = ", ".join(
            f"{each.resource} is short on {each.hosts_short} of {each.hosts} hosts "
            f"(the nearest lacks {each.missing})"
            for each in waiting.shortages
        )
        message = f"{message}: {short}"
    if waiting.network is not None:
        message = f"{message} (network {waiting.network})"
    parts = [message]
    parts += [
        f"the quota of {each.tenant} is {each.limit} {each.resource}, {each.used} are held and "
        f"{each.needed} more are needed"
        for each in waiting.quotas
    ]
    if waiting.needed is not None:
        parts.append(f"{waiting.fit} of its VMs would fit, {waiting.needed} are needed at once")
    if waiting.held_back and waiting.reason != "held_back":
        parts.append(
            f"{waiting.held_back} of them would fit where room is kept for a request "
            "that has waited longer"
        )
    if waiting.held_hosts:
        hosts = ", ".join(waiting.held_host_names or ()) or f"{waiting.held_hosts} of the hosts"
        parts.append(
            f"it has waited long below its fair share, so {hosts} will take nobody else "
            "until it fits there"
        )
    if waiting.share is not None and waiting.share.above_fair:
        parts.append(
            f"its tenant holds {waiting.share.held:.1%} of the cluster, more than the "
            f"{waiting.share.fair:.1%} that are fair now, so others go first"
        )
    return "; ".join(parts)


def _place_in_line(registry: Registry, request: Request, *, operator: bool) -> int:
    """Requests are decided in order of creation; count those before this one."""
    place, cursor = 1, None
    tenant = None if operator else request.tenant
    while True:
        page = registry.requests.list(tenant=tenant, limit=_PAGE, cursor=cursor)
        for other in page.items:
            if other.id == request.id:
                return place
            if other.state in _WAITS and other.vms_placed < other.count:
                place += 1
        if page.next is None:
            return place
        cursor = page.next


def _vms(registry: Registry, request_id: UUID) -> list[Vm]:
    vms: list[Vm] = []
    cursor = None
    while True:
        page = registry.vms.list(request_id=request_id, limit=_PAGE, cursor=cursor)
        vms.extend(page.items)
        if page.next is None:
            return vms
        cursor = page.next


def _placed(vm: Vm, record: RoundRecord) -> VmExplanation:
    if record.stored is None:
        return VmExplanation(
            vm=vm.id,
            name=vm.name,
            host=vm.host,
            round=record.number,
            slot_start_at=record.slot_start_at.isoformat(),
            policy=record.policy,
            decided_by=record.decided_by,
            phase=None,
            utilities=(),
            message=f"round {record.number} placed it on {vm.host}; what its host weighed then "
            "is no longer kept",
        )
    names = decode_inputs(record.stored.inputs).names
    details = record.stored.outcome["details"]
    host = next((h for h, (_, name) in enumerate(names.hosts) if name == vm.host), None)
    request = next(
        (q for q, (each, _, _) in enumerate(names.requests) if each == str(vm.request_id)), None
    )
    phase = _phase(record, details, request, host)
    utilities = tuple(
        WeighedCombination(
            combination=_by_type(each["counts"], names.requests),
            minimum_utilization=each["minimum_utilization"],
            utility=each["utility"],
            chosen=each["chosen"],
        )
        for each in details.get("weighed", {}).get(str(host), ())
    )
    return VmExplanation(
        vm=vm.id,
        name=vm.name,
        host=vm.host,
        round=record.number,
        slot_start_at=record.slot_start_at.isoformat(),
        policy=record.policy,
        decided_by=record.decided_by,
        phase=phase,
        utilities=utilities if phase == "game" else (),
        message=_why_here(vm, record, phase, utilities),
    )


def _phase(
    record: RoundRecord, details: Mapping[str, Any], request: int | None, host: int | None
) -> str:
    if record.decided_by == "fallback":
        return "fallback"
    if [request, host] in details.get("holding", ()):
        return "held"
    if [request, host] in [[q, h] for q, h, _ in details.get("gangs", ())]:
        return "gang"
    for q, h, game, _ in details.get("phase", ()):
        if (q, h) == (request, host):
            return "game" if game > 0 else "remainder"
    return record.policy


def _by_type(
    counts: Mapping[str, int], requests: tuple[tuple[str, str, str], ...]
) -> dict[str, int]:
    by_type: dict[str, int] = {}
    for request, count in counts.items():
        vm_type = requests[int(request)][2]
        by_type[vm_type] = by_type.get(vm_type, 0) + count
    return dict(sorted(by_type.items()))


def _why_here(
    vm: Vm, record: RoundRecord, phase: str, utilities: tuple[WeighedCombination, ...]
) -> str:
    if phase == "fallback":
        return (
            f"round {record.number} was decided by the fallback, Best-Fit DRFH "
            f"({record.fallback_reason}): {vm.host} fitted its shape best"
        )
    if phase == "held":
        return (
            f"round {record.number} placed it on {vm.host}, which had been held back for its "
            "request: it had waited long below its fair share"
        )
    if phase == "gang":
        return (
            f"round {record.number} placed it before the game, by Best-Fit DRFH: its request's "
            "min_count of VMs is needed at once, or its group keeps apart"
        )
    if phase == "remainder":
        return (
            f"round {record.number} placed it after the game, by Best-Fit DRFH: "
            f"of the hosts with room, {vm.host} fitted its shape best"
        )
    chosen = next((each for each in utilities if each.chosen), None)
    if phase == "game" and chosen is not None:
        taken = " + ".join(f"{count} {name}" for name, count in chosen.combination.items())
        return (
            f"in the game of round {record.number}, {vm.host} weighed {len(utilities)} "
            f"combinations and took {taken or 'nothing'}, "
            f"the one of highest utility ({chosen.utility:.4f})"
        )
    return f"round {record.number} placed it on {vm.host} by {record.policy}"
