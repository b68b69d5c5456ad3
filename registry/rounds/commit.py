"""The commit of a round: one transaction for the decision and its record.

The cluster may have changed since the round read it. The commit drops placements that are no
longer valid, to be decided again: those on hosts whose version rose, those whose VMs were deleted,
those that violate rules of groups and zones, VMs beyond a quota, and the rest of a gang that is
incomplete without them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, islice
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, and_, insert, select, update

from registry.audit.events import event_row, prepare_events
from registry.catalogue.resources import demands
from registry.db.background_statements import SubmitStatement, background_executor
from registry.db.bulk import chunks, is_any_of, prepare_insert, prepare_update
from registry.db.checkpoints import checkpoint
from registry.db.clock import db_now
from registry.db.ids import uuid7
from registry.db.locks import lock_vms
from registry.db.schema import (
    assignment_resources,
    assignments,
    hosts,
    quotas,
    request_groups,
    request_images,
    request_networks,
    requests,
    round_inputs,
    rounds,
    slot_loop,
    tenants,
    vms,
)
from registry.errors import InvalidError, SlotLoopPausedError
from registry.images.host_copies import request_copies
from registry.ledger.brought_volumes import brought_volumes
from registry.ledger.placeable import is_waiting_vm, kept_disks_of_requests, oldest_waiting_vms
from registry.ledger.request_progress import recompute_after_placing
from registry.ledger.shared_disks import KeptDisk
from registry.ledger.volume_changes import attach_bound_volumes
from registry.lifecycle import AssignmentState, SlotLoopState
from registry.networks.addresses import NO_ADDRESS, free_addresses
from registry.records.cluster import BroughtVolumes
from registry.records.round_commits import CommittedRound, Placement, RoundCommit
from registry.requests.rules import lock_groups_of
from registry.rounds.borrowed import lend_vms, lock_borrowers
from registry.rounds.dropped_placements import (
    GROUP_MOVED,
    NO_ROOM_FOR_IMAGE,
    QUOTA,
    drop_broken_gangs,
    drop_without_address,
    drop_without_image_room,
    placements_of_counts,
    write_waiting_reasons,
)
from registry.rounds.hash_chain import add_link
from registry.rounds.head_signatures import HeadSigner
from registry.rounds.leases import CONTROL_LEASE, check_epoch
from registry.rounds.past_holdings import write_past_holdings
from registry.rounds.reserved_room import record_reservation_use, record_reserved_room
from registry.rounds.rule_violations import drop_rule_violations
from registry.rounds.spot import announce_endings, reduce_kept_room
from registry.tenancy.quota_use import drop_over_quota, lock_limited_nodes

ACTOR: Final = "control"
#: for VMs of a request, before what is still missing is left to the next round
_LOOKS: Final = 3
#: Above the VMs of a part and the numbers of a column: what the database would refuse.
_MAX_COUNT, _LARGEST_SEED = 2**31, 2**63
#: The columns of a record that a commit fills by its fields of the same names.
_RECORDED: Final = tuple(name for name in RoundCommit.__dataclass_fields__ if name in rounds.c)


def commit_round(
    connection: Connection, commit: RoundCommit, signer: HeadSigner | None = None
) -> CommittedRound:
    """Write the round and its placements that are still valid."""
    # 1. Only the leader writes, and only while the slot loop runs.
    checkpoint("round.before_commit")
    check_epoch(connection, CONTROL_LEASE, commit.holder, commit.epoch, until_commit=True)
    _record_slot(connection, commit)
    now = db_now(connection)
    # 2. Lock what bounds the placements: limited tenants, hosts, groups, VMs.
    binding = _find_binding_rules(connection, commit)
    lock_borrowers(connection, [part for part in commit.placements if part.borrowed])
    limited = lock_limited_nodes(connection, binding.tenant_keys) if binding.quotas else {}
    standing, dropped, names = _split_by_version(connection, commit)
    if binding.groups:
        lock_groups_of(connection, {part.request_id for part in standing})
    kept = kept_disks_of_requests(connection, is_waiting_vm())
    chosen, short, brought = _choose_waiting_vms(
        connection, [part for part in standing if not part.borrowed], kept
    )
    lent, refused_loans = lend_vms(connection, [part for part in standing if part.borrowed], now)
    chosen += _with_rows(connection, lent)
    dropped += refused_loans
    # 3. Drop what breaks a rule by now, and gangs that are not whole without it.
    sizes = {key: its.disk_gib for key, its in brought.items()}
    chosen, refused = _apply_rules(connection, chosen, binding, limited, sizes, now=now)
    dropped += [*short, *chain.from_iterable(refused.values())]
    if dropped:
        placed = {vm.id for vm, _ in chosen}
        chosen, broken = drop_broken_gangs(connection, chosen)
        dropped += broken
        free_addresses(connection, placed - {vm.id for vm, _ in chosen})
    if any(vm.image_id is not None for vm, _ in chosen):
        request_copies(connection, chosen, now=now, actor=ACTOR)
    # 4. Insert the record.
    moved = _find_changed_hosts(connection, commit)
    again = sum(part.count for part in dropped) + _count_doubtful_vms(commit, moved)
    number = _insert_round(
        connection, commit, now, [vm for vm, _ in chosen], dropped=again, signer=signer
    )
    # 5. Note what the round decided of spot VMs and reservations, and what tenants held.
    _note_decisions(connection, commit, chosen, moved, number, now=now)
    # 6. Insert the assignments, and the inputs and the outcome for replays.
    with background_executor(connection) as later:
        disks = {vm: disk for of_request in kept.values() for vm, disk in of_request.items()}
        keys = _insert_assignments(connection, chosen, number, now, later, names=names, disks=disks)
        inputs = {"inputs": commit.inputs, "packed_outcome": commit.outcome}
        later(prepare_insert(connection, round_inputs, [{"round": number} | inputs]))
    places = {
        vm.id: (key, host_id, names[host_id])
        for (vm, host_id), key in zip(chosen, keys, strict=True)
        if vm.id in brought
    }
    attach_bound_volumes(connection, places, now=now, actor=ACTOR)
    checkpoint("round.in_commit")
    # 7. Bring requests up to date: what is placed of them, and why the rest waits.
    gained = Counter(vm.request_id for vm, _ in chosen)
    recompute_after_placing(connection, gained, now=now, actor=ACTOR, reason=f"round {number}")
    if commit.waiting or dropped:
        write_waiting_reasons(connection, commit, dropped, number, now, refused=refused)
    connection.execute(update(slot_loop).values(without_round=0))
    by_request: defaultdict[UUID, list[UUID]] = defaultdict(list)
    for (vm, _), key in zip(chosen, keys, strict=True):
        by_request[vm.request_id].append(key)
    return CommittedRound(
        number=number,
        assignments={request_id: tuple(ids) for request_id, ids in by_request.items()},
        dropped=tuple(dropped),
    )


def _note_decisions(
    connection: Connection,
    commit: RoundCommit,
    chosen: Sequence[tuple[Any, UUID]],
    moved: Collection[UUID],
    number: int,
    *,
    now: datetime,
) -> None:
    """Note what a round decided of spot VMs and reservations, and what tenants held."""
    if commit.spot.keeps_rooms:
        reduce_kept_room(
            connection, Counter((vm.request_id, host_id) for vm, host_id in chosen), now
        )
    announce_endings(connection, commit.spot, moved, number, now=now, actor=ACTOR)
    if commit.reserved.reservations:
        record_reservation_use(
            connection, Counter(vm.request_id for vm, _ in chosen if vm.generation == 0)
        )
        record_reserved_room(connection, commit.reserved, moved, number, now=now, actor=ACTOR)
    if commit.past_holdings is not None:
        write_past_holdings(connection, commit.past_holdings)


def _record_slot(connection: Connection, commit: RoundCommit) -> None:
    """Record that the slot was decided; raise `SlotLoopPausedError` if the loop is paused.

    The row is locked, so the slot loop cannot be paused before this transaction is over.
    """
    noted = update(slot_loop).values(
        last_slot_at=commit.slot_start_at, slot_length_s=commit.slot_length_s
    )
    switch = connection.execute(noted.returning(slot_loop.c.state, slot_loop.c.reason)).one()
    if switch.state == SlotLoopState.PAUSED.value:
        raise SlotLoopPausedError(switch.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class _BindingRules:
    """The rules that may bind a round's placements; others are not checked."""

    tenant_keys: frozenset[UUID]  #: the tenants for whom it places VMs
    groups: bool  #: one of the requests has VM groups
    spreads: bool  #: one of them is spread over zones
    quotas: bool  #: some tenant or group has a limit


