"""The commit of a round: one transaction for the decision and its record.

A round took its time since it read. What moved meanwhile is dropped here and
decided again: parts on hosts whose version rose, parts whose VMs were deleted,
parts that no longer keep the rules of their groups and zones, VMs beyond a quota
that was lowered or used meanwhile, and what is left of a gang that is not whole
without them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, and_, insert, select

from registry.catalogue.overhead import demands
from registry.ground.behind import Later, behind
from registry.ground.bulk import among, chunks, inserting, update_rows, updating
from registry.ground.clock import db_now
from registry.ground.faults import checkpoint
from registry.ground.ids import uuid7
from registry.ground.locks import lock_vms
from registry.ground.names import check_int
from registry.ground.packing import pack
from registry.ground.schema import (
    assignment_resources,
    assignments,
    hosts,
    request_images,
    requests,
    round_inputs,
    rounds,
    tenants,
    vms,
)
from registry.images.on_hosts import want_copies, without_room
from registry.journal.events import event_row, recording
from registry.ledger.avoidance import avoid
from registry.ledger.placeable import count_waiting, oldest_waiting, waiting_vms, which_wait
from registry.ledger.progress import recompute_placed
from registry.ledger.waiting import from_json, to_json
from registry.lifecycle import FINISHED, AssignmentState
from registry.networks.addresses import NO_ADDRESS, free_addresses, give_addresses
from registry.records.requests import Waiting
from registry.records.rounds import CommittedRound, Placement, RoundCommit
from registry.requests.rules import lock_groups_of, without_violations
from registry.rounds.cluster import at_once, ever_placed
from registry.rounds.leases import CONTROL_LEASE, check_epoch
from registry.rounds.slot_loop import check_not_paused
from registry.tenancy.quota_use import lock_limited, within_quotas

HOST_MOVED: Final = "host_moved"
QUOTA: Final = "quota"
NO_ROOM_FOR_IMAGE: Final = "no_room_for_image"
GROUP_MOVED: Final = "group_moved"
ACTOR: Final = "control"
#: for VMs of a request, before what is still missing is left to the next round
_LOOKS: Final = 3


def commit_round(connection: Connection, commit: RoundCommit) -> CommittedRound:
    """Write the round and what of it still holds."""
    checkpoint("round.before_commit")
    check_epoch(connection, CONTROL_LEASE, commit.holder, commit.epoch, until_commit=True)
    check_not_paused(connection, until_commit=True)
    now = db_now(connection)
    limited = lock_limited(connection, _askers(connection, commit))
    standing, dropped = _standing(connection, commit)
    lock_groups_of(connection, {part.request_id for part in standing})
    chosen, short = _choose_vms(connection, standing)
    chosen, against_rules = without_violations(connection, chosen)
    chosen, beyond = within_quotas(connection, chosen, limited)
    chosen, roomless = _with_room_for_images(connection, chosen, now)
    chosen, unaddressed = _with_addresses(connection, chosen)
    dropped += short + _as_parts(against_rules) + beyond + roomless + unaddressed
    if dropped:
        placed = {vm.id for vm, _ in chosen}
        chosen, broken = _whole_gangs(connection, chosen)
        dropped += broken
        free_addresses(connection, placed - {vm.id for vm, _ in chosen})
    want_copies(connection, chosen, now=now, actor=ACTOR)
    number = _insert_round(connection, commit, now, len(chosen), dropped)
    with behind(connection) as later:
        keys = _insert_assignments(connection, chosen, number, now, later)
        inputs = {"inputs": commit.inputs, "packed_outcome": pack(commit.outcome)}
        later(inserting(connection, round_inputs, [{"round": number} | inputs]))
    checkpoint("round.in_commit")
    gained = Counter(vm.request_id for vm, _ in chosen)
    recompute_placed(connection, gained, now=now, actor=ACTOR, reason=f"round {number}")
    reasons = {request_id: GROUP_MOVED for request_id, _ in against_rules}
    reasons |= dict.fromkeys((part.request_id for part in roomless), NO_ROOM_FOR_IMAGE)
    reasons |= dict.fromkeys((part.request_id for part in unaddressed), NO_ADDRESS)
    reasons |= dict.fromkeys((part.request_id for part in beyond), QUOTA)
    _write_waiting(connection, commit, dropped, number, now, reasons=reasons)
    by_request: defaultdict[UUID, list[UUID]] = defaultdict(list)
    for (vm, _), key in zip(chosen, keys, strict=True):
        by_request[vm.request_id].append(key)
    return CommittedRound(
        number=number,
        assignments={request_id: tuple(ids) for request_id, ids in by_request.items()},
        dropped=tuple(dropped),
    )


def _standing(
    connection: Connection, commit: RoundCommit
) -> tuple[list[Placement], list[Placement]]:
    """Return the parts on hosts that did not move, and the others."""
    wanted = sorted({part.host_id for part in commit.placements})
    versions: dict[UUID, int] = {}
    for some in chunks(wanted):
        versions |= {
            row.id: row.version
            for row in connection.execute(
                select(hosts.c.id, hosts.c.version)
                .where(among(connection, hosts.c.id, some))
                .order_by(hosts.c.id)
                .with_for_update(key_share=True)
            )
        }
    standing: list[Placement] = []
    dropped: list[Placement] = []
    for part in commit.placements:
        check_int("placements.count", part.count, 1, 2**31)
        seen = commit.host_versions.get(part.host_id)
        moved = seen is None or versions.get(part.host_id) != seen
        (dropped if moved else standing).append(part)
    return standing, dropped


def _choose_vms(
    connection: Connection, standing: Sequence[Placement]
) -> tuple[list[tuple[Any, UUID]], list[Placement]]:
    """Return (VM, host) pairs, the oldest VMs first, and the parts that found too few VMs."""
    wanted: Counter[UUID] = Counter()
    for part in standing:
        wanted[part.request_id] += part.count
    waiting: defaultdict[UUID, list[Any]] = defaultdict(list)
    for row in _lock_oldest(connection, wanted):
        waiting[row.request_id].append(row)
    in_turn = {key: iter(found) for key, found in waiting.items()}
    chosen: list[tuple[Any, UUID]] = []
    short: list[Placement] = []
    for part in standing:
        taken = list(islice(in_turn.get(part.request_id, ()), part.count))
        chosen += [(vm, part.host_id) for vm in taken]
        if len(taken) < part.count:
            short.append(replace(part, count=part.count - len(taken)))
    return chosen, short


def _lock_oldest(connection: Connection, wanted: Mapping[UUID, int]) -> list[Any]:
    """Lock of each request its oldest VMs that wait, no more than are wanted, and return them.

    Of those that were placed or deleted between the look and their lock others take the
    place, found by another look.
    """
    found: list[Any] = []
    for _ in range(_LOOKS):
        keys = sorted(oldest_waiting(connection, wanted))
        found = [row for some in chunks(keys) for row in _locked(connection, some)]
        if len(found) == len(keys):
            break
    return found


def _locked(connection: Connection, some: Sequence[UUID]) -> list[Any]:
    """Lock VMs, and return those that still wait."""
    which = and_(among(connection, vms.c.id, some), waiting_vms())
    locked = lock_vms(connection, which)
    query = (
        select(
            vms.c.id,
            vms.c.generation,
            vms.c.request_id,
            vms.c.tenant_id,
            requests.c.vm_type_id,
            request_images.c.image_id,
            tenants.c.name.label("tenant"),
        )
        .select_from(vms)
        .join(requests, requests.c.id == vms.c.request_id)
        .join(tenants, tenants.c.id == vms.c.tenant_id)
        .outerjoin(request_images, request_images.c.request_id == requests.c.id)
        .where(which)
        .order_by(vms.c.id)
    )
    rows = connection.execute(query).all()
    return [row for row in rows if locked is None or row.id in locked]


def _with_room_for_images(
    connection: Connection, chosen: Sequence[tuple[Any, UUID]], now: datetime
) -> tuple[list[tuple[Any, UUID]], list[Placement]]:
    """Return the pairs without those whose image does not fit on their host, and these as parts.

    Their requests avoid such a host for a while, or the next round would choose it again.
    """
    if all(vm.image_id is None for vm, _ in chosen):
        return list(chosen), []
    amounts = demands(connection, {vm.vm_type_id for vm, _ in chosen})
    full = without_room(connection, chosen, amounts)
    parts = Counter(
        (vm.request_id, host_id) for vm, host_id in chosen if (vm.image_id, host_id) in full
    )
    for request_id, host_id in sorted(parts):
        avoid(connection, request_id, host_id, now)
    return (
        [(vm, host_id) for vm, host_id in chosen if (vm.image_id, host_id) not in full],
        _as_parts(parts),
    )


def _with_addresses(
    connection: Connection, chosen: Sequence[tuple[Any, UUID]]
) -> tuple[list[tuple[Any, UUID]], list[Placement]]:
    """Return the pairs without those whose network has no address left, and these as parts.

    A round looks at each request alone: several together may want more than there are.
    """
    without = give_addresses(connection, [vm.id for vm, _ in chosen])
    parts = Counter((vm.request_id, host_id) for vm, host_id in chosen if vm.id in without)
    return (
        [(vm, host_id) for vm, host_id in chosen if vm.id not in without],
        _as_parts(parts),
    )


def _askers(connection: Connection, commit: RoundCommit) -> set[UUID]:
    """Return the tenants for whom the round places VMs."""
    askers: set[UUID] = set()
    for some in chunks(sorted({part.request_id for part in commit.placements})):
        query = select(requests.c.tenant_id).where(among(connection, requests.c.id, some))
        askers.update(connection.scalars(query.distinct()))
    return askers


def _whole_gangs(
    connection: Connection, chosen: Sequence[tuple[Any, UUID]]
) -> tuple[list[tuple[Any, UUID]], list[Placement]]:
    """Return the pairs without those of gangs that are not whole, and these as parts."""
    placed = Counter(vm.request_id for vm, _ in chosen)
    least: dict[UUID, int] = {}
    for some in chunks(sorted(placed)):
        gangs = select(requests.c.id, requests.c.min_count).where(
            among(connection, requests.c.id, some), requests.c.min_count > 1
        )
        least |= {row.id: row.min_count for row in connection.execute(gangs)}
    begun = ever_placed(connection, sorted(least))
    waiting = count_waiting(connection, least)
    broken = {
        key
        for key, min_count in least.items()
        if placed[key] < at_once(min_count, waiting[key], begun=key in begun)
    }
    parts = Counter((vm.request_id, host_id) for vm, host_id in chosen if vm.request_id in broken)
    return (
        [(vm, host_id) for vm, host_id in chosen if vm.request_id not in broken],
        _as_parts(parts),
    )


def _as_parts(counted: Mapping[tuple[UUID, UUID], int]) -> list[Placement]:
    return [
        Placement(request_id=request_id, host_id=host_id, count=count)
        for (request_id, host_id), count in counted.items()
    ]


def _insert_round(
    connection: Connection,
    commit: RoundCommit,
    now: datetime,
    placed: int,
    dropped: Sequence[Placement],
) -> int:
    check_int("seed", commit.seed, -(2**63), 2**63 - 1)
    result = connection.execute(
        insert(rounds).values(
            holder=commit.holder,
            epoch=commit.epoch,
            slot_start_at=commit.slot_start_at,
            slot_length_s=commit.slot_length_s,
            policy=commit.policy,
            decided_by=commit.decided_by,
            fallback_reason=commit.fallback_reason,
            parameters=dict(commit.parameters),
            seed=commit.seed,
            engine_version=commit.engine_version,
            budget_units=commit.budget_units,
            work=commit.work,
            cut=commit.cut,
            inputs_digest=commit.inputs_digest,
            shares=[dict(share) for share in commit.shares],
            bound=commit.bound,
            fair_distance=commit.fair_distance,
            group_shares=[dict(share) for share in commit.group_shares],
            timings=dict(commit.timings),
            placed=placed,
            left_out=sum(waiting.count for waiting in commit.waiting.values()),
            dropped=sum(part.count for part in dropped),
            created_at=now,
        )
    )
    assert result.inserted_primary_key is not None  # noqa: S101 - an insert of one row has one
    number: int = result.inserted_primary_key[0]
    return number


def _insert_assignments(
    connection: Connection,
    chosen: Sequence[tuple[Any, UUID]],
    number: int,
    now: datetime,
    later: Later,
) -> tuple[UUID, ...]:
    """Hand over what the placements amount to, and return the keys of the assignments."""
    if not chosen:
        return ()
    amounts = demands(connection, {vm.vm_type_id for vm, _ in chosen})
    names = _host_names(connection, {host_id for _, host_id in chosen})
    rows = [
        {
            "id": uuid7(),
            "vm_id": vm.id,
            "host_id": host_id,
            "tenant_id": vm.tenant_id,
            "round": number,
            "generation": vm.generation + 1,
            "state": AssignmentState.RESERVED.value,
            "created_at": now,
        }
        for vm, host_id in chosen
    ]
    later(inserting(connection, assignments, rows))
    holds = [
        {
            "assignment_id": row["id"],
            "resource": resource,
            "host_id": host_id,
            "amount": amount,
        }
        for row, (vm, host_id) in zip(rows, chosen, strict=True)
        for resource, amount in amounts[vm.vm_type_id].items()
    ]
    later(inserting(connection, assignment_resources, holds))
    risen = [{"id": vm.id, "generation": vm.generation + 1} for vm, _ in chosen]
    later(updating(connection, vms, risen))
    history = [
        event_row(
            now,
            ACTOR,
            "assignment_state",
            "assignment",
            row["id"],
            tenant=vm.tenant,
            change=(None, AssignmentState.RESERVED),
            data={"vm": str(vm.id), "host": names[host_id], "round": number},
        )
        for row, (vm, host_id) in zip(rows, chosen, strict=True)
    ]
    later(recording(connection, history))
    return tuple(row["id"] for row in rows)


def _host_names(connection: Connection, keys: set[UUID]) -> Mapping[UUID, str]:
    found: dict[UUID, str] = {}
    for some in chunks(sorted(keys)):
        query = select(hosts.c.id, hosts.c.name).where(among(connection, hosts.c.id, some))
        found |= {row.id: row.name for row in connection.execute(query)}
    return found


def _write_waiting(
    connection: Connection,
    commit: RoundCommit,
    dropped: Sequence[Placement],
    number: int,
    now: datetime,
    *,
    reasons: Mapping[UUID, str],
) -> None:
    """Write for each request that waits why it does, and that it waited one round more.

    What waits is what the round left out, and dropped parts, for what ``reasons`` say or
    since their host moved; of VMs that were deleted since the read no more are told than
    are asked for. To count them would cost each commit what the whole backlog amounts to.
    """
    moved: defaultdict[UUID, int] = defaultdict(int)
    for part in dropped:
        moved[part.request_id] += part.count
    concerned = sorted({*commit.waiting, *moved})
    changes: list[dict[str, Any]] = []
    finished = [state.value for state in FINISHED]
    for some in chunks(concerned):
        waits = which_wait(connection, some)
        query = (
            select(requests.c.id, requests.c.count.label("asked"), requests.c.waiting)
            .where(among(connection, requests.c.id, some), requests.c.state.not_in(finished))
            .order_by(requests.c.id)
        )
        for row in connection.execute(query):
            if row.id not in waits:
                continue
            before = from_json(row.waiting)
            reason = reasons.get(row.id, HOST_MOVED)
            waiting = commit.waiting.get(row.id) or Waiting(count=0, reason=reason)
            count = min(waiting.count + moved[row.id], row.asked)
            detail = dict(waiting.detail)
            if moved[row.id]:
                detail["dropped"] = moved[row.id]
            since = before.since if before is not None else now
            stored = replace(waiting, count=count, round=number, since=since, detail=detail)
            changes.append({"id": row.id, "waiting": to_json(stored), "updated_at": now})
    update_rows(connection, requests, changes, raised=["rounds_waited"])
