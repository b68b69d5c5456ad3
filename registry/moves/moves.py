"""Moves of VMs: requested, cancelled and listed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, or_, select, update

from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.idempotency_keys import store_result
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, cursor_uuid, ids_by_name, page_of
from registry.db.row_conversion import record_of
from registry.db.row_leases import MOVES, is_claimed
from registry.db.schema import hosts, moves, plan_moves, plans, vms
from registry.errors import ConflictError, InvalidError, NotFoundError, PlanMoveOverError
from registry.lifecycle import OPEN_MOVES, MoveEvent, MoveState, PlanState
from registry.moves.create import create_move
from registry.moves.destinations import cluster_for_move
from registry.moves.move_end import MOVE_ROWS, close_move, end_without_arrival, lock_move
from registry.moves.stored_plans import vms_following
from registry.records.cluster import ClusterView
from registry.records.moves import Move
from registry.tenancy.tree import key_query

MAX_REASON_LENGTH: Final = 200
_OPEN: Final = [state.value for state in OPEN_MOVES]


class Moves(Repository):
    """Creates, cancels and lists moves of VMs between hosts."""

    @retry_on_rollback
    def create(
        self,
        vm_id: UUID,
        host: str,
        *,
        reason: str,
        only_cold: bool = False,
        of_plan: tuple[UUID, int] | None = None,
        actor: str,
    ) -> Move:
        """Create a move of a VM to a host, which a worker carries out; see `create`.

        ``of_plan`` is the plan, and the position in it, that the move carries out;
        `PlanMoveOverError` if that plan is over or has created the move already.
        """
        if not 1 <= len(reason) <= MAX_REASON_LENGTH:
            raise InvalidError("reason", reason, f"1 to {MAX_REASON_LENGTH} characters")
        from_host: UUID | None = None
        following: Sequence[UUID] = ()
        with self._database.write() as connection:
            if of_plan is not None:
                from_host = _check_move_of_plan(connection, *of_plan)
                following = vms_following(connection, vm_id, *of_plan)
            move_id = create_move(
                connection,
                vm_id,
                host,
                reason=reason,
                only_cold=only_cold,
                from_host=from_host,
                following=following,
                now=db_now(connection),
                actor=actor,
            )
            if of_plan is not None:
                plan_id, position = of_plan
                connection.execute(
                    update(plan_moves)
                    .where(plan_moves.c.plan_id == plan_id, plan_moves.c.position == position)
                    .values(move_id=move_id)
                )
            row = connection.execute(MOVE_ROWS.where(moves.c.id == move_id)).one()
            return store_result(connection, _to_move(row))

    def cluster_for_move(self, vm_id: UUID, *, only_cold: bool = False) -> ClusterView:
        """Return the cluster with the moving VM as the only request.

        See `destinations.cluster_for_move`.

        Raises
        ------
        NotFoundError
            If there is no such VM.
        MoveRefusedError
            If the VM cannot move to any host.
        """
        with self._database.read() as connection:
            return cluster_for_move(connection, vm_id, only_cold=only_cold)

    @retry_on_rollback
    def cancel(self, move_id: UUID, *, actor: str) -> Move:
        """Cancel a move, so that the VM stays on the source; a worker ends it at its next step.

        Raises
        ------
        NotFoundError
            If there is no such move.
        ConflictError
            If the move is over.
        """
        with self._database.write() as connection:
            row = lock_move(connection, move_id)
            if row is None:
                raise NotFoundError("move", move_id)
            if row.state not in _OPEN:
                raise ConflictError(f"the move of VM {row.vm_name} is over: it is {row.state}")
            now = db_now(connection)
            if row.state == MoveState.PENDING.value and not is_claimed(row, now):
                reason = f"cancelled by {actor}"
                end_without_arrival(connection, row, reason, now=now, actor=actor)
                cancelled = {"cancelled_by": actor}
                close_move(
                    connection,
                    row,
                    MoveEvent.CANCELLED,
                    reason=reason,
                    now=now,
                    actor=actor,
                    **cancelled,
                )
            else:
                MOVES.update_row(connection, move_id, cancelled_by=actor, sent_at=None)
            row = connection.execute(MOVE_ROWS.where(moves.c.id == move_id)).one()
            return store_result(connection, _to_move(row))

    def get(self, move_id: UUID, *, tenant: str | None = None) -> Move:
        """Return a move; raise `NotFoundError` if it does not exist or is another tenant's."""
        query = MOVE_ROWS.where(moves.c.id == move_id)
        if tenant is not None:
            query = query.where(vms.c.tenant_id == key_query(tenant))
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise NotFoundError("move", move_id)
        return _to_move(row)

    def move_to_place(self, assignment_id: UUID, *, vm_id: UUID) -> Move | None:
        """Return the move that brought a VM to its present place; None if a round placed it there.

        ``assignment_id`` is the place.
        """
        query = MOVE_ROWS.where(moves.c.vm_id == vm_id, moves.c.to_id == assignment_id)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _to_move(row)

    def list(
        self,
        *,
        tenant: str | None = None,
        vm_id: UUID | None = None,
        host: str | None = None,
        state: MoveState | None = None,
        only_open: bool = False,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page[Move]:
        """Return a page of moves, the latest first; ``host`` is the source or the destination."""
        query = MOVE_ROWS.order_by(moves.c.id.desc()).limit(check_limit(limit) + 1)
        if tenant is not None:
            query = query.where(vms.c.tenant_id == key_query(tenant))
        if vm_id is not None:
            query = query.where(moves.c.vm_id == vm_id)
        if state is not None:
            query = query.where(moves.c.state == state.value)
        if only_open:
            query = query.where(moves.c.state.in_(_OPEN))
        if cursor is not None:
            query = query.where(moves.c.id < cursor_uuid(cursor))
        with self._database.read() as connection:
            if host is not None:
                ids = ids_by_name(connection, "host", hosts, host)
                query = query.where(or_(moves.c.from_host_id.in_(ids), moves.c.to_host_id.in_(ids)))
            rows = connection.execute(query).all()
        return page_of([_to_move(row) for row in rows], limit, lambda each: (each.id.hex,))


def _check_move_of_plan(connection: Connection, plan_id: UUID, position: int) -> UUID:
    """Lock a plan, check that it still needs one of its moves, and return the move's source.

    The executor read the plan earlier: it may have been cancelled since, or another control
    centre may lead now and carry it out.
    """
    plan = select(plans.c.state).where(plans.c.id == plan_id).with_for_update()
    state = connection.scalars(plan).one_or_none()
    move = select(plan_moves.c.from_host_id).where(
        plan_moves.c.plan_id == plan_id,
        plan_moves.c.position == position,
        plan_moves.c.move_id.is_(None),
        plan_moves.c.refused.is_(None),
    )
    found: UUID | None = connection.scalars(move).one_or_none()
    if state != PlanState.APPROVED.value or found is None:
        raise PlanMoveOverError(plan_id, position)
    return found


def _to_move(row: Row[Any]) -> Move:
    """Return the record of a VM's move from its row."""
    return record_of(Move, row)
