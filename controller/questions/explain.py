"""Explanations: why a request waits, and why a VM is on its host.

Nothing is computed anew here. What is told was written down by the round that
decided it, so an explanation can be checked against the stored snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from controller.host_names import Reader
from controller.questions.lateness import nobody_does, what_is_late
from controller.questions.steps import step_above, step_below
from controller.rounds.inputs import RoundInputs, decode_inputs
from controller.rounds.obstacles import OF_ITS_OWN, what_would_help
from placement import is_poorer
from registry import CopyState, Registry, RequestState, SlotLoopState
from registry.operating import Liveness
from registry.requests import ImageWait, Request, Vm, Waiting
from registry.rounds import RoundRecord, SlotLoopStatus

_WAITS = (RequestState.PENDING, RequestState.PARTLY_PLACED)
_PAGE = 500

_REASONS: Mapping[str, str] = {
    "no_host_large_enough": "no host is large enough for one of these VMs, even when empty",
    "no_eligible_host": "no host that takes VMs now meets the request's requirements",
    "failed_builds": "the suitable hosts are held back after failed builds",
    "no_room": "every eligible host is too full",
    "above_overload": "room is left only above the overload threshold",
    "no_slots": "room is left, but not in whole slots",
    "gang_not_whole": "fewer of these VMs fit at once than its min_count needs",
    "quota": "a quota is exceeded",
    "held_back": "room is reserved for a request that has waited longer",
    "no_address": "its network has no free addresses",
    "network_missing": "no host has its network",
    "anti_affinity": "every host with room holds a VM of its anti-affinity group",
    "affinity": "no host with room can take its whole affinity group",
    "zone_full": "every zone with room has its share of these VMs",
    "group_moved": "VMs of its group were placed during the round; the next round decides it again",
    "nothing_asked": "its VM type demands no resources",
    "host_moved": "its host changed during the round; the next round decides it again",
    "image_held": "its image is held because hosts stopped answering while they received it;"
    " it waits until an operator releases the image",
    "no_room_for_image": "the chosen host has no disk left for its image; the next round chooses"
    " another",
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
class UndecidedExplanation:
    """Nothing is decided at all, and nobody wants that: no control centre works."""

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
    held_host_names: tuple[str, ...] | None = None  #: told to operators only
    network: str | None = None  #: that has no address left, or that hosts do not have
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
    unbuilt: str | None = None  #: why what is placed is not built; None: nothing is in the way


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


def explain_request(registry: Registry, request_id: UUID, reader: Reader) -> RequestExplanation:
    """Explain to a reader the state of a request and why the rest of it waits.

    A tenant is told no host by name but those of its VMs, and numbers of hosts in steps.

    Raises
    ------
    NotFoundError
        If there is no such request.
    """
    request = registry.requests.get(request_id)
    liveness = registry.liveness()
    known = request.vms_running + request.vms_unknown
    waiting = None
    if request.state in _WAITS:
        waiting = _while_nobody_decides(_waiting(request, reader), liveness)
        waiting = _while_paused(waiting, liveness.slot_loop)
    return RequestExplanation(
        request=request.id,
        name=request.name,
        tenant=request.tenant,
        state=request.state.value,
        wanted=request.count,
        placed=request.vms_placed,
        running=request.vms_running,
        unknown=request.vms_unknown,
        waiting=waiting,
        order=_place_in_line(registry, request, reader) if waiting else None,
        vms=tuple(
            PlacedVm(
                vm=vm.id,
                name=vm.name,
                host=reader.host_or_none(vm.host),
                observed=vm.observed.value,
                round=vm.round,
                waits_for_image=vm.waits_for_image,
                unknown_since=vm.unknown_since,
            )
            for vm in _vms(registry, request_id)
        ),
        unbuilt=_unbuilt(liveness) if request.vms_placed > known else None,
    )


def explain_vm(registry: Registry, vm_id: UUID, reader: Reader) -> VmExplanation:
    """Explain to a reader which round placed a VM, and its host's combinations.

    What a host weighed is of everybody's VMs: a tenant is told its own that the host took.

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
            message="it has no host yet; `fuga explain` of its request shows what it waits for",
        )
    placed = _placed(vm, registry.rounds.get(vm.round), reader)
    if vm.unknown_since is not None:
        seen, since = vm.observed.value, f"{vm.unknown_since:%Y-%m-%d %H:%M:%S} UTC"
        unknown = f"its state is unknown: its host answered last at {since}; it was {seen} then"
        placed = replace(placed, message=f"{placed.message}; {unknown}")
    image = vm.waits_for_image
    if image is None:
        return placed
    message = (
        f"{placed.message}; it is created once image {image.image} is there: {_how_far(image)}"
    )
    return replace(placed, waits_for_image=image, message=message)


