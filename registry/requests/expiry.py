"""Expiry of requests, by the database's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, or_, select, update

from registry.audit.events import record_event
from registry.db.locks import lock_vms
from registry.db.names import expires_at
from registry.db.schema import requests, vms
from registry.errors import ConflictError
from registry.ledger.deletion import delete_vms
from registry.lifecycle import FINISHED, RequestEvent, VmDesired
from registry.records.requests import Request

#: VMs in one transaction; the rest follows at the next sweep.
AT_ONCE: Final = 500
_REQUESTS_AT_ONCE: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryBatch:
    """VMs that expire together: those of whole requests, and some of one more request."""

    whole: frozenset[UUID]
    parts: Mapping[UUID, UUID]  #: requests by VM

    def __bool__(self) -> bool:
        return bool(self.whole or self.parts)


def set_expiry(
    connection: Connection, request: Request, ttl_s: int | None, *, now: datetime, actor: str
) -> None:
    """Set a request's lifetime, counted from now, or remove it; the request must not be ending.

    A large request ends in several batches. If the rest were kept, its tenant would have fewer VMs
    than requested, without notice.
    """
    ends = expires_at(ttl_s, now)
    # Ending a request locks its VMs too, so its end has either begun by now or sees the new time.
    lock_vms(connection, vms.c.request_id == request.id)
    since = connection.scalars(
        select(requests.c.ending_since).where(requests.c.id == request.id)
    ).one_or_none()
    if since is not None:
        raise ConflictError(
            f"request {request.name} cannot be extended: its time was over, and since"
            f" {since:%Y-%m-%d %H:%M:%S} UTC its VMs are being deleted"
        )
    live = and_(
        requests.c.id == request.id, requests.c.state.not_in([state.value for state in FINISHED])
    )
    changed = connection.execute(
        update(requests).where(live).values(expires_at=ends, updated_at=now)
    ).rowcount
    if not changed:
        raise ConflictError(f"request {request.name} is over")
    record_event(
        connection,
        now,
        actor,
        "request_extended",
        "request",
        request.id,
        tenant=request.tenant,
        data={"expires_at": None if ends is None else ends.isoformat()},
    )


def find_expired(connection: Connection, now: datetime, at_once: int) -> ExpiryBatch:
    """Return a batch of VMs of expired requests that are not deleted yet."""
    left = vms.c.desired != VmDesired.DELETED.value
    wanted = select(vms.c.id).where(vms.c.request_id == requests.c.id, left).exists()
    query = select(requests.c.id).where(_has_expired(now), wanted).order_by(requests.c.id)
    over = connection.scalars(query.limit(_REQUESTS_AT_ONCE)).all()
    of_these = (
        select(vms.c.id, vms.c.request_id)
        .where(vms.c.request_id.in_(over), left)
        .order_by(vms.c.request_id, vms.c.id)
        .limit(at_once + 1)
    )
    rows = connection.execute(of_these).all()
    cut = {row.request_id for row in rows[at_once:]}
    found = rows[:at_once]
    return ExpiryBatch(
        whole=frozenset(row.request_id for row in found) - cut,
        parts={row.id: row.request_id for row in found if row.request_id in cut},
    )


def _has_expired(now: datetime) -> ColumnElement[bool]:
    """Return the condition that a request's lifetime is over, and that it is not finished."""
    return and_(
        requests.c.expires_at <= now, requests.c.state.not_in([state.value for state in FINISHED])
    )


def expire_vms(
    connection: Connection, piece: ExpiryBatch, *, by: datetime, now: datetime, actor: str
) -> tuple[UUID, ...]:
    """Delete VMs of expired requests, if these still are; return the requests that ended.

    ``by`` decides which requests are expired; ``now`` is the time that is stored.
    """
    wanted = {*piece.whole, *piece.parts.values()}
    lock_vms(connection, or_(vms.c.request_id.in_(piece.whole), vms.c.id.in_(piece.parts)))
    still = connection.scalars(
        select(requests.c.id)
        .where(_has_expired(by), requests.c.id.in_(wanted))
        .order_by(requests.c.id)
    ).all()
    reason = "its time is over"
    parts = [key for key, request_id in piece.parts.items() if request_id in still]
    if parts:
        delete_vms(connection, vms.c.id.in_(parts), now=now, actor=actor, reason=reason)
        begun = requests.c.id.in_({piece.parts[key] for key in parts})
        connection.execute(
            update(requests)
            .where(begun, requests.c.ending_since.is_(None))
            .values(ending_since=now)
        )
    ended = tuple(key for key in still if key in piece.whole)
    if ended:
        delete_vms(
            connection,
            vms.c.request_id.in_(ended),
            now=now,
            actor=actor,
            request_event=RequestEvent.EXPIRED,
            reason=reason,
        )
    return ended
