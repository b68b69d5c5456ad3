"""Explains why a request waits: every reason, with what would help.

The reasons were recorded by the round that decided. They are not computed again, so an explanation
can be checked against the stored snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from controller.host_aliases import Viewer
from controller.queries.coarse_numbers import round_down_to_step, round_to_percent, round_up_to_step
from controller.queries.explanations import (
    BudgetExplanation,
    ObstacleExplanation,
    PauseExplanation,
    PlacedVm,
    QuotaExplanation,
    RequestExplanation,
    ShareExplanation,
    ShortageExplanation,
    UndecidedExplanation,
    WaitingExplanation,
)
from controller.queries.overdue_work import overdue_work, unattended_work
from controller.queries.wait_estimates import WaitingTime, WaitingTimes, missing_estimate
from controller.rounds.obstacles import (
    REQUEST_OBSTACLES,
    VOLUME_HOST_CLOSED,
    VOLUME_HOST_FULL,
    VOLUME_HOST_UNSUITABLE,
    remedy_text,
)
from placement import is_poorer
from registry import Registry, RequestState, SlotLoopState
from registry.admin import Liveness
from registry.requests import Request, Vm, WaitingStatus
from registry.reservations import ReservationState
from registry.rounds import BUDGET, VOLUME_LEAVES, SlotLoopStatus

_WAITS = (RequestState.PENDING, RequestState.PARTLY_PLACED)
_PAGE = 500

#: Keys of the recorded detail that tenants see unchanged, and those that they see in steps.
_SHOWN_AS_IS: Final = frozenset(
    {
        "slot_start_at",
        "network",
        "volumes",
        "image",
        "gave_way_to",
        "quota",
        "budget",
        "dropped",
        "scattered",
    }
)
_IN_STEPS: Final = frozenset(
    {
        "shortages",
        "obstacles",
        "holding",
        "freed",
        "share",
        "gang",
        "held_back",
        "addresses_left",
        "memory",
    }
)

_REASONS: Mapping[str, str] = {
    "no_host_large_enough": "no host is large enough for one of these VMs, even when empty",
    "no_eligible_host": "no host that takes VMs now meets the request's requirements",
    "failed_builds": "the suitable hosts are held back after failed builds",
    "no_room": "every eligible host is too full",
    "above_overload": "room is left only above the overload threshold",
    "no_slots": "room is left, but not in whole slots",
    "gang_not_whole": "fewer of these VMs fit at once than its min_count needs",
    "spot_ending": "spot VMs or borrowed VMs end to make room for it",
    "lower_priority": "a request of its tenant with a higher priority took its place",
    "quota": "a quota is exceeded",
    "budget": "a budget of this month has ended",
    "held_back": "room is reserved for a request that has waited longer",
    "kept_spare": "the room that is left is spare for VMs of hosts that may fail",
    "no_address": "its network has no free addresses",
    "network_missing": "no host has its network",
    VOLUME_HOST_FULL: "the host of its volume has no room for the VM",
    VOLUME_HOST_CLOSED: "the host of its volume takes no VMs now: it does not answer, or operators"
    " closed it",
    VOLUME_HOST_UNSUITABLE: "the host of its volume does not meet the request's requirements",
    VOLUME_LEAVES: "the empty file of its volume is first deleted where its VM was to start before",
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


def explain_request(
    registry: Registry, request_id: UUID, reader: Viewer, times: WaitingTimes | None = None
) -> RequestExplanation:
    """Return a request's state for a reader, with the reasons and the estimate of its wait.

    A tenant sees only aliases of its own VMs' hosts, and coarsely rounded numbers of hosts.

    Raises
    ------
    NotFoundError
        If there is no such request.
    """
    request = registry.requests.get(request_id)
    liveness = registry.liveness()
    known = request.vms_running + request.vms_unknown
    waiting = None
    if request.state in _WAITS and request.vms_placed < request.vms_wanted:
        waiting = _add_reservation(_waiting_explanation(request, reader), registry, request)
        waiting = _explain_unattended_loop(waiting, liveness)
        waiting = _explain_pause(waiting, liveness.slot_loop)
    return RequestExplanation(
        request=request.id,
        name=request.name,
        tenant=request.tenant,
        state=request.state.value,
        wanted=request.vms_wanted,
        placed=request.vms_placed,
        running=request.vms_running,
        unknown=request.vms_unknown,
        leaving=request.vms_leaving,
        waiting=waiting,
        order=_queue_position(registry, request, reader) if waiting else None,
        estimate=_wait_estimate(waiting, request, times),
        vms=tuple(
            PlacedVm(
                vm=vm.id,
                name=vm.name,
                host=reader.host_or_none(vm.host),
                observed=vm.observed.value,
                round=vm.round,
                waits_for_image=vm.waits_for_image,
                unknown_since=vm.unknown_since,
                paused_since=vm.paused_since,
                borrowed=vm.borrowed,
                ends_at=vm.ends_at,
                ending_for=reader.own_request(vm.ending_for),
            )
            for vm in _all_vms(registry, request_id)
        ),
        unbuilt=_unbuilt_vms_reason(liveness) if request.vms_placed > known else None,
    )


def _add_reservation(
    waiting: WaitingExplanation, registry: Registry, request: Request
) -> WaitingExplanation:
    """Add the state of the request's reservation to the explanation."""
    if request.reservation is None:
        return waiting
    found = registry.reservations.get(request.reservation)
    if found.state is ReservationState.IN_FORCE:
        message = f"kept room for {found.held} VMs, no room yet for {found.missing}"
    else:
        message = f"it is {found.state.value}, so no room is kept for it"
    return replace(waiting, message=f"{waiting.message}; its reservation {found.name}: {message}")