def _waiting(request: Request, reader: Reader) -> WaitingExplanation:
    told: Waiting | None = request.waiting
    if told is None:
        return WaitingExplanation(
            count=request.count - request.vms_placed,
            reason="not_decided_yet",
            message="it waits for the next slot",
            round=None,
            slot_start_at=None,
            shortages=(),
        )
    exact = reader.is_operator
    detail = told.detail if exact else in_steps(told.detail)
    shortages = tuple(
        ShortageExplanation(
            resource=each["resource"],
            hosts_short=each["hosts_short"],
            hosts=each["hosts"],
            nearest_host=each["nearest_host"],
            missing=each["missing"],
        )
        for each in detail.get("shortages", ())
    )
    obstacles = tuple(detail.get("obstacles", ()))
    gang = detail.get("gang", {})
    names = tuple(each["host"] for each in detail.get("holding", ()))
    explanation = WaitingExplanation(
        count=told.count,
        reason=told.reason,
        message="",
        round=told.round,
        slot_start_at=detail.get("slot_start_at"),
        shortages=shortages,
        needed=gang.get("needed"),
        fit=gang.get("fit"),
        held_back=detail.get("held_back", 0),
        held_hosts=len(names),
        held_host_names=names if exact else None,
        network=detail.get("network"),
        obstacles=tuple(
            ObstacleExplanation(
                kind=each["kind"],
                what=each["what"],
                hosts=each["hosts"],
                only=each["only"],
                missing=each["missing"],
                only_hosts=tuple(each["only_hosts"]),
                until=each.get("until"),
            )
            for each in obstacles
        ),
        would_help=tuple(
            help_ for each in obstacles if (help_ := what_would_help(each, exact=exact))
        ),
        share=_share(detail.get("share")),
        quotas=tuple(QuotaExplanation(**each) for each in detail.get("quota", ())),
    )
    return replace(explanation, message=_message(explanation, exact=exact))


def in_steps(detail: Mapping[str, Any]) -> dict[str, Any]:
    """Return why something waits as a tenant is told: no host by name, numbers in steps."""
    told = dict(detail)
    if "shortages" in told:
        told["shortages"] = [
            {
                **each,
                "hosts_short": step_below(each["hosts_short"]),
                "hosts": step_below(each["hosts"]),
                "nearest_host": None,
                "missing": step_above(each["missing"]),
            }
            for each in told["shortages"]
        ]
    if "obstacles" in told:
        told["obstacles"] = [_obstacle_in_steps(each) for each in told["obstacles"]]
    if "holding" in told:
        told["holding"] = [{"host": None}] * step_below(len(told["holding"]))
    # How many of its own VMs would fit is how much room others leave.
    if "gang" in told:
        told["gang"] = {**told["gang"], "fit": step_below(told["gang"]["fit"])}
    if "held_back" in told:
        told["held_back"] = step_below(told["held_back"])
    return told


def _obstacle_in_steps(obstacle: Mapping[str, Any]) -> dict[str, Any]:
    missing = obstacle["missing"]
    if missing is not None and obstacle["kind"] not in OF_ITS_OWN:
        missing = step_above(missing)
    return {
        **obstacle,
        "hosts": step_below(obstacle["hosts"]),
        "only": step_below(obstacle["only"]),
        "missing": missing,
        "only_hosts": [],
    }


def _unbuilt(liveness: Liveness) -> str | None:
    nobody = nobody_does(what_is_late(liveness), "build")
    if nobody is None:
        return None
    since = f" since {nobody.since.isoformat(timespec='seconds')}" if nobody.since else ""
    return f"no worker creates VMs{since}: placed VMs wait"


