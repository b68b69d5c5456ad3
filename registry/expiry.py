"""Requests that are to end by themselves, by the database's clock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, select, update

from registry.deletion import delete_vms
from registry.errors import ConflictError
from registry.events import event_row, record
from registry.lifecycle import FINISHED, RequestEvent, VmDesired
from registry.locks import lock_vms
from registry.names import check_int
from registry.records import Request
from registry.schema import requests, vms

MAX_TTL_S: Final = 10 * 365 * 86_400
#: In one transaction; the rest follows at the next look.
_AT_ONCE: Final = 20


def expires_at(ttl_s: int | None, now: datetime) -> datetime | None:
    """Return when a request ends that is given so long from now; None: never."""
    if ttl_s is None:
        return None
    return now + timedelta(seconds=check_int("ttl_s", ttl_s, 1, MAX_TTL_S))


def extend(
    connection: Connection, request: Request, ttl_s: int | None, *, now: datetime, actor: str
) -> None:
    """Let a request end so long from now, or never; it must not have ended before."""
    ends = expires_at(ttl_s, now)
    # Whoever ends it holds these, so it either has ended by now, or sees the new time.
    lock_vms(connection, vms.c.request_id == request.id)
    live = and_(
        requests.c.id == request.id,
        requests.c.state.not_in([state.value for state in FINISHED]),
    )
    changed = connection.execute(
        update(requests).where(live).values(expires_at=ends, updated_at=now)
    ).rowcount
    if not changed:
        raise ConflictError(f"request {request.name} is over")
    history = event_row(
        now,
        actor,
        "request_extended",
        "request",
        request.id,
        tenant=request.tenant,
        data={"expires_at": None if ends is None else ends.isoformat()},
    )
    record(connection, [history])


def expired(connection: Connection, now: datetime) -> Sequence[UUID]:
    """Return some requests whose time is over and that have VMs that nobody deleted."""
    query = select(requests.c.id).where(_over(now)).order_by(requests.c.id).limit(_AT_ONCE)
    return connection.scalars(query).all()


def _over(now: datetime) -> ColumnElement[bool]:
    wanted = select(vms.c.id).where(
        vms.c.request_id == requests.c.id, vms.c.desired != VmDesired.DELETED.value
    )
    return and_(
        requests.c.expires_at <= now,
        requests.c.state.not_in([state.value for state in FINISHED]),
        wanted.exists(),
    )


def expire(
    connection: Connection, found: Sequence[UUID], *, now: datetime, actor: str
) -> tuple[UUID, ...]:
    """End those of these requests whose time is still over, with all their VMs."""
    lock_vms(connection, vms.c.request_id.in_(found))
    still = connection.scalars(
        select(requests.c.id).where(_over(now), requests.c.id.in_(found)).order_by(requests.c.id)
    ).all()
    if still:
        delete_vms(
            connection,
            vms.c.request_id.in_(still),
            now=now,
            actor=actor,
            request_event=RequestEvent.EXPIRED,
            reason="its time is over",
        )
    return tuple(still)