def _wait_estimate(
    waiting: WaitingExplanation | None, request: Request, times: WaitingTimes | None
) -> WaitingTime | None:
    """Return the estimated wait, or why there is none; None if nothing waits."""
    if waiting is None or times is None:
        return None
    if waiting.paused is not None or waiting.undecided is not None:
        return missing_estimate("not_deciding")
    if waiting.reason == BUDGET:
        return missing_estimate("budget")
    if request.spot:
        return missing_estimate("spot")
    return times.waiting_time(request.id)


def _waiting_explanation(request: Request, reader: Viewer) -> WaitingExplanation:
    """Explain why VMs of a request wait, by what the last round recorded."""
    waiting: WaitingStatus | None = request.waiting
    if waiting is None:
        return WaitingExplanation(
            count=request.vms_wanted - request.vms_placed,
            reason="not_decided_yet",
            message="it waits for the next slot",
            round=None,
            slot_start_at=None,
            shortages=(),
        )
    exact = reader.is_operator
    detail = waiting.detail if exact else redact_wait_detail(waiting.detail)
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
    freed = detail.get("freed", {})
    explanation = WaitingExplanation(
        count=waiting.count,
        reason=waiting.reason,
        message="",
        round=waiting.round,
        slot_start_at=detail.get("slot_start_at"),
        shortages=shortages,
        needed=gang.get("needed"),
        fit=gang.get("fit"),
        held_back=detail.get("held_back", 0),
        held_hosts=len(names),
        held_host_names=names if exact else None,
        plan=freed.get("plan"),
        freed_host_names=tuple(each["host"] for each in freed["hosts"])
        if freed and exact
        else None,
        moves_make_room=bool(freed),
        moves_could_make_room=detail.get("scattered", False),
        volumes=tuple(detail.get("volumes", ())),
        network=detail.get("network"),
        gave_way_to=tuple(detail.get("gave_way_to", ())),
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
        would_help=tuple(help_ for each in obstacles if (help_ := remedy_text(each, exact=exact))),
        share=_share_explanation(waiting.detail.get("share"), exact=exact),
        quotas=tuple(QuotaExplanation(**each) for each in detail.get("quota", ())),
        budgets=tuple(
            BudgetExplanation(**{**each, "until": datetime.fromisoformat(each["until"])})
            for each in detail.get("budget", ())
        ),
    )
    message = _waiting_message(explanation, exact=exact)
    if memory := detail.get("memory"):
        message = f"{message}; {_memory_text(memory)}"
    return replace(explanation, message=message)