def _find_binding_rules(connection: Connection, commit: RoundCommit) -> _BindingRules:
    """Return the rules that may bind a round's placements at its commit.

    A request's groups and spread, its network and its image never change. Quotas may have been set
    since the round's read.
    """
    in_group = select(request_groups.c.group_id).where(request_groups.c.request_id == requests.c.id)
    found: set[Row[UUID, bool, bool, bool]] = set()
    for some in chunks(sorted({part.request_id for part in commit.placements})):
        query = select(
            requests.c.tenant_id,
            in_group.exists().label("in_group"),
            requests.c.spread.is_not(None).label("is_spread"),
            select(quotas.c.tenant_id).exists().label("has_quotas"),
        ).where(is_any_of(connection, requests.c.id, some))
        found.update(connection.execute(query.distinct()))
    return _BindingRules(
        tenant_keys=frozenset(row.tenant_id for row in found),
        groups=any(row.in_group for row in found),
        spreads=any(row.is_spread for row in found),
        quotas=any(row.has_quotas for row in found),
    )


def _split_by_version(
    connection: Connection, commit: RoundCommit
) -> tuple[list[Placement], list[Placement], Mapping[UUID, str]]:
    """Return placements on unchanged hosts, those on changed hosts, and the names of the hosts."""
    wanted = sorted({part.host_id for part in commit.placements})
    versions: dict[UUID, int] = {}
    names: dict[UUID, str] = {}
    for some in chunks(wanted):
        for row in connection.execute(
            select(hosts.c.id, hosts.c.name, hosts.c.version)
            .where(is_any_of(connection, hosts.c.id, some))
            .order_by(hosts.c.id)
            .with_for_update(key_share=True)
        ):
            versions[row.id], names[row.id] = row.version, row.name
    standing: list[Placement] = []
    dropped: list[Placement] = []
    for part in commit.placements:
        if not 1 <= part.count < _MAX_COUNT:
            raise InvalidError("placements.count", part.count, f"1 to {_MAX_COUNT - 1}")
        seen = commit.host_versions.get(part.host_id)
        moved = seen is None or versions.get(part.host_id) != seen
        (dropped if moved else standing).append(part)
    return standing, dropped, names


