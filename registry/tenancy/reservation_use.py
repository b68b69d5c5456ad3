"""The use of reservations: the VMs that were placed, that wait, and that are left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, func, select

from registry.db.bulk import chunks, is_any_of
from registry.db.schema import requests, reservations, vm_types, vms
from registry.errors import NotFoundError, ReservationError
from registry.lifecycle import STANDING, VmDesired

#: It has room, or will have.
IS_STANDING: Final = reservations.c.state.in_([state.value for state in STANDING])


_NEVER_PLACED: Final = and_(vms.c.generation == 0, vms.c.desired != VmDesired.DELETED.value)
#: Of one reservation, VMs of requests that draw on it which never had a place yet.
_WAITING: Final = (
    select(func.count())
    .select_from(vms)
    .join(requests, requests.c.id == vms.c.request_id)
    .where(requests.c.reservation_id == reservations.c.id, _NEVER_PLACED)
    .correlate(reservations)
    .scalar_subquery()
)


def is_in_force(now: datetime) -> ColumnElement[bool]:
    """Return the condition that a reservation has begun by ``now`` and has not ended.

    Its end is what the sweep recorded: after a step ahead of the clock it comes an hour later.
    """
    return and_(IS_STANDING, reservations.c.starts_at <= now)


def count_waiting_vms(connection: Connection, keys: Collection[UUID]) -> Mapping[UUID, int]:
    """Return how many VMs that requests draw from reservations never had a place yet."""
    found: dict[UUID, int] = {}
    for some in chunks(sorted(keys)):
        query = (
            select(requests.c.reservation_id, func.count())
            .select_from(vms)
            .join(requests, requests.c.id == vms.c.request_id)
            .where(
                requests.c.reservation_id.is_not(None),
                is_any_of(connection, requests.c.reservation_id, some),
                _NEVER_PLACED,
            )
            .group_by(requests.c.reservation_id)
        )
        found.update((key, number) for key, number in connection.execute(query))
    return found


def unrequested_vms(
    connection: Connection, owners: Iterable[UUID], which: ColumnElement[bool]
) -> Mapping[UUID, Mapping[UUID, int]]:
    """Return the reserved VMs that no request draws, by owner and VM type.

    Only reservations that meet the condition ``which`` count.
    """
    rows: list[Any] = []
    for some in chunks(sorted(set(owners))):
        query = select(
            reservations.c.id,
            reservations.c.tenant_id,
            reservations.c.vm_type_id,
            reservations.c["count"],
            reservations.c.used,
        ).where(which, is_any_of(connection, reservations.c.tenant_id, some))
        rows += connection.execute(query).all()
    waits = count_waiting_vms(connection, [row.id for row in rows]) if rows else {}
    found: dict[UUID, Counter[UUID]] = {}
    for key, owner, vm_type, count, used in rows:
        left = max(0, count - used - waits.get(key, 0))
        found.setdefault(owner, Counter())[vm_type] += left
    return found


class ReservationDraws:
    """The reserved VMs left in a transaction; each request that draws reduces them."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        self._connection, self._now = connection, now
        self._taken: Counter[UUID] = Counter()

    def draw(self, key: UUID, owner: UUID, vm_type: str, count: int) -> None:
        """Deduct ``count`` VMs of a type from a reservation, or raise if that is not allowed.

        The tenant's row is locked, so no other call draws on it.

        Raises
        ------
        NotFoundError
            If there is none of that id, or it is another tenant's.
        ReservationError
            If it is not in force, of another type, or has fewer VMs left.
        """
        # One statement sees one moment: a round may place waiting VMs at any time.
        row = self._connection.execute(
            select(reservations, vm_types.c.name.label("vm_type"), _WAITING.label("waiting"))
            .join(vm_types, vm_types.c.id == reservations.c.vm_type_id)
            .where(reservations.c.id == key, reservations.c.tenant_id == owner)
        ).one_or_none()
        if row is None:
            raise NotFoundError("reservation", key)
        if row.state not in {state.value for state in STANDING}:
            raise ReservationError(row.name, "not_in_force", f"it is {row.state}")
        if self._now < row.starts_at:
            begins = f"it begins at {row.starts_at:%Y-%m-%d %H:%M:%S} UTC"
            raise ReservationError(row.name, "not_begun", begins)
        if self._now >= row.ends_at:
            ended = f"it ended at {row.ends_at:%Y-%m-%d %H:%M:%S} UTC"
            raise ReservationError(row.name, "not_in_force", ended)
        if row.vm_type != vm_type:
            message = f"it is of VM type {row.vm_type}, {vm_type} was requested"
            raise ReservationError(row.name, "another_type", message)
        left = max(0, row._mapping["count"] - row.used - row.waiting - self._taken[key])
        if count > left:
            of_it = "1 VM is" if left == 1 else f"{left} VMs are"
            message = f"{of_it} left of it, {count} requested"
            raise ReservationError(row.name, "not_enough_left", message)
        self._taken[key] += count
