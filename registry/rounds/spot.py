"""Spot VMs as rounds read them, and what rounds write of those that end, or borrowed ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, delete, select, tuple_

from registry.audit.changes import SPOT
from registry.audit.events import record_events
from registry.catalogue.resources import demands
from registry.db.bulk import PARAMETERS, chunks, insert_rows, is_any_of
from registry.db.schema import (
    assignments,
    is_place,
    is_vm_arrival,
    requests,
    spot_preemptions,
    spot_room_holds,
    tenants,
    unreleased,
    vms,
)
from registry.lifecycle import SpotEvent, SpotState, VmDesired
from registry.records.cluster import KeptRoom, PreemptibleVm, SpotView
from registry.records.round_commits import SpotCommit

#: As `ix_vms_id_spot` has it.
_LIVE: Final = (vms.c.spot, vms.c.deleted_at.is_(None))


def spot_view(connection: Connection, axis: tuple[str, ...], now: datetime) -> SpotView:
    """Return the placed spot VMs, and the room kept for requests for which others ended."""
    return SpotView(
        vms=placed_preemptible_vms(connection, axis, _LIVE), kept=read_kept_room(connection, now)
    )


def placed_preemptible_vms(
    connection: Connection, axis: tuple[str, ...], which: Sequence[ColumnElement[bool]]
) -> tuple[PreemptibleVm, ...]:
    """Return placed spot or borrowed VMs by the time of their placement."""
    elsewhere = assignments.alias("elsewhere")
    moves = select(elsewhere.c.id).where(elsewhere.c.vm_id == vms.c.id, is_vm_arrival(elsewhere))
    rows = connection.execute(
        select(
            vms.c.id,
            vms.c.name,
            vms.c.request_id,
            vms.c.tenant_id,
            vms.c.desired,
            requests.c.vm_type_id,
            assignments.c.host_id,
            spot_preemptions.c.vm_id.label("announced"),
            moves.exists().label("moves"),
        )
        .select_from(vms)
        .join(requests, requests.c.id == vms.c.request_id)
        .join(assignments, assignments.c.vm_id == vms.c.id)
        .outerjoin(spot_preemptions, spot_preemptions.c.vm_id == vms.c.id)
        .where(*which, is_place, unreleased)
        .order_by(assignments.c.created_at, vms.c.id)
    ).all()
    demand = demands(connection, {row.vm_type_id for row in rows}) if rows else {}
    amounts = {key: tuple(each.get(name, 0) for name in axis) for key, each in demand.items()}

    def is_ending(row: Row[Any]) -> bool:
        return row.desired == VmDesired.DELETED.value or row.announced is not None

    return tuple(
        PreemptibleVm(
            id=row.id,
            name=row.name,
            request_id=row.request_id,
            tenant_id=row.tenant_id,
            host_id=row.host_id,
            amounts=amounts[row.vm_type_id],
            may_end=not is_ending(row) and not row.moves,
            ending=is_ending(row),
        )
        for row in rows
    )


def read_kept_room(connection: Connection, now: datetime) -> tuple[KeptRoom, ...]:
    """Return the room that ending spot VMs leave, kept for the requests that need it."""
    kept = connection.execute(
        select(spot_room_holds.c.request_id, spot_room_holds.c.host_id, spot_room_holds.c["count"])
        .where(spot_room_holds.c.until > now)
        .order_by(spot_room_holds.c.request_id, spot_room_holds.c.host_id)
    )
    return tuple(
        KeptRoom(request_id=request, host_id=host, count=count) for request, host, count in kept
    )


def spot_holdings(found: Iterable[PreemptibleVm]) -> Mapping[UUID, tuple[int, ...]]:
    """Return the amounts that the spot VMs of each tenant hold."""
    held: dict[UUID, tuple[int, ...]] = {}
    for vm in found:
        before = held.get(vm.tenant_id, (0,) * len(vm.amounts))
        held[vm.tenant_id] = tuple(map(int.__add__, before, vm.amounts))
    return held


def announce_endings(
    connection: Connection,
    decided: SpotCommit,
    moved: Collection[UUID],
    number: int,
    *,
    now: datetime,
    actor: str,
) -> None:
    """Announce the end of spot and borrowed VMs, and keep their room for the requests that need it.

    Decisions on hosts in ``moved``, which have changed since the round's read, are dropped: the
    request that was let in may no longer fit there.
    """
    ends = {each.vm_id: each for each in decided.ends if each.host_id not in moved}
    lets_in = [each for each in decided.lets_in if each.host_id not in moved]
    named: dict[UUID, Any] = {}
    for some in chunks(sorted({each.request_id for each in lets_in})):
        query = (
            select(requests.c.id, requests.c.name, tenants.c.name.label("tenant"))
            .join(tenants, tenants.c.id == requests.c.tenant_id)
            .where(is_any_of(connection, requests.c.id, some))
        )
        named |= {row.id: row for row in connection.execute(query)}
    ends_at = now + timedelta(seconds=decided.grace_s)
    rows, history = [], []
    for some in chunks(sorted(ends)):
        query = (
            select(vms.c.id, tenants.c.name.label("tenant"))
            .join(tenants, tenants.c.id == vms.c.tenant_id)
            .join(assignments, assignments.c.vm_id == vms.c.id)
            .outerjoin(spot_preemptions, spot_preemptions.c.vm_id == vms.c.id)
            .where(
                is_any_of(connection, vms.c.id, some),
                vms.c.desired != VmDesired.DELETED.value,
                spot_preemptions.c.vm_id.is_(None),
                is_place,
                unreleased,
            )
            .order_by(vms.c.id)
        )
        for row in connection.execute(query):
            end = ends[row.id]
            whom = named[end.request_id]
            rows.append(
                {
                    "vm_id": row.id,
                    "host_id": end.host_id,
                    "request_id": end.request_id,
                    "for_tenant": whom.tenant,
                    "for_request": whom.name,
                    "round": number,
                    "ends_at": ends_at,
                }
            )
            # A tenant reads its events, so they do not name other tenants' requests.
            own = {"for": whom.name} if whom.tenant == row.tenant else {}
            detail = {"ends_at": ends_at.isoformat(), "round": number, **own}
            step = SPOT.step(SpotState.STAYS.value, SpotEvent.ANNOUNCED)
            history.append(step.row(now, actor, row.id, tenant=row.tenant, data=detail))
    insert_rows(connection, spot_preemptions, rows)
    record_events(connection, history)
    until = ends_at + timedelta(seconds=decided.hold_s)
    kept = _kept_room_of_requests(connection, {each.request_id for each in lets_in}, now)
    rooms = Counter({(each.request_id, each.host_id): each.count for each in lets_in})
    for pair in rooms.keys() & kept.keys():  # what is let in now adds to what was let in before
        rooms[pair] += kept[pair][0]
    _replace_kept_room(connection, rooms, {pair: (count, until) for pair, count in rooms.items()})


def reduce_kept_room(
    connection: Connection, placed: Mapping[tuple[UUID, UUID], int], now: datetime
) -> None:
    """Reduce the room left by ended spot VMs by the VMs placed in it, by request and host."""
    kept = _kept_room_of_requests(connection, {request for request, _ in placed}, now)
    used = {pair: room for pair, room in kept.items() if pair in placed}
    left = {pair: (count - placed[pair], until) for pair, (count, until) in used.items()}
    _replace_kept_room(connection, used, {pair: room for pair, room in left.items() if room[0] > 0})


def _kept_room_of_requests(
    connection: Connection, request_ids: Collection[UUID], now: datetime
) -> Mapping[tuple[UUID, UUID], tuple[int, datetime]]:
    """Return the room left by ended spot VMs for requests: counts and end times."""
    columns = (spot_room_holds.c.request_id, spot_room_holds.c.host_id, spot_room_holds.c["count"])
    found: dict[tuple[UUID, UUID], tuple[int, datetime]] = {}
    for some in chunks(sorted(request_ids)):
        its = is_any_of(connection, spot_room_holds.c.request_id, some)
        query = select(*columns, spot_room_holds.c.until).where(its, spot_room_holds.c.until > now)
        for request, host, count, until in connection.execute(query):
            found[request, host] = count, until
    return found


def _replace_kept_room(
    connection: Connection,
    before: Collection[tuple[UUID, UUID]],
    rooms: Mapping[tuple[UUID, UUID], tuple[int, datetime]],
) -> None:
    """Replace the room left by ended spot VMs: counts and end times, by request and host."""
    key = tuple_(spot_room_holds.c.request_id, spot_room_holds.c.host_id)
    for some in chunks(sorted(before), PARAMETERS // 2):
        connection.execute(delete(spot_room_holds).where(key.in_(some)))
    rows = [
        {"request_id": request, "host_id": host, "count": count, "until": until}
        for (request, host), (count, until) in sorted(rooms.items())
    ]
    insert_rows(connection, spot_room_holds, rows)