def _while_nobody_decides(waiting: WaitingExplanation, liveness: Liveness) -> WaitingExplanation:
    nobody = nobody_does(what_is_late(liveness), "decide")
    if nobody is None:
        return waiting
    since = f" since {nobody.since.isoformat(timespec='seconds')}" if nobody.since else ""
    decided = f"; {waiting.message}" if waiting.round is not None else ""
    return replace(
        waiting,
        message=f"no control centre decides{since}, so no VM is placed; operators: see `fuga"
        f" status`" + decided,
        undecided=UndecidedExplanation(since=nobody.since),
    )


def _while_paused(waiting: WaitingExplanation, status: SlotLoopStatus) -> WaitingExplanation:
    if status.state is not SlotLoopState.PAUSED:
        return waiting
    return replace(
        waiting,
        message=f"an operator paused the slot loop: {status.reason}; {waiting.message}",
        paused=PauseExplanation(since=status.changed_at, reason=status.reason),
    )


def _how_far(image: ImageWait) -> str:
    if image.held:
        return (
            "it is held because hosts stopped answering while they received it,"
            " until an operator releases it"
        )
    if image.state is CopyState.UPLOADING:
        return f"{image.uploaded_bytes} of {image.size_bytes} bytes uploaded"
    if image.state is CopyState.FAILED:
        return "the upload failed; the next round decides this VM again"
    return "the upload has not begun"


def _share(share: Mapping[str, float] | None) -> ShareExplanation | None:
    if share is None:
        return None
    above = bool(is_poorer(share["fair"], share["held"]))
    return ShareExplanation(held=share["held"], fair=share["fair"], above_fair=above)


def _message(waiting: WaitingExplanation, *, exact: bool) -> str:
    about = "" if exact else "at least "
    message = _REASONS.get(waiting.reason, waiting.reason)
    if waiting.shortages:
        short = ", ".join(_short(each, exact=exact) for each in waiting.shortages)
        message = f"{message}: {short}"
    if waiting.network is not None:
        message = f"{message} (network {waiting.network})"
    parts = [message]
    parts += [
        f"the quota of {each.tenant} is {each.limit} {each.resource}, {each.used} are in use and "
        f"{each.needed} more are needed"
        for each in waiting.quotas
    ]
    if waiting.needed is not None:
        parts.append(
            f"{about}{waiting.fit} of its VMs would fit, {waiting.needed} are needed at once"
        )
    if waiting.held_back and waiting.reason != "held_back":
        parts.append(
            f"{about}{waiting.held_back} of them would fit where room is reserved for a request "
            "that has waited longer"
        )
    if waiting.held_hosts:
        some = f"{waiting.held_hosts} of the hosts"
        hosts = ", ".join(waiting.held_host_names or ()) or f"{about}{some}"
        parts.append(
            f"it has waited long below its fair share, so {hosts} will take no other VMs "
            "until it fits there"
        )
    if waiting.share is not None and waiting.share.above_fair:
        parts.append(
            f"its tenant holds {waiting.share.held:.1%} of the cluster, more than the "
            f"{waiting.share.fair:.1%} of its fair share, so others go first"
        )
    return "; ".join(parts)


def _short(shortage: ShortageExplanation, *, exact: bool) -> str:
    if exact:
        return (
            f"{shortage.resource} is short on {shortage.hosts_short} of {shortage.hosts} hosts "
            f"(the nearest lacks {shortage.missing})"
        )
    hosts = "1 host" if shortage.hosts_short == 1 else f"{shortage.hosts_short} hosts"
    return (
        f"{shortage.resource} is short on at least {hosts} "
        f"(the nearest lacks {shortage.missing} at most)"
    )


def _place_in_line(registry: Registry, request: Request, reader: Reader) -> int:
    """Requests are decided in order of creation; count those before this one.

    What is over is not looked at: of that a tenant may have made any number.
    """
    tenant = None if reader.is_operator else request.tenant
    return 1 + sum(_waiting_before(registry, request, tenant, state) for state in _WAITS)