def _memory_text(memory: Mapping[str, Any]) -> str:
    """Return a text about both parts of the level by which a tenant's turn comes."""
    hours = memory["half_life_s"] / 3600
    return (
        f"its tenant's level is {memory['past'] + memory['now']:.1%} of the cluster:"
        f" {memory['past']:.1%} for what it held in the past while others waited, which halves"
        f" every {hours:.3g} h, and {memory['now']:.1%} for what it holds now; tenants of lower"
        " levels go first"
    )


def redact_wait_detail(detail: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded detail as a tenant may see it: no host names, numbers rounded coarsely.

    Unknown keys are left out, because they might reveal something about others.
    """
    shown = {key: value for key, value in detail.items() if key in _SHOWN_AS_IS or key in _IN_STEPS}
    if "shortages" in shown:
        shown["shortages"] = [
            {
                **each,
                "hosts_short": round_down_to_step(each["hosts_short"]),
                "hosts": round_down_to_step(each["hosts"]),
                "nearest_host": None,
                "missing": round_up_to_step(each["missing"]),
            }
            for each in shown["shortages"]
        ]
    if "obstacles" in shown:
        shown["obstacles"] = [_redact_obstacle(each) for each in shown["obstacles"]]
    if "holding" in shown:
        shown["holding"] = [{"host": None}] * round_down_to_step(len(shown["holding"]))
    if "freed" in shown:
        shown["freed"] = {"plan": None, "hosts": []}
    if "share" in shown:
        shown["share"] = {name: round_to_percent(share) for name, share in shown["share"].items()}
    if "memory" in shown:
        shown["memory"] |= {
            name: round_to_percent(shown["memory"][name]) for name in ("past", "now")
        }
    # The number of its own VMs that would fit reveals the room that others leave.
    if "gang" in shown:
        shown["gang"] = {**shown["gang"], "fit": round_down_to_step(shown["gang"]["fit"])}
    for key in ("held_back", "addresses_left"):
        if key in shown:
            shown[key] = round_down_to_step(shown[key])
    return shown


def _redact_obstacle(obstacle: Mapping[str, Any]) -> dict[str, Any]:
    """Return an obstacle as a tenant may see it: no hosts, numbers rounded coarsely."""
    missing = obstacle["missing"]
    if missing is not None and obstacle["kind"] not in REQUEST_OBSTACLES:
        missing = round_up_to_step(missing)
    return {
        **obstacle,
        "hosts": round_down_to_step(obstacle["hosts"]),
        "only": round_down_to_step(obstacle["only"]),
        "missing": missing,
        "only_hosts": [],
    }


def _unbuilt_vms_reason(liveness: Liveness) -> str | None:
    """Return why placed VMs are not created: no worker does it; None if one does."""
    no_process = unattended_work(overdue_work(liveness), "build")
    if no_process is None:
        return None
    since = f" since {no_process.since.isoformat(timespec='seconds')}" if no_process.since else ""
    return f"no worker creates VMs{since}: placed VMs wait"


def _explain_unattended_loop(waiting: WaitingExplanation, liveness: Liveness) -> WaitingExplanation:
    """Add to an explanation that no control centre decides, if that is so."""
    no_process = unattended_work(overdue_work(liveness), "decide")
    if no_process is None:
        return waiting
    since = f" since {no_process.since.isoformat(timespec='seconds')}" if no_process.since else ""
    decided = f"; {waiting.message}" if waiting.round is not None else ""
    return replace(
        waiting,
        message=f"no control centre decides{since}, so no VM is placed; operators: see `fuga"
        f" status`" + decided,
        undecided=UndecidedExplanation(since=no_process.since),
    )


def _explain_pause(waiting: WaitingExplanation, status: SlotLoopStatus) -> WaitingExplanation:
    """Add to an explanation that an operator paused the slot loop, if that is so."""
    if status.state is not SlotLoopState.PAUSED:
        return waiting
    return replace(
        waiting,
        message=f"an operator paused the slot loop: {status.reason}; {waiting.message}",
        paused=PauseExplanation(since=status.changed_at, reason=status.reason),
    )


def _share_explanation(
    share: Mapping[str, float] | None, *, exact: bool
) -> ShareExplanation | None:
    """Return a tenant's share and fair share; rounded unless ``exact``."""
    if share is None:
        return None
    held, fair = share["held"], share["fair"]
    above = bool(is_poorer(fair, held))
    if not exact:
        held, fair = round_to_percent(held), round_to_percent(fair)
    return ShareExplanation(held=held, fair=fair, above_fair=above)


def _waiting_message(waiting: WaitingExplanation, *, exact: bool) -> str:
    """Return the reasons of a wait as one text, each with what would help."""
    about = "" if exact else "at least "
    message = _REASONS.get(waiting.reason, waiting.reason)
    if waiting.gave_way_to:
        message = f"{message} ({', '.join(waiting.gave_way_to)})"
    if waiting.shortages:
        short = ", ".join(_shortage_text(each, exact=exact) for each in waiting.shortages)
        message = f"{message}: {short}"
    if waiting.network is not None:
        message = f"{message} (network {waiting.network})"
    if waiting.volumes:
        message = f"{message} (volume {', '.join(waiting.volumes)})"
    parts = [message]
    parts += [
        f"the quota of {each.tenant} is {each.limit} {each.resource}, {each.used} are in use and "
        f"{each.needed} more are needed"
        for each in waiting.quotas
    ]
    parts += [
        f"the budget of {each.tenant} is {each.amount} {_budget_unit(each.resource)} a month; it is"
        f" used up until {each.until:%Y-%m-%d %H:%M} UTC, unless operators raise it"
        for each in waiting.budgets
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
    if waiting.moves_make_room:
        hosts = ", ".join(waiting.freed_host_names or ())
        parts.append(
            f"plan {waiting.plan} makes room for it on {hosts}, which take no other VMs until then"
            if hosts
            else "other VMs move to make room for it"
        )
    if waiting.moves_could_make_room:
        parts.append(
            "enough is free in all, so a plan of moves could let it in: `fuga plan room` tells"
            " whether one does, and FUGA_MAKE_ROOM is off"
            if exact
            else "enough is free in all, so a plan of moves could let it in, which operators make"
        )
    if waiting.share is not None and waiting.share.above_fair:
        parts.append(
            f"its tenant holds {waiting.share.held:.1%} of the cluster, more than the "
            f"{waiting.share.fair:.1%} of its fair share, so others go first"
        )
    return "; ".join(parts)


def _budget_unit(resource: str) -> str:
    return "of costs" if resource == "cost" else f"{resource} hours"


def _shortage_text(shortage: ShortageExplanation, *, exact: bool) -> str:
    """Return a text about a resource of which hosts have too little."""
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


def _queue_position(registry: Registry, request: Request, reader: Viewer) -> int:
    """Return a request's position in its tenant's queue; for operators, in the whole queue.

    A tenant's queue is ordered by priority and creation, the whole queue by creation.
    """
    tenant = None if reader.is_operator else request.tenant
    return 1 + registry.requests.count_preceding(request, tenant)


def _all_vms(registry: Registry, request_id: UUID) -> list[Vm]:
    vms: list[Vm] = []
    cursor = None
    while True:
        page = registry.vms.list(request_id=request_id, limit=_PAGE, cursor=cursor)
        vms.extend(page.items)
        if page.next is None:
            return vms
        cursor = page.next
