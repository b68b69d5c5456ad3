"""Reasons why requests wait, recorded by the round that decided."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import numpy as np

from controller.rounds.draft import RoundDraft
from controller.rounds.obstacles import FAILED_BUILDS, Obstacles
from controller.rounds.reservations import SettledReservations, quota_in_use
from controller.rounds.scattered_room import is_room_scattered
from controller.rounds.snapshots import SnapshotNames
from placement import Allocation, IntArray, LeftOut, Reason, Shortage, Snapshot, shortages
from placement.constraints.allowances import RemainingAllowances
from placement.model.reasons import count_fitting_vms, needed_at_once
from registry.requests import WaitingStatus


def waiting_requests(draft: RoundDraft) -> dict[UUID, WaitingStatus]:
    """Return the number of waiting VMs of each request, with the reasons.

    Shortages compare one VM with the free amounts after the round; requests of equal demand and
    eligibility share one computation. The detail has the VMs of a gang that fit and are needed, the
    hosts held back for a starving request, the hosts that moves free for it, and the tenant's share
    if the fair share is known. Where no plan makes room without an operator, it says whether moves
    could. A missing address or network is the reason if there is no other
    obstacle. If only failed builds keep hosts from the request, they are the reason.
    """
    view, snapshot, names, reserved = draft.view, draft.snapshot, draft.names, draft.reserved
    allocation = replace(draft.allocation, left_out=tuple(draft.left_out))
    shorts = [
        (row, each, each.short) for row, each in enumerate(view.requests) if each.short is not None
    ]
    if not allocation.left_out and not shorts:
        return {}
    seen: dict[tuple[bytes, bytes], tuple[Shortage, ...]] = {}
    after = snapshot.after_placing(allocation.placed)
    free, rooms = after.free, RemainingAllowances(after)
    obstacles = Obstacles(view, snapshot, allocation, names, rooms, reserved=reserved)
    freed = {str(each.request_id): each for each in view.freed}
    host_names = {host.id: host.name for host in view.hosts}
    details_of_policy = _details_of_policy(allocation, names)
    scattered = _ScatteredRoom(draft, free)

    def common_detail(request: int) -> dict[str, Any]:
        detail: dict[str, Any] = {
            "slot_start_at": draft.slot.start_at.isoformat(),
            "obstacles": [each.document() for each in obstacles.obstacles_of(request)],
        }
        return detail | _share_detail(draft, request)

    waiting: dict[UUID, WaitingStatus] = {}
    for request, parts in _left_out_by_request(allocation.left_out).items():
        key = (snapshot.demand[request].tobytes(), snapshot.eligible[request].tobytes())
        reasons = {part.reason for part in parts}
        if key not in seen:
            seen[key] = shortages(after, request)
        short = seen[key] if reasons != {Reason.QUOTA} else ()
        count = sum(part.count for part in parts)
        detail = common_detail(request) | {
            "shortages": [_shortage_document(each, snapshot.resources, names) for each in short]
        }
        needed = needed_at_once(snapshot, request, count)
        if needed > 1:
            fit = count_fitting_vms(snapshot, request, free)
            detail["gang"] = {"fit": fit, "needed": needed}
        if Reason.QUOTA in reasons:
            counts = (needed, count)
            detail["quota"] = _quota_documents(
                snapshot, rooms, request, counts, names=names, reserved=reserved
            )
        detail |= details_of_policy.get(request, {})
        if (volumes := view.requests[request].volumes) is not None and volumes.names:
            detail["volumes"] = list(volumes.names)
        if plan := freed.get(names.requests[request][0]):
            detail["freed"] = _freed_document(plan.plan_id, plan.hosts, host_names)
        elif reasons == {Reason.NO_ROOM} and scattered.is_for(request):
            detail["scattered"] = True
        if held_back := sum(part.count for part in parts if part.reason is Reason.HELD_BACK):
            detail["held_back"] = held_back
        reason = _recorded_reason(parts[0].reason, obstacles, request)
        key_of = UUID(names.requests[request][0])
        status = WaitingStatus(count=count, reason=reason, detail=detail)
        waiting[key_of] = _merge_status(waiting[key_of], status) if key_of in waiting else status
    for row, each, short_of in shorts:
        if each.shut_out or each.id not in waiting:
            # The policy saw no host for these VMs, or did not see them at all.
            detail = {**common_detail(row), **short_of.detail}
            waiting[each.id] = replace(short_of, detail=detail)
        else:
            left = waiting[each.id]
            waiting[each.id] = replace(left, count=left.count + short_of.count)
    return waiting


class _ScatteredRoom:
    """Finds requests for which enough is free in all, if no plan makes room by itself.

    Requests of equal demand and eligibility share one computation.
    """

    def __init__(self, draft: RoundDraft, free: IntArray) -> None:
        self._snapshot, self._free = draft.snapshot, free
        self._no_plan_comes = not draft.choice.makes_room
        self._accepts = np.array([host.accepts for host in draft.view.hosts], dtype=np.bool_)
        self._seen: dict[tuple[bytes, bytes], bool] = {}

    def is_for(self, request: int) -> bool:
        """Return whether moves could make room for a request."""
        snapshot = self._snapshot
        key = (snapshot.demand[request].tobytes(), snapshot.eligible[request].tobytes())
        if self._no_plan_comes and key not in self._seen:
            self._seen[key] = is_room_scattered(snapshot, self._free, self._accepts, request)
        return self._no_plan_comes and self._seen[key]


def _recorded_reason(reason: Reason, obstacles: Obstacles, request: int) -> str:
    """Return the policy's reason, or failed builds if they alone keep hosts from the request.

    If the request may use only the host of its volumes, the reason says so.
    """
    if reason is Reason.NO_ELIGIBLE_HOST and obstacles.has_only_failed_builds(request):
        return FAILED_BUILDS
    return obstacles.volume_reason(request, reason) or reason.value


def _freed_document(
    plan: UUID, hosts: Sequence[UUID], host_names: Mapping[UUID, str]
) -> dict[str, Any]:
    """Return the plan that makes room, and its hosts, as JSON values."""
    named = [{"host": host_names[host]} for host in hosts if host in host_names]
    return {"plan": str(plan), "hosts": named}


def _details_of_policy(
    allocation: Allocation, names: SnapshotNames
) -> Mapping[int, dict[str, Any]]:
    """Return by request which hosts the policy held back, and to which requests it gave way."""
    found: defaultdict[int, dict[str, Any]] = defaultdict(dict)
    for request, host in allocation.details.get("holding", ()):
        found[request].setdefault("holding", []).append({"host": names.hosts[host][1]})
    for request, _, _, taker in allocation.details.get("gave_way", ()):
        takers = found[request].setdefault("gave_way_to", [])
        if (name := names.requests[taker][1]) not in takers:
            takers.append(name)
    return found


def _merge_status(one: WaitingStatus, other: WaitingStatus) -> WaitingStatus:
    """Merge the statuses of two parts of a request; the reason of more VMs counts."""
    more = one if one.count >= other.count else other
    return replace(more, count=one.count + other.count)


def _share_detail(draft: RoundDraft, request: int) -> dict[str, Any]:
    """Return the share of a request's tenant, and the parts of its level if its past counts."""
    share = draft.shares[draft.snapshot.tenant[request]]
    if share["target"] is None:
        return {}
    detail = {"share": {"held": share["after"], "fair": share["target"]}}
    if draft.memory is not None:
        detail["memory"] = {**share["level"], **draft.memory.document()}
    return detail