def _find_changed_hosts(connection: Connection, commit: RoundCommit) -> set[UUID]:
    """Return hosts changed since the round's read, with ending spot VMs or reserved room."""
    wanted = {each.host_id for each in commit.spot.ends}
    wanted |= {each.host_id for each in commit.spot.lets_in}
    wanted |= {host for each in commit.reserved.reservations for host, _ in each.kept}
    found: set[UUID] = set()
    for some in chunks(sorted(wanted)):
        query = select(hosts.c.id, hosts.c.version).where(is_any_of(connection, hosts.c.id, some))
        found |= {
            row.id
            for row in connection.execute(query)
            if commit.host_versions.get(row.id) != row.version
        }
    return found


def _count_doubtful_vms(commit: RoundCommit, moved: Collection[UUID]) -> int:
    """Count the VMs whose decisions on changed hosts must be made again.

    These are spot VMs that were to end, and VMs of additional reserved room.
    """
    return sum(each.host_id in moved for each in commit.spot.ends) + sum(
        max(0, count - each.before.get(host, 0))
        for each in commit.reserved.reservations
        for host, count in each.kept
        if host in moved
    )


def _choose_waiting_vms(
    connection: Connection,
    standing: Sequence[Placement],
    kept: Mapping[UUID, Mapping[UUID, KeptDisk]],
) -> tuple[list[tuple[Any, UUID]], list[Placement], Mapping[UUID, BroughtVolumes]]:
    """Return (VM, host) pairs, the oldest VMs first, and the placements that found too few VMs.

    A VM with a disk ``kept`` in a shared pool goes to a host of a placement for that pool, and a VM
    with volumes to one of a placement for VMs with such volumes. The third result has the volumes
    of each VM.
    """
    wanted: Counter[UUID] = Counter()
    for part in standing:
        wanted[part.request_id] += part.count
    certain: defaultdict[UUID, set[UUID]] = defaultdict(set)
    for request_id in wanted.keys() & kept.keys():
        certain[request_id].update(kept[request_id])
    bringing = any(part.volumes is not None for part in standing)
    brought = brought_volumes(connection, is_waiting_vm()) if bringing else {}
    for request_id in wanted.keys() & brought.keys():
        certain[request_id].update(
            key for key, its in brought[request_id].items() if its.hosts is not None or its.leaving
        )
    for request_id, keys in certain.items():
        wanted[request_id] += len(keys)  # whichever of them are the oldest
    rows = _lock_oldest_vms(connection, wanted, certain)
    if bringing:  # again: of VMs that are locked
        brought = brought_volumes(connection, is_waiting_vm())
    waiting: defaultdict[object, list[Any]] = defaultdict(list)
    for row in rows:
        disk = kept.get(row.request_id, {}).get(row.id)
        its = brought.get(row.request_id, {}).get(row.id)
        waiting[row.request_id, None if disk is None else disk.shared_pool, its].append(row)
    in_turn = {key: iter(found) for key, found in waiting.items()}
    chosen: list[tuple[Any, UUID]] = []
    short: list[Placement] = []
    for part in standing:
        alike = in_turn.get((part.request_id, part.shared_pool, part.volumes), ())
        taken = list(islice(alike, part.count))
        chosen += [(vm, part.host_id) for vm in taken]
        if len(taken) < part.count:
            short.append(replace(part, count=part.count - len(taken)))
    of_vms = {key: its for of_request in brought.values() for key, its in of_request.items()}
    return chosen, short, of_vms


