"""Reservations as rounds read them, and the room that rounds keep for them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, and_, delete, select, update

from registry.audit.events import event_row, record_events
from registry.catalogue.resources import demands
from registry.db.bulk import chunks, insert_rows, is_any_of
from registry.db.schema import requests, reservation_holds, reservations, tenants, vm_types
from registry.lifecycle import OPEN_REQUESTS
from registry.records.cluster import HostView, RequestView, ReservationView, ReservedView
from registry.records.round_commits import ReservedCommit
from registry.tenancy.reservation_use import IS_STANDING, is_in_force


def reserved_view(
    connection: Connection, axis: Sequence[str], now: datetime, hosts_: tuple[HostView, ...]
) -> tuple[ReservedView | None, tuple[HostView, ...]]:
    """Return the reservations with room to keep, and the hosts with that room committed.

    The first is None if there are no reservations. Room on a host that takes no VMs, or has too
    little, is no longer kept and is chosen again.
    """
    rows = connection.execute(
        select(reservations, vm_types.c.name.label("vm_type"))
        .join(vm_types, vm_types.c.id == reservations.c.vm_type_id)
        # Until the sweep ends it: after a step ahead of the clock that is an hour later.
        .where(IS_STANDING, reservations.c.keep_from <= now)
        .order_by(reservations.c.starts_at, reservations.c.id)
    ).all()
    if not rows:
        return None, hosts_
    demand = demands(connection, {row.vm_type_id for row in rows})
    kept: defaultdict[UUID, list[tuple[UUID, int]]] = defaultdict(list)
    for some in chunks([row.id for row in rows]):
        query = select(reservation_holds).where(
            is_any_of(connection, reservation_holds.c.reservation_id, some)
        )
        for key, host, count in connection.execute(query.order_by(reservation_holds.c.host_id)):
            kept[key].append((host, count))
    places = {host.id: place for place, host in enumerate(hosts_)}
    changed = list(hosts_)
    found = []
    for row in rows:
        amounts = tuple(demand[row.vm_type_id].get(name, 0) for name in axis)
        holds = []
        for key, count in kept[row.id]:
            host = changed[places[key]] if key in places else None
            if host is None or not host.accepts or not set(row.requires) <= set(host.labels):
                continue
            committed = tuple(
                held + count * amount for held, amount in zip(host.committed, amounts, strict=True)
            )
            if all(held <= most for held, most in zip(committed, host.capacity, strict=True)):
                changed[places[key]] = replace(host, committed=committed)
                holds.append((key, count))
        found.append(
            ReservationView(
                asks=_reservation_request(row, amounts),
                in_force=row.starts_at <= now,
                holds=tuple(holds),
                lost=len(holds) < len(kept[row.id]),
                short=row.short,
                starts_at=row.starts_at,
                ends_at=row.ends_at,
            )
        )
    begun = [each.asks.id for each in found if each.in_force]
    draws: dict[UUID, UUID] = {}
    for some in chunks(begun):
        query = select(requests.c.id, requests.c.reservation_id).where(
            requests.c.reservation_id.is_not(None),
            is_any_of(connection, requests.c.reservation_id, some),
            requests.c.state.in_(OPEN_REQUESTS),
        )
        draws.update((key, of) for key, of in connection.execute(query))
    return ReservedView(reservations=tuple(found), draws=draws), tuple(changed)


def _reservation_request(row: Any, amounts: tuple[int, ...]) -> RequestView:
    """Return a reservation as a request for its VMs now."""
    return RequestView(
        id=row.id,
        name=row.name,
        tenant_id=row.tenant_id,
        vm_type=row.vm_type,
        demand=amounts,
        count=max(0, row._mapping["count"] - row.used),
        min_count=1,
        requires=tuple(row.requires),
        hosts=None,
        avoid=(),
        age=0,
        created_at=row.created_at,
    )


def held_for_reservations(
    connection: Connection, axis: Sequence[str], now: datetime
) -> Mapping[UUID, tuple[int, ...]]:
    """Return the amounts kept for each tenant's reservations that have begun."""
    rows = connection.execute(
        select(reservations.c.tenant_id, reservations.c.vm_type_id, reservation_holds.c["count"])
        .join(reservations, reservations.c.id == reservation_holds.c.reservation_id)
        .where(is_in_force(now))
    ).all()
    demand = demands(connection, {row.vm_type_id for row in rows}) if rows else {}
    held: dict[UUID, tuple[int, ...]] = {}
    for tenant, vm_type, count in rows:
        amounts = tuple(count * demand[vm_type].get(name, 0) for name in axis)
        before = held.get(tenant, (0,) * len(axis))
        held[tenant] = tuple(map(int.__add__, before, amounts))
    return held


def record_reserved_room(
    connection: Connection,
    decided: ReservedCommit,
    moved: Collection[UUID],
    number: int,
    *,
    now: datetime,
    actor: str,
) -> None:
    """Store changes of reserved room on hosts; record events of reservations without room.

    Kept room on hosts in ``moved`` does not grow, as their free room may have changed. Nothing is
    written for a reservation that is over.
    """
    changed = [each for each in decided.reservations if each.changes]
    keys = [each.reservation_id for each in changed]
    rows: dict[UUID, Any] = {}
    for some in chunks(sorted(keys)):
        query = (
            select(reservations, tenants.c.name.label("tenant"))
            .join(tenants, tenants.c.id == reservations.c.tenant_id)
            .where(is_any_of(connection, reservations.c.id, some), IS_STANDING)
            .order_by(reservations.c.id)
            .with_for_update(of=reservations)
        )
        rows |= {row.id: row for row in connection.execute(query)}
    holds, history = [], []
    for each in changed:
        if (row := rows.get(each.reservation_id)) is None:
            continue
        short, kept = each.short, 0
        for host, chosen in each.kept:
            count = min(chosen, each.before.get(host, 0)) if host in moved else chosen
            short += chosen - count
            if count:
                holds.append({"reservation_id": row.id, "host_id": host, "count": count})
                kept += count
        # What draws, and the policy placed where no room was kept, is not short.
        short = min(short, max(0, row._mapping["count"] - row.used - kept))
        if short != row.short:
            values = {"short": short}
            connection.execute(
                update(reservations).where(reservations.c.id == row.id).values(**values)
            )
            history.append(
                event_row(
                    now,
                    actor,
                    "reservation_short",
                    "reservation",
                    row.id,
                    tenant=row.tenant,
                    data={"name": row.name, "short": short, "was": row.short, "round": number},
                )
            )
    for some in chunks(sorted(rows)):
        connection.execute(
            delete(reservation_holds).where(
                is_any_of(connection, reservation_holds.c.reservation_id, some)
            )
        )
    insert_rows(connection, reservation_holds, holds)
    record_events(connection, history)


def record_reservation_use(connection: Connection, first_places: Mapping[UUID, int]) -> None:
    """Count VMs with their first place as used by the reservations that their requests draw on."""
    used: Counter[UUID] = Counter()
    for some in chunks(sorted(first_places)):
        query = select(requests.c.id, requests.c.reservation_id).where(
            requests.c.reservation_id.is_not(None), is_any_of(connection, requests.c.id, some)
        )
        for key, reservation in connection.execute(query):
            used[reservation] += first_places[key]
    for key, more in sorted(used.items()):
        connection.execute(
            update(reservations)
            .where(and_(reservations.c.id == key, IS_STANDING))
            .values(used=reservations.c.used + more)
        )
