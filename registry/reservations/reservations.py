"""Reservations as tenants, operators and the control centre read and write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, and_, delete, func, not_, or_, select, update

from registry.audit.changes import RESERVATION
from registry.db.bulk import is_any_of
from registry.db.clock import db_now, earlier_time
from registry.db.engine import Repository, retry_on_rollback
from registry.db.idempotency_keys import store_result
from registry.db.names import lookup_name
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, cursor_uuid, page_of
from registry.db.row_conversion import record_of
from registry.db.schema import reservation_holds, reservations, tenants, vm_types
from registry.errors import ConflictError, IllegalTransitionError, NotFoundError
from registry.lifecycle import OPEN_RESERVATIONS, STANDING, ReservationEvent, ReservationState
from registry.records.liveness import Lease
from registry.records.reservations import Reservation, ReservationDecision
from registry.reservations.create import create_reservation
from registry.rounds.leases import check_epoch
from registry.tenancy.quota_use import exceeded_quotas
from registry.tenancy.reservation_use import IS_STANDING, count_waiting_vms
from registry.tenancy.tree import key_query, lock_requesting_tenant

_SELECT = (
    select(reservations, tenants.c.name.label("tenant"), vm_types.c.name.label("vm_type"))
    .select_from(reservations)
    .join(tenants, tenants.c.id == reservations.c.tenant_id)
    .join(vm_types, vm_types.c.id == reservations.c.vm_type_id)
)


class Reservations(Repository):
    """Makes, reads, decides and ends reservations."""

    @retry_on_rollback
    def create(
        self,
        *,
        tenant: str,
        vm_type: str,
        count: int,
        starts_at: datetime,
        for_s: int,
        actor: str,
        name: str | None = None,
        requires: Sequence[str] = (),
    ) -> Reservation:
        """Request a reservation of room from a time on, which the control centre decides.

        Raises
        ------
        ConflictError
            If there are too many open reservations.
        """
        with self._database.write() as connection:
            key = create_reservation(
                connection,
                db_now(connection),
                tenant=tenant,
                vm_type=vm_type,
                count=count,
                starts_at=starts_at,
                for_s=for_s,
                name=name,
                requires=requires,
                actor=actor,
            )
            return store_result(connection, _get_reservation(connection, key))

    def get(self, id: UUID) -> Reservation:  # noqa: A002 - the contract's name
        """Return a reservation, or raise `NotFoundError`."""
        with self._database.read() as connection:
            return _get_reservation(connection, id)

    def tenant_of(self, id: UUID) -> str | None:  # noqa: A002
        """Return a reservation's tenant, or None if the reservation does not exist."""
        query = select(tenants.c.name).join(reservations, reservations.c.tenant_id == tenants.c.id)
        with self._database.read() as connection:
            return connection.execute(query.where(reservations.c.id == id)).scalar_one_or_none()

    def list(
        self,
        *,
        tenant: str | None = None,
        state: ReservationState | None = None,
        is_open: bool | None = None,
        name: str | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page[Reservation]:
        """Return a page of reservations, by creation; ``is_open`` selects open or finished ones."""
        query = _SELECT.order_by(reservations.c.id).limit(check_limit(limit) + 1)
        if tenant is not None:
            query = query.where(reservations.c.tenant_id == key_query(tenant))
        if state is not None:
            query = query.where(reservations.c.state == state.value)
        if is_open is not None:
            over = reservations.c.state.not_in(OPEN_RESERVATIONS)
            query = query.where(not_(over) if is_open else over)
        if name is not None:
            query = query.where(reservations.c.name == lookup_name("reservation", name))
        if cursor is not None:
            query = query.where(reservations.c.id > cursor_uuid(cursor))
        with self._database.read() as connection:
            found = _to_reservations(connection, connection.execute(query).all())
        return page_of(found, limit, lambda each: (each.id.hex,))

    @retry_on_rollback
    def cancel(self, id: UUID, *, actor: str) -> Reservation:  # noqa: A002
        """Cancel a reservation. Its room is free from the next round on; its VMs stay."""
        with self._database.write() as connection:
            row = _lock_reservation(connection, id)
            now = db_now(connection)
            _apply_reservation_event(
                connection, row, ReservationEvent.CANCELLED, now=now, actor=actor
            )
            return _get_reservation(connection, id)

    # ---- the control centre --------------------------------------------------------

    def list_pending(self, limit: int = 8) -> Sequence[Reservation]:
        """Return pending reservations: the oldest of each tenant, then the next of each.

        The decision on each takes seconds on a large cluster. This order keeps many reservations
        of one tenant from delaying others.
        """
        is_pending = reservations.c.state == ReservationState.PENDING.value
        turn = func.row_number().over(
            partition_by=reservations.c.tenant_id, order_by=reservations.c.id
        )
        turns = select(reservations.c.id, turn.label("turn")).where(is_pending).subquery()
        query = (
            _SELECT.join(turns, turns.c.id == reservations.c.id)
            .order_by(turns.c.turn, reservations.c.id)
            .limit(limit)
        )
        with self._database.read() as connection:
            return _to_reservations(connection, connection.execute(query).all())

    def list_accepted(self) -> Sequence[Reservation]:
        """Return the accepted reservations that are not over, by beginning."""
        query = _SELECT.where(IS_STANDING).order_by(reservations.c.starts_at, reservations.c.id)
        with self._database.read() as connection:
            return _to_reservations(connection, connection.execute(query).all())

    @retry_on_rollback
    def decide(
        self,
        id: UUID,  # noqa: A002
        decision: ReservationDecision,
        lease: Lease,
        *,
        actor: str,
    ) -> Reservation:
        """Record the decision on a reservation, after a check of quotas under their locks.

        A reservation that was cancelled or decided in between stays as it is.
        """
        with self._database.write() as connection:
            check_epoch(connection, lease.name, lease.holder, lease.epoch)
            found = _get_reservation(connection, id)
            if found.state is not ReservationState.PENDING:
                return found
            owner = lock_requesting_tenant(connection, found.tenant)
            row = _lock_reservation(connection, id)
            now = db_now(connection)
            if row.state != ReservationState.PENDING.value:
                return _get_reservation(connection, id)
            if decision.reason is None:
                decision = _decision_within_quotas(connection, row, owner, found.tenant, decision)
            if found.ends_at <= now:
                decision = ReservationDecision(
                    reason="too_late", message="its time was over before it was decided"
                )
            event = ReservationEvent.REFUSED if decision.reason else ReservationEvent.ACCEPTED
            values = {"decision": asdict(decision), "decided_at": now}
            _apply_reservation_event(
                connection, row, event, now=now, actor=actor, reason=decision.message, **values
            )
            return _get_reservation(connection, id)

    @retry_on_rollback
    def begin_and_end_due(
        self, *, by: datetime | None = None, actor: str = "control", at_once: int = 100
    ) -> Sequence[UUID]:
        """Begin and end reservations whose time has come by the database's clock; return them.

        They end by the time ``by`` if that is earlier. A begin does not wait for it: rounds keep
        room from ``keep_from`` on, by the database's clock, and its tenant is to draw on it.
        """
        with self._database.read() as connection:
            now = db_now(connection)
            found = _find_due_reservations(connection, now, earlier_time(now, by), at_once)
        if not found:
            return ()
        with self._database.write() as connection:
            done = []
            for key in found:
                row, now = _lock_reservation(connection, key), db_now(connection)
                event = _due_reservation_event(row, now, earlier_time(now, by))
                if event is not None:
                    _apply_reservation_event(connection, row, event, now=now, actor=actor)
                    done.append(key)
            return tuple(done)


def _decision_within_quotas(
    connection: Connection, row: Row[Any], owner: UUID, tenant: str, decision: ReservationDecision
) -> ReservationDecision:
    """Return the decision on a reservation, or a refusal if it would exceed a quota."""
    overlap = and_(
        IS_STANDING, reservations.c.starts_at < row.ends_at, reservations.c.ends_at > row.starts_at
    )
    count = row._mapping["count"]
    over, fits = exceeded_quotas(connection, owner, row.vm_type_id, count, overlap)
    if not over:
        return decision
    return ReservationDecision(
        reason="quota",
        fits=fits,
        message="; ".join(
            f"the quota of {each.tenant} is {each.limit} {each.resource}, {each.used} in use or"
            f" reserved and {each.requested} requested"
            for each in over
        )
        + _fit_text(fits),
    )


def _fit_text(fits: int) -> str:
    """Return text with the number of a reservation's VMs that would fit into the quota, or ""."""
    return f"; {fits} VMs would fit" if fits else ""


def _find_due_reservations(
    connection: Connection, now: datetime, end_by: datetime, at_once: int
) -> Sequence[UUID]:
    """Return accepted reservations that are to begin now, or to end by ``end_by``."""
    begins = and_(
        reservations.c.state == ReservationState.ACCEPTED.value, reservations.c.starts_at <= now
    )
    query = (
        select(reservations.c.id)
        .where(or_(begins, and_(IS_STANDING, reservations.c.ends_at <= end_by)))
        .order_by(reservations.c.id)
        .limit(at_once)
    )
    return connection.scalars(query).all()


def _due_reservation_event(
    row: Row[Any], now: datetime, end_by: datetime
) -> ReservationEvent | None:
    """Return whether a reservation is to begin or to end now, as an event, or None."""
    if row.state not in {state.value for state in STANDING}:
        return None
    if row.ends_at <= end_by:
        return ReservationEvent.ENDED
    if row.state == ReservationState.ACCEPTED.value and row.starts_at <= now:
        return ReservationEvent.BEGAN
    return None


def _lock_reservation(connection: Connection, key: UUID) -> Row[Any]:
    """Lock and return the row of a reservation, or raise `NotFoundError`."""
    row = connection.execute(
        _SELECT.where(reservations.c.id == key).with_for_update(of=reservations)
    ).one_or_none()
    if row is None:
        raise NotFoundError("reservation", key)
    return row


def _apply_reservation_event(
    connection: Connection,
    row: Row[Any],
    event: ReservationEvent,
    *,
    now: datetime,
    actor: str,
    reason: str | None = None,
    **values: Any,
) -> None:
    """Change the state of a reservation and record the event; a closed one keeps no room."""
    try:
        step = RESERVATION.step(row.state, event)
    except IllegalTransitionError:
        raise ConflictError(f"reservation {row.name} is {row.state}, and over") from None
    if step.after not in OPEN_RESERVATIONS:
        connection.execute(
            delete(reservation_holds).where(reservation_holds.c.reservation_id == row.id)
        )
        values["short"] = 0
    connection.execute(
        update(reservations)
        .where(reservations.c.id == row.id)
        .values(state=step.after.value, **values)
    )
    detail = {"name": row.name, "count": row._mapping["count"], "used": row.used}
    step.record_event(connection, now, actor, row.id, tenant=row.tenant, reason=reason, data=detail)


def _get_reservation(connection: Connection, key: UUID) -> Reservation:
    """Return a reservation, or raise `NotFoundError`."""
    rows = connection.execute(_SELECT.where(reservations.c.id == key)).all()
    if not rows:
        raise NotFoundError("reservation", key)
    return _to_reservations(connection, rows)[0]


def _to_reservations(connection: Connection, rows: Sequence[Row[Any]]) -> tuple[Reservation, ...]:
    """Return the records of reservations from their rows, with waiting VMs and kept room."""
    keys = [row.id for row in rows]
    waits = count_waiting_vms(connection, keys) if keys else {}
    kept = {}
    if keys:
        query = (
            select(reservation_holds.c.reservation_id, func.sum(reservation_holds.c["count"]))
            .where(is_any_of(connection, reservation_holds.c.reservation_id, keys))
            .group_by(reservation_holds.c.reservation_id)
        )
        kept = {key: int(number) for key, number in connection.execute(query)}
    return tuple(_to_reservation(row, waits.get(row.id, 0), kept.get(row.id, 0)) for row in rows)


def _to_reservation(row: Row[Any], waiting: int, held: int) -> Reservation:
    """Return the record of a reservation from its row and its counts."""
    count = row._mapping["count"]
    open_to_draw = row.state in OPEN_RESERVATIONS
    return record_of(
        Reservation,
        row,
        waiting=waiting,
        left=max(0, count - row.used - waiting) if open_to_draw else 0,
        held=held,
        holds_from=row.keep_from,
        missing=row.short,
        decision=None if row.decision is None else ReservationDecision(**row.decision),
    )