def _lock_oldest_vms(
    connection: Connection, wanted: Mapping[UUID, int], certain: Mapping[UUID, Set[UUID]]
) -> list[Any]:
    """Lock and return the oldest waiting VMs of each request, up to the number to place.

    ``certain`` VMs of a request, which are bound to some hosts, are all locked.

    VMs that were placed or deleted before the lock are replaced by others,
    which another query finds.
    """
    found: list[Any] = []
    for _ in range(_LOOKS):
        with_disks = (vm for key in wanted for vm in certain.get(key, ()))
        keys = sorted({*oldest_waiting_vms(connection, wanted), *with_disks})
        found = [row for some in chunks(keys) for row in _lock_waiting_vms(connection, some)]
        if len(found) == len(keys):
            break
    return found


def _lock_waiting_vms(connection: Connection, vm_ids: Sequence[UUID]) -> list[Any]:
    """Lock VMs that a round chose and return those that still wait."""
    which = and_(is_any_of(connection, vms.c.id, vm_ids), is_waiting_vm())
    locked = lock_vms(connection, which)
    return [row for row in _vm_rows(connection, which) if locked is None or row.id in locked]


def _with_rows(
    connection: Connection, pairs: Sequence[tuple[UUID, UUID]]
) -> list[tuple[Any, UUID]]:
    """Return pairs of VM and host with the row of each VM instead of its id."""
    rows = {
        row.id: row
        for some in chunks(sorted(vm for vm, _ in pairs))
        for row in _vm_rows(connection, is_any_of(connection, vms.c.id, some))
    }
    return [(rows[vm], host) for vm, host in pairs]


def _vm_rows(connection: Connection, which: ColumnElement[bool]) -> list[Any]:
    """Return what a commit needs to know of VMs, by id."""
    query = (
        select(
            vms.c.id,
            vms.c.generation,
            vms.c.request_id,
            vms.c.tenant_id,
            vms.c.spot,
            vms.c.borrowed,
            requests.c.vm_type_id,
            request_images.c.image_id,
            request_networks.c.network_id,
            tenants.c.name.label("tenant"),
        )
        .select_from(vms)
        .join(requests, requests.c.id == vms.c.request_id)
        .join(tenants, tenants.c.id == vms.c.tenant_id)
        .outerjoin(request_images, request_images.c.request_id == requests.c.id)
        .outerjoin(request_networks, request_networks.c.request_id == requests.c.id)
        .where(which)
        .order_by(vms.c.id)
    )
    return list(connection.execute(query))


