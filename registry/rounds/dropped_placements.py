"""Placements that a commit drops from a round, and the waiting reasons of requests after it.

A commit calls each function only if it is needed: for VMs with images or networks, for dropped
placements, and for waiting requests.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, select

from registry.catalogue.resources import demands
from registry.db.bulk import chunks, is_any_of, update_rows
from registry.db.schema import requests
from registry.images.host_copies import pairs_without_room
from registry.ledger.host_backoff import record_host_backoff
from registry.ledger.placeable import count_waiting, waiting_requests
from registry.lifecycle import FINISHED
from registry.networks.addresses import NO_ADDRESS, assign_addresses
from registry.records.requests import WaitingStatus
from registry.records.round_commits import Placement, RoundCommit
from registry.requests.waiting_status import (
    SLOTS_WAITED,
    waiting_status_from_json,
    waiting_status_to_json,
)
from registry.rounds.cluster_view import min_at_once, requests_ever_placed

HOST_MOVED: Final = "host_moved"
QUOTA: Final = "quota"
NO_ROOM_FOR_IMAGE: Final = "no_room_for_image"
GROUP_MOVED: Final = "group_moved"
#: Reasons of dropped parts; if a request has several, the last of them is stored.
_LAST_REASONS: Final = (GROUP_MOVED, NO_ROOM_FOR_IMAGE, NO_ADDRESS, QUOTA)


def placements_of_counts(counted: Mapping[tuple[UUID, UUID], int]) -> list[Placement]:
    """Return VMs counted by request and host as placements."""
    return [
        Placement(request_id=request_id, host_id=host_id, count=count)
        for (request_id, host_id), count in counted.items()
    ]


def drop_without_image_room(
    connection: Connection,
    chosen: Sequence[tuple[Any, UUID]],
    now: datetime,
    disk_gib: Mapping[UUID, int],
) -> tuple[list[tuple[Any, UUID]], list[Placement]]:
    """Drop (VM, host) pairs whose image has no room on the host; return the others, and these.

    Requests of dropped pairs avoid such a host for a while, or the next round would choose it
    again. ``disk_gib`` has the sizes of the volumes that a VM is placed with.
    """
    amounts = demands(connection, {vm.vm_type_id for vm, _ in chosen})
    full = pairs_without_room(connection, chosen, amounts, disk_gib)
    parts = Counter(
        (vm.request_id, host_id) for vm, host_id in chosen if (vm.image_id, host_id) in full
    )
    for request_id, host_id in sorted(parts):
        record_host_backoff(connection, request_id, host_id, now)
    return (
        [(vm, host_id) for vm, host_id in chosen if (vm.image_id, host_id) not in full],
        placements_of_counts(parts),
    )


def drop_without_address(
    connection: Connection, chosen: Sequence[tuple[Any, UUID]]
) -> tuple[list[tuple[Any, UUID]], list[Placement]]:
    """Drop (VM, host) pairs whose network has no address left; return the others, and these.

    A round limits each request alone, so several requests may together exceed the addresses.
    """
    without = assign_addresses(connection, [vm.id for vm, _ in chosen])
    parts = Counter((vm.request_id, host_id) for vm, host_id in chosen if vm.id in without)
    return (
        [(vm, host_id) for vm, host_id in chosen if vm.id not in without],
        placements_of_counts(parts),
    )


def drop_broken_gangs(
    connection: Connection, chosen: Sequence[tuple[Any, UUID]]
) -> tuple[list[tuple[Any, UUID]], list[Placement]]:
    """Drop the (VM, host) pairs of incomplete gangs; return the others, and these."""
    placed = Counter(vm.request_id for vm, _ in chosen)
    min_counts: dict[UUID, int] = {}
    for some in chunks(sorted(placed)):
        gangs = select(requests.c.id, requests.c.min_count).where(
            is_any_of(connection, requests.c.id, some), requests.c.min_count > 1
        )
        min_counts |= {row.id: row.min_count for row in connection.execute(gangs)}
    begun = requests_ever_placed(connection, sorted(min_counts))
    waiting = count_waiting(connection, min_counts)
    broken = {
        key
        for key, min_count in min_counts.items()
        if placed[key] < min_at_once(min_count, waiting[key], begun=key in begun)
    }
    parts = Counter((vm.request_id, host_id) for vm, host_id in chosen if vm.request_id in broken)
    return (
        [(vm, host_id) for vm, host_id in chosen if vm.request_id not in broken],
        placements_of_counts(parts),
    )


def write_waiting_reasons(
    connection: Connection,
    commit: RoundCommit,
    dropped: Sequence[Placement],
    number: int,
    now: datetime,
    *,
    refused: Mapping[str, Sequence[Placement]],
) -> None:
    """Record why each request waits after a round, and one more slot of waiting.

    Requests wait for VMs that the round left out and for dropped placements. A dropped one has the
    reason in ``refused``, or else that its host changed. A request never has more waiting VMs than
    it wants, as VMs may have been deleted since the read; counting them would cost each commit the
    whole backlog.
    """
    reasons = {
        part.request_id: reason for reason in _LAST_REASONS for part in refused.get(reason, ())
    }
    moved: defaultdict[UUID, int] = defaultdict(int)
    for part in dropped:
        moved[part.request_id] += part.count
    concerned = sorted({*commit.waiting, *moved})
    changes: list[dict[str, Any]] = []
    finished = [state.value for state in FINISHED]
    for some in chunks(concerned):
        waits = waiting_requests(connection, some)
        query = (
            select(
                requests.c.id,
                requests.c.count.label("wanted"),
                requests.c.waiting,
                SLOTS_WAITED.label("slots"),
            )
            .where(is_any_of(connection, requests.c.id, some), requests.c.state.not_in(finished))
            .order_by(requests.c.id)
        )
        for row in connection.execute(query):
            if row.id not in waits:
                continue
            before = waiting_status_from_json(row.waiting)
            reason = reasons.get(row.id, HOST_MOVED)
            waiting = commit.waiting.get(row.id) or WaitingStatus(count=0, reason=reason)
            count = min(waiting.count + moved[row.id], row.wanted)
            detail = dict(waiting.detail)
            if moved[row.id]:
                detail["dropped"] = moved[row.id]
            since = before.since if before is not None else now
            stored = replace(waiting, count=count, round=number, since=since, detail=detail)
            changes.append(
                {
                    "id": row.id,
                    "waiting": waiting_status_to_json(stored),
                    "rounds_waited": row.slots + 1,
                    "updated_at": now,
                }
            )
    update_rows(connection, requests, changes)