def _waiting_before(
    registry: Registry, request: Request, tenant: str | None, state: RequestState
) -> int:
    number, cursor = 0, None
    while True:
        page = registry.requests.list(tenant=tenant, state=state, limit=_PAGE, cursor=cursor)
        before = [each for each in page.items if each.id < request.id]
        number += sum(each.vms_placed < each.count for each in before)
        if page.next is None or len(before) < len(page.items):
            return number
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


def _placed(vm: Vm, record: RoundRecord, reader: Reader) -> VmExplanation:
    assert vm.host is not None  # noqa: S101 - asked of placed VMs alone
    host_name = reader.host(vm.host)
    told = VmExplanation(
        vm=vm.id,
        name=vm.name,
        host=host_name,
        round=record.number,
        slot_start_at=record.slot_start_at.isoformat(),
        policy=record.policy,
        decided_by=record.decided_by,
        phase=None,
        utilities=(),
        message=f"round {record.number} placed it on {host_name}; the details of the game are "
        "purged",
    )
    if record.stored is None:
        return told
    inputs = decode_inputs(record.stored.inputs)
    names = inputs.names
    details = record.stored.outcome["details"]
    host = next((h for h, (_, name) in enumerate(names.hosts) if name == vm.host), None)
    request = next(
        (q for q, (each, _, _) in enumerate(names.requests) if each == str(vm.request_id)), None
    )
    phase = _phase(record, details, request, host)
    why = _why_here(host_name, record, phase, reader)
    if phase != "game" or host is None:
        return replace(told, phase=phase, message=why)
    if not reader.is_operator:
        own = _own_in_game(details, inputs, vm.tenant, host)
        return replace(
            told,
            phase=phase,
            message=f"in the game of round {record.number}, {host_name} took {_taken(own)} of "
            "yours, in its combination of VMs with the highest utility",
        )
    utilities = tuple(
        WeighedCombination(
            combination=_by_type(each["counts"], names.requests),
            minimum_utilization=each["minimum_utilization"],
            utility=each["utility"],
            chosen=each["chosen"],
        )
        for each in details.get("weighed", {}).get(str(host), ())
    )
    chosen = next((each for each in utilities if each.chosen), None)
    if chosen is not None:
        several = "s" if len(utilities) > 1 else ""
        why = (
            f"in the game of round {record.number}, {host_name} evaluated {len(utilities)} "
            f"combination{several} and took {_taken(chosen.combination)}, "
            f"the one with the highest utility ({chosen.utility:.4f})"
        )
    return replace(told, phase=phase, utilities=utilities, message=why)


def _own_in_game(
    details: Mapping[str, Any], inputs: RoundInputs, tenant: str, host: int
) -> dict[str, int]:
    """Return a tenant's VMs that a host took in the game, by type."""
    owners = inputs.snapshot.tenant
    of_tenants = inputs.names.tenants
    own = {
        str(request): game
        for request, there, game, _ in details.get("phase", ())
        if there == host and game and of_tenants[owners[request]][1] == tenant
    }
    return _by_type(own, inputs.names.requests)


def _taken(combination: Mapping[str, int]) -> str:
    return " + ".join(f"{count} {name}" for name, count in combination.items()) or "nothing"


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


def _why_here(host: str, record: RoundRecord, phase: str, reader: Reader) -> str:
    if phase == "fallback":
        return (
            f"round {record.number} was decided by the fallback, Best-Fit DRFH "
            f"({reader.text_or_none(record.fallback_reason)}): {host} matched its shape best"
        )
    if phase == "held":
        return (
            f"round {record.number} placed it on {host}, which was reserved for its "
            "request: it had waited long below its fair share"
        )
    if phase == "gang":
        return (
            f"round {record.number} placed it before the game, by Best-Fit DRFH: its request's "
            "min_count of VMs is needed at once, or it has an anti-affinity group"
        )
    if phase == "remainder":
        return (
            f"round {record.number} placed it after the game, by Best-Fit DRFH: "
            f"of the hosts with room, {host} matched its shape best"
        )
    return f"round {record.number} placed it on {host} by policy {record.policy}"
