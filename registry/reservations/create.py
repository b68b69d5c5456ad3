"""Creation of reservations, with the checks before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, func, insert, select

from registry.audit.events import record_event
from registry.catalogue.vm_types import vm_type_id
from registry.db.ids import uuid7
from registry.db.locks import take_advisory_lock
from registry.db.names import check_int, check_labels, check_new_name
from registry.db.schema import reservations
from registry.errors import (
    ConflictError,
    DuplicateError,
    InvalidError,
    NotFoundError,
    UnknownNameError,
)
from registry.lifecycle import OPEN_RESERVATIONS, ReservationState
from registry.requests.request_spec import MAX_COUNT
from registry.requests.rules import NO_RULES, check_combination
from registry.tenancy.tree import lock_requesting_tenant

#: From now until it begins, and from then until it ends.
MAX_AHEAD_S: Final = 30 * 86_400
MAX_LENGTH_S: Final = 30 * 86_400
#: So long before its beginning rounds keep the room of a reservation, as it becomes free.
LEAD_S: Final = 600
#: Reservations that are not over: each is read by every round in its time.
MAX_OPEN_OF_TENANT: Final = 32
MAX_OPEN_OF_ALL: Final = 1_000


def create_reservation(
    connection: Connection,
    now: datetime,
    *,
    tenant: str,
    vm_type: str,
    count: int,
    starts_at: datetime,
    for_s: int,
    name: str | None,
    requires: Sequence[str],
    actor: str,
) -> UUID:
    """Insert a pending reservation in a caller's transaction, and return its id."""
    check_int("count", count, 1, MAX_COUNT)
    check_int("for_s", for_s, 1, MAX_LENGTH_S)
    typed, starts_at = starts_at, starts_at.astimezone(UTC)
    # "now" means the time of the call, which is slightly in the past.
    late = timedelta(seconds=60)
    if not now - late <= starts_at <= now + timedelta(seconds=MAX_AHEAD_S):
        allowed = f"a time from now on, at most {MAX_AHEAD_S // 86_400} days ahead"
        raise InvalidError("starts_at", typed.isoformat(), allowed)
    starts_at = max(starts_at, now)
    key = uuid7()
    wanted = check_new_name("name", name) if name is not None else f"rsv-{key.hex[-10:]}"
    labels = check_labels("requires", requires)
    check_combination(NO_RULES, labels)
    owner = lock_requesting_tenant(connection, tenant)
    take_advisory_lock(connection, "reservations")
    try:
        type_id = vm_type_id(connection, vm_type)
    except NotFoundError as error:
        raise UnknownNameError("vm_type", "VM type", vm_type) from error
    is_open = reservations.c.state.in_(OPEN_RESERVATIONS)
    mine = reservations.c.tenant_id == owner
    for which, limit, whose in (
        ((is_open, mine), MAX_OPEN_OF_TENANT, f"tenant {tenant} has"),
        ((is_open,), MAX_OPEN_OF_ALL, "there are"),
    ):
        found = connection.scalar(select(func.count()).select_from(reservations).where(*which))
        if (found or 0) >= limit:
            raise ConflictError(
                f"{whose} {found} reservations that are not over, {limit} are allowed:"
                " cancel some (`fuga reservation cancel`), or wait until some end"
            )
    taken = select(reservations.c.id).where(is_open, mine, reservations.c.name == wanted)
    if connection.execute(taken).first() is not None:
        raise DuplicateError("reservation", "name", wanted)
    row: dict[str, Any] = {
        "id": key,
        "name": wanted,
        "tenant_id": owner,
        "vm_type_id": type_id,
        "count": count,
        "requires": list(labels),
        "keep_from": max(now, starts_at - timedelta(seconds=LEAD_S)),
        "starts_at": starts_at,
        "ends_at": starts_at + timedelta(seconds=for_s),
        "state": ReservationState.PENDING.value,
        "requested_by": actor,
        "created_at": now,
    }
    connection.execute(insert(reservations).values(**row))
    detail = {
        "name": wanted,
        "vm_type": vm_type,
        "count": count,
        "starts_at": row["starts_at"].isoformat(),
        "ends_at": row["ends_at"].isoformat(),
    }
    record_event(
        connection, now, actor, "reservation_asked", "reservation", key, tenant=tenant, data=detail
    )
    return key