def _left_out_by_request(left_out: Sequence[LeftOut]) -> dict[int, list[LeftOut]]:
    """Return what an allocation left out by request, the reason of most VMs first."""
    parts: dict[int, list[LeftOut]] = {}
    for left in left_out:
        parts.setdefault(left.request, []).append(left)
    for each in parts.values():
        each.sort(key=lambda part: -part.count)  # the reason of most of them is stored
    return parts


def _quota_documents(
    snapshot: Snapshot,
    rooms: RemainingAllowances,
    request: int,
    counts: Sequence[int],
    *,
    names: SnapshotNames,
    reserved: SettledReservations | None,
) -> list[dict[str, Any]]:
    """Return the quotas exceeded by the first of ``counts`` further VMs that exceeds any."""
    for count in counts:
        over = rooms.exceeded_by(request, count)
        if over:
            break
    documents = []
    for each in over:
        owner, resource, limit, held = names.quotas[each]
        index = snapshot.allowances[each].resource
        used = held + snapshot.allowances[each].room - rooms.left[each]
        need = count * (1 if index is None else int(snapshot.demand[request, index]))
        documents.append(
            {
                "tenant": owner,
                "resource": resource,
                "limit": limit,
                "used": quota_in_use(
                    reserved, request, used, limit=limit, need=need, resource=index
                ),
                "needed": need,
            }
        )
    return documents


def _shortage_document(
    shortage: Shortage, resources: tuple[str, ...], names: SnapshotNames
) -> dict[str, Any]:
    """Return a shortage of a resource as JSON values."""
    return {
        "resource": resources[shortage.resource],
        "hosts_short": shortage.hosts_short,
        "hosts": shortage.hosts,
        "nearest_host": names.hosts[shortage.nearest_host][1],
        "missing": shortage.missing,
    }
