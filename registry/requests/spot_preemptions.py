"""Announced ends of spot and borrowed VMs: carried out or withdrawn, by the database's clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence, Set
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, and_, delete, or_, select, update

from registry.audit.changes import SPOT
from registry.audit.events import record_events
from registry.db.bulk import chunks, is_any_of
from registry.db.locks import lock_vms
from registry.db.schema import (
    assignments,
    hosts,
    is_place,
    requests,
    spot_preemptions,
    spot_room_holds,
    tenants,
    unreleased,
    vms,
)
from registry.ledger.deletion import delete_vms
from registry.ledger.placeable import count_waiting, is_borrowed_without_place
from registry.lifecycle import HostAdmin, HostHealth, SpotEvent, SpotState, VmDesired

#: Of a host that takes VMs, as far as that lasts.
_IS_UP: Final = and_(hosts.c.admin == HostAdmin.ACTIVE.value, hosts.c.health == HostHealth.UP.value)
#: Not of a VM that its tenant made an ordinary one since the announcement.
_MAY_END: Final = or_(vms.c.spot, vms.c.borrowed)
_ENDINGS: Final = (
    select(
        spot_preemptions.c.vm_id,
        spot_preemptions.c.host_id,
        spot_preemptions.c.request_id,
        spot_preemptions.c.ends_at,
        vms.c.desired,
        vms.c.request_id.label("own_request"),
        vms.c.borrowed,
        _MAY_END.label("may_end"),
        tenants.c.name.label("tenant"),
        assignments.c.host_id.label("place"),
        _IS_UP.label("is_up"),
    )
    .select_from(spot_preemptions)
    .outerjoin(hosts, hosts.c.id == spot_preemptions.c.host_id)
    .join(vms, vms.c.id == spot_preemptions.c.vm_id)
    .join(tenants, tenants.c.id == vms.c.tenant_id)
    .outerjoin(assignments, and_(assignments.c.vm_id == vms.c.id, is_place, unreleased))
    .order_by(spot_preemptions.c.ends_at, spot_preemptions.c.vm_id)
)


def due_preemptions(connection: Connection, now: datetime, at_once: int) -> Sequence[UUID]:
    """Return spot VMs whose announced end is due or withdrawn, the earliest first."""
    rows = connection.execute(_ENDINGS).all()
    return [row.vm_id for row, _ in _due_events(connection, rows, now)][:at_once]


def apply_preemptions(
    connection: Connection, vm_ids: Sequence[UUID], *, now: datetime, actor: str
) -> tuple[UUID, ...]:
    """End these spot VMs if their end is due and still needed; return those that ended.

    An end is withdrawn if the request for which it was announced no longer waits for room on that
    host, if the host takes no VMs, if the VM has left the host, or if it is borrowed no longer. No
    room is kept for the request where the VM stays.
    """
    lock_vms(connection, is_any_of(connection, vms.c.id, vm_ids))
    these = _ENDINGS.where(is_any_of(connection, spot_preemptions.c.vm_id, vm_ids))
    settled = _due_events(connection, connection.execute(these).all(), now)
    if not settled:
        return ()
    keys = [row.vm_id for row, _ in settled]
    connection.execute(
        delete(spot_preemptions).where(is_any_of(connection, spot_preemptions.c.vm_id, keys))
    )
    steps = [(row, SPOT.step(SpotState.ENDING.value, event)) for row, event in settled]
    record_events(
        connection, [step.row(now, actor, row.vm_id, tenant=row.tenant) for row, step in steps]
    )
    stay = {
        (row.request_id, row.host_id)
        for row, event in settled
        if event is SpotEvent.WITHDRAWN and row.place == row.host_id
    }
    for request, host in sorted(stay):
        its = (spot_room_holds.c.request_id == request, spot_room_holds.c.host_id == host)
        connection.execute(delete(spot_room_holds).where(*its))
    ended = [row for row, event in settled if event is SpotEvent.DUE]
    which = is_any_of(connection, vms.c.id, [row.vm_id for row in ended])
    delete_vms(connection, which, now=now, actor=actor, reason="its room is needed")
    # Borrowed VMs are beyond the count of their request, which borrows others when it can.
    fewer_of = Counter(row.own_request for row in ended if not row.borrowed)
    for request_id, count in sorted(fewer_of.items()):
        fewer = requests.c["count"] - count
        connection.execute(update(requests).where(requests.c.id == request_id).values(count=fewer))
    return tuple(row.vm_id for row in ended)


def borrowed_without_place(connection: Connection, at_once: int) -> Sequence[UUID]:
    """Return borrowed VMs that lost their place, the oldest first."""
    query = select(vms.c.id).where(is_borrowed_without_place()).order_by(vms.c.id).limit(at_once)
    return connection.scalars(query).all()


def delete_expired_room(connection: Connection, now: datetime) -> None:
    """Delete the holds of room for requests that ended spot VMs, once they have expired."""
    connection.execute(delete(spot_room_holds).where(spot_room_holds.c.until <= now))


def has_expired_room(connection: Connection, now: datetime) -> bool:
    """Return whether a hold of room for a request that ended spot VMs has expired."""
    over = select(spot_room_holds.c.host_id).where(spot_room_holds.c.until <= now)
    return bool(connection.scalar(select(over.exists())))


def _due_events(
    connection: Connection, rows: Sequence[Any], now: datetime
) -> list[tuple[Any, SpotEvent]]:
    """Return the announced ends of spot VMs that are due or withdrawn, each with its event."""
    needed = _need_checker(connection, {row.request_id for row in rows})
    found = []
    for row in rows:
        if row.desired == VmDesired.DELETED.value:
            found.append((row, SpotEvent.DELETED))
        elif (
            not (row.may_end and row.is_up)
            or row.place != row.host_id
            or not needed(row.request_id, row.host_id)
        ):
            found.append((row, SpotEvent.WITHDRAWN))
        elif row.ends_at <= now:
            found.append((row, SpotEvent.DUE))
    return found


def _need_checker(connection: Connection, request_ids: Set[UUID]) -> Callable[[UUID, UUID], bool]:
    """Return a predicate: whether a request still needs the room of a spot VM on a host.

    A request needs room for its waiting VMs only, and uses its earliest rooms first.
    """
    rooms: defaultdict[UUID, list[tuple[UUID, int]]] = defaultdict(list)
    for some in chunks(sorted(request_ids)):
        query = (
            select(
                spot_room_holds.c.request_id, spot_room_holds.c.host_id, spot_room_holds.c["count"]
            )
            .join(hosts, hosts.c.id == spot_room_holds.c.host_id)
            .where(is_any_of(connection, spot_room_holds.c.request_id, some), _IS_UP)
        )
        in_turn = (spot_room_holds.c.until, spot_room_holds.c.host_id)
        for request, host, count in connection.execute(query.order_by(*in_turn)):
            rooms[request].append((host, count))
    kept = {key: sum(count for _, count in rooms[key]) for key in request_ids}
    waiting = count_waiting(connection, {key: kept[key] + 1 for key in request_ids})
    too_many: set[tuple[UUID, UUID]] = set()
    for key in request_ids:
        left = waiting.get(key, 0)
        for host, count in rooms[key]:
            if left <= 0:
                too_many.add((key, host))
            left -= count
    return lambda key, host: waiting.get(key, 0) > 0 and (key, host) not in too_many