def _apply_rules(
    connection: Connection,
    chosen: list[tuple[Any, UUID]],
    binding: _BindingRules,
    limited: Mapping[UUID, Sequence[UUID]],
    disk_gib: Mapping[UUID, int],
    *,
    now: datetime,
) -> tuple[list[tuple[Any, UUID]], Mapping[str, Sequence[Placement]]]:
    """Return the (VM, host) pairs that keep every present rule, and those dropped by reason.

    ``disk_gib`` has the sizes of the volumes that a VM is placed with.
    """
    refused: dict[str, Sequence[Placement]] = {}
    if binding.groups or binding.spreads:
        chosen, against_rules = drop_rule_violations(connection, chosen)
        refused[GROUP_MOVED] = placements_of_counts(against_rules)
    if binding.quotas:
        chosen, refused[QUOTA] = drop_over_quota(connection, chosen, limited, disk_gib)
    if any(vm.image_id is not None for vm, _ in chosen):
        chosen, refused[NO_ROOM_FOR_IMAGE] = drop_without_image_room(
            connection, chosen, now, disk_gib
        )
    if any(vm.network_id is not None for vm, _ in chosen):
        chosen, refused[NO_ADDRESS] = drop_without_address(connection, chosen)
    return chosen, refused


def _insert_round(
    connection: Connection,
    commit: RoundCommit,
    now: datetime,
    placed: Sequence[Any],
    *,
    dropped: int,
    signer: HeadSigner | None,
) -> int:
    """Insert the record of a round, with the VMs ``placed``, and its link in the hash chain.

    Shares count the VMs for which tenants waited: no spot VMs, and no borrowed ones.
    """
    if not -_LARGEST_SEED <= commit.seed < _LARGEST_SEED:
        raise InvalidError("seed", commit.seed, "a whole number of 64 bits")
    given = Counter(vm.tenant for vm in placed if not (vm.spot or vm.borrowed))
    shares = [{**share, "given": given.get(share["tenant"], 0)} for share in commit.shares]
    values = {name: getattr(commit, name) for name in _RECORDED} | {
        "shares": shares,
        "placed": len(placed),
        "left_out": sum(waiting.count for waiting in commit.waiting.values()),
        "dropped": dropped,
        "created_at": now,
    }
    result = connection.execute(insert(rounds).values(**values))
    assert result.inserted_primary_key is not None  # noqa: S101 - an insert of one row has one
    number: int = result.inserted_primary_key[0]
    add_link(connection, number, commit, values, now, signer=signer)
    return number


def _insert_assignments(
    connection: Connection,
    chosen: Sequence[tuple[Any, UUID]],
    number: int,
    now: datetime,
    later: SubmitStatement,
    *,
    names: Mapping[UUID, str],
    disks: Mapping[UUID, KeptDisk],
) -> tuple[UUID, ...]:
    """Submit the inserts of a round's assignments and amounts; return the assignments' ids."""
    if not chosen:
        return ()
    amounts = demands(connection, {vm.vm_type_id for vm, _ in chosen})
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
    if disks:
        for row, (vm, _) in zip(rows, chosen, strict=True):
            disk = disks.get(vm.id)
            row["disk_of"] = disk and disk.disk_of
            row["disk_generation"] = disk and disk.generation
    later(prepare_insert(connection, assignments, rows))
    holds = [
        {"assignment_id": row["id"], "resource": resource, "host_id": host_id, "amount": amount}
        for row, (vm, host_id) in zip(rows, chosen, strict=True)
        for resource, amount in amounts[vm.vm_type_id].items()
    ]
    later(prepare_insert(connection, assignment_resources, holds))
    risen = [{"id": vm.id, "generation": vm.generation + 1} for vm, _ in chosen]
    later(prepare_update(connection, vms, risen))
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
    later(prepare_events(connection, history))
    return tuple(row["id"] for row in rows)
