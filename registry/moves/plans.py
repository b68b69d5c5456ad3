"""Plans of moves: created, decided by the control centre, approved, carried out in waves."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, Select, insert, select, update

from registry.audit.changes import PLAN
from registry.db.bulk import chunks, is_any_of
from registry.db.clock import db_now
from registry.db.engine import Database, retry_on_rollback
from registry.db.idempotency_keys import store_result
from registry.db.ids import uuid7
from registry.db.packed_json import pack_json, unpack_json
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, cursor_uuid, page_of
from registry.db.row_conversion import row_of
from registry.db.schema import hosts, moves, plan_moves, plans, slot_loop, vms
from registry.errors import (
    ConflictError,
    IllegalTransitionError,
    NotFoundError,
    PlanStepError,
    UnknownNameError,
)
from registry.lifecycle import HostAdmin, MoveState, PlanEvent, PlanState, SlotLoopState
from registry.moves.plan_changes import gain_values, refuse_moves_from, reopened_hosts
from registry.moves.room_plans import check_request_waits, count_waiting_vms
from registry.moves.running_view import view_running
from registry.moves.stored_plans import GOES_ON, get_plan, read_plan_moves, read_plans
from registry.records.liveness import Lease
from registry.records.moves import Plan, PlanKind, PlanMove, PlannedMove, RunningView
from registry.rounds.cluster_view import read_cluster
from registry.rounds.known_hosts import KnownHosts


class Plans:
    """Creates, decides, approves, carries out and lists plans of moves."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known = KnownHosts()
        self._reading = threading.Lock()

    # ---- operators ---------------------------------------------------------------

    @retry_on_rollback
    def create(
        self, kind: PlanKind, arguments: Mapping[str, Any], *, approve: bool, actor: str
    ) -> Plan:
        """Create a plan for the control centre to decide; with ``approve`` it begins at once.

        ``arguments`` depend on the kind: ``hosts`` are the names of hosts to evacuate, ``request``
        is the id of a request to make room for, others are parameters of the planner.

        Raises
        ------
        UnknownNameError
            If a named host or the request does not exist.
        ConflictError
            If no VM of the request waits, or another plan makes room for it already.
        """
        with self._database.write() as connection:
            key = create_plan(connection, kind, arguments, approve=approve, actor=actor)
            return store_result(connection, get_plan(connection, key))

    @retry_on_rollback
    def approve(self, id: UUID, *, actor: str) -> Plan:  # noqa: A002 - the contract's name
        """Approve a proposed plan, so that it is carried out.

        Raises
        ------
        PlanStepError
            If the plan is not decided, was approved, or is over.
        ConflictError
            If no VM waits any more of the request that it makes room for, or another plan
            makes room for it by now.
        """
        with self._database.write() as connection:
            row = _lock_plan(connection, id)
            if row.state == PlanState.PROPOSED.value and "request" in row.arguments:
                check_request_waits(connection, UUID(row.arguments["request"]))
            now = db_now(connection)
            _apply_plan_event(
                connection,
                row,
                PlanEvent.APPROVED,
                now=now,
                actor=actor,
                **_approval_values(actor, now),
            )
            return store_result(connection, get_plan(connection, id))

    @retry_on_rollback
    def cancel(self, id: UUID, *, actor: str, reason: str | None = None) -> Plan:  # noqa: A002
        """Cancel a plan of moves. Moves that began continue; no others begin."""
        with self._database.write() as connection:
            cancel_plan(connection, id, actor=actor, reason=reason)
            return store_result(connection, get_plan(connection, id))

    def get(self, id: UUID) -> Plan:  # noqa: A002
        """Return a plan of moves, or raise `NotFoundError`."""
        with self._database.read() as connection:
            return get_plan(connection, id)

    def list(
        self,
        *,
        kind: PlanKind | None = None,
        state: PlanState | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page[Plan]:
        """Return a page of plans of moves, the latest first."""
        query = select(plans.c.id).order_by(plans.c.id.desc()).limit(check_limit(limit) + 1)
        for column, value in ((plans.c.kind, kind), (plans.c.state, state)):
            if value is not None:
                query = query.where(column == value.value)
        if cursor is not None:
            query = query.where(plans.c.id < cursor_uuid(cursor))
        with self._database.read() as connection:
            keys = connection.scalars(query).all()
            found = read_plans(connection, plans.c.id.in_(keys))
        found.sort(key=lambda plan: plan.id, reverse=True)
        return page_of(found, limit, lambda plan: (plan.id.hex,))

    def moves(self, id: UUID) -> tuple[PlanMove, ...]:  # noqa: A002
        """Return the moves of a plan in order, with their outcomes."""
        with self._database.read() as connection:
            get_plan(connection, id)
            return read_plan_moves(connection, id)

    def inputs(self, id: UUID) -> tuple[bytes, Mapping[str, Any]]:  # noqa: A002
        """Return the inputs of a decided plan, and the document that its planner returned.

        It raises `NotFoundError` without such a plan, and `ConflictError` if it is not decided.
        """
        query = select(plans.c.inputs, plans.c.packed_plan).where(plans.c.id == id)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise NotFoundError("plan", id)
        if row.inputs is None:
            raise ConflictError("the plan is not decided")
        return row.inputs, unpack_json(row.packed_plan)

    # ---- the control centre ------------------------------------------------------

    def view_running(self, *, rest_s: float) -> RunningView:
        """Return the cluster and its running VMs, in one consistent read."""
        with self._database.read() as connection:
            return view_running(connection, rest_s=rest_s)

    def read_running(self, lease: Lease) -> RunningView:
        """Return the inputs of a round and the running VMs, in one consistent read.

        It raises the errors of `Rounds.read_cluster`.
        """
        with self._reading, self._database.read() as connection:
            cluster = read_cluster(connection, lease, self._known)
            return view_running(connection, cluster=cluster)

    def list_open(self) -> tuple[Plan, ...]:
        """Return the plans of moves to decide or carry out; () while the slot loop is paused."""
        with self._database.read() as connection:
            paused = select(slot_loop.c.id).where(slot_loop.c.state == SlotLoopState.PAUSED.value)
            if connection.execute(paused).first() is not None:
                return ()
            found = read_plans(connection, GOES_ON)
        return tuple(sorted(found, key=lambda plan: plan.id))

    @retry_on_rollback
    def propose(
        self,
        id: UUID,  # noqa: A002
        decided: Sequence[PlannedMove],
        *,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        stays: Sequence[Mapping[str, Any]],
        cut: bool,
        inputs: bytes,
        document: Mapping[str, Any],
        actor: str,
        admitted: Mapping[str, Any] | None = None,
        gain: float | None = None,
        declined: str | None = None,
    ) -> Plan:
        """Store the decided moves of a plan with all that a replay needs.

        A plan that moves nothing and keeps no room is done, as there is nothing to approve.
        A plan with automatic approval is cancelled if it is ``declined``, which is the reason.
        """
        with self._database.write() as connection:
            row = _lock_plan(connection, id)
            now = db_now(connection)
            values: dict[str, Any] = {
                "before": dict(before),
                "after": dict(after),
                "stays": _add_vm_names(connection, stays),
                "cut": cut,
                "gain": gain,
                "inputs": inputs,
                "packed_plan": pack_json(document),
            }
            if admitted is not None:
                waiting = count_waiting_vms(connection, UUID(row.arguments["request"]))
                values["admitted"] = {**admitted, "waiting": waiting}
            # First, as it refuses a plan that another control centre decided.
            _apply_plan_event(connection, row, PlanEvent.PROPOSED, now=now, actor=actor, **values)
            if decided:
                rows = [
                    row_of(plan_moves, each, plan_id=id, position=position)
                    for position, each in enumerate(decided)
                ]
                connection.execute(insert(plan_moves), rows)
            if row.approve and declined is None:
                approved = _lock_plan(connection, id)
                by = _approval_values(row.requested_by, now)
                _apply_plan_event(
                    connection, approved, PlanEvent.APPROVED, now=now, actor=row.requested_by, **by
                )
            elif declined is None and not decided and not (admitted and admitted["hosts"]):
                _apply_plan_event(
                    connection,
                    _lock_plan(connection, id),
                    PlanEvent.DONE,
                    now=now,
                    actor=actor,
                    ended_at=now,
                    reason="no useful move",
                )
            if declined is not None:
                proposed = _lock_plan(connection, id)
                _apply_plan_event(
                    connection,
                    proposed,
                    PlanEvent.CANCELLED,
                    now=now,
                    actor=row.requested_by,
                    reason=declined,
                    last_error=declined,
                    ended_at=now,
                )
            return get_plan(connection, id)

    @retry_on_rollback
    def record_failure(self, id: UUID, error: str, *, actor: str) -> None:  # noqa: A002
        """Record that a plan of moves could not be decided."""
        with self._database.write() as connection:
            row, now = _lock_plan(connection, id), db_now(connection)
            values = {"last_error": error, "ended_at": now}
            _apply_plan_event(
                connection, row, PlanEvent.FAILED, now=now, actor=actor, reason=error, **values
            )

    @retry_on_rollback
    def refuse(self, id: UUID, position: int, reason: str) -> None:  # noqa: A002
        """Record that a move of a plan was refused at its creation."""
        with self._database.write() as connection:
            connection.execute(
                update(plan_moves)
                .where(plan_moves.c.plan_id == id, plan_moves.c.position == position)
                .values(refused=reason)
            )
            if values := gain_values(connection, id, ended=False):
                connection.execute(update(plans).where(plans.c.id == id).values(**values))

    @retry_on_rollback
    def refuse_moves_from_activated(self, plan: Plan, *, actor: str) -> str | None:
        """Refuse further moves from reopened hosts; return why if no host of the plan is left.

        A plan that was made for a closed host must not empty it once it is open again.
        """
        with self._database.read() as connection:
            back = reopened_hosts(connection, plan)
        if not back:
            return None
        with self._database.write() as connection:
            reasons = {name: f"host {name} was activated by {by}" for name, by in back.items()}
            refuse_moves_from(connection, plan.id, reasons, actor=actor)
            named = set(plan.arguments.get("hosts", ()))
            return "; ".join(reasons.values()) if named and back.keys() >= named else None

    @retry_on_rollback
    def finish(self, id: UUID, *, actor: str) -> None:  # noqa: A002
        """Record that every move of a plan is over, and what the plan gained."""
        with self._database.write() as connection:
            row, now = _lock_plan(connection, id), db_now(connection)
            if row.state == PlanState.APPROVED.value:
                values = {"ended_at": now, **gain_values(connection, id, ended=True)}
                _apply_plan_event(connection, row, PlanEvent.DONE, now=now, actor=actor, **values)


def cancel_plan(
    connection: Connection,
    id: UUID,  # noqa: A002
    *,
    actor: str,
    reason: str | None = None,
) -> None:
    """Cancel a plan of moves in a caller's transaction; see `Plans.cancel`."""
    row = _lock_plan(connection, id)
    now = db_now(connection)
    values = {"ended_at": now, "last_error": reason, **gain_values(connection, id, ended=True)}
    _apply_plan_event(
        connection, row, PlanEvent.CANCELLED, now=now, actor=actor, reason=reason, **values
    )
    connection.execute(
        update(moves)
        .where(
            moves.c.id.in_(select(plan_moves.c.move_id).where(plan_moves.c.plan_id == id)),
            moves.c.state == MoveState.PENDING.value,
        )
        .values(cancelled_by=actor, sent_at=None)
    )


def create_plan(
    connection: Connection,
    kind: PlanKind,
    arguments: Mapping[str, Any],
    *,
    approve: bool,
    actor: str,
) -> UUID:
    """Create a plan of moves in a caller's transaction, and return its id; see `Plans.create`."""
    for name in arguments.get("hosts", ()):
        _check_host_exists(connection, name)
    if "request" in arguments:
        check_request_waits(connection, UUID(arguments["request"]))
    key = uuid7()
    connection.execute(
        insert(plans).values(
            id=key,
            kind=kind.value,
            state=PlanState.PENDING.value,
            arguments=dict(arguments),
            requested_by=actor,
            requested_at=db_now(connection),
            approve=approve,
        )
    )
    return key


def _add_vm_names(
    connection: Connection, stays: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the VMs that a plan does not move, with their names, as they may be deleted later."""
    names: dict[UUID, str] = {}
    for some in chunks([UUID(each["vm"]) for each in stays]):
        query = select(vms.c.id, vms.c.name).where(is_any_of(connection, vms.c.id, some))
        names |= {row.id: row.name for row in connection.execute(query)}
    return [{**each, "name": names.get(UUID(each["vm"]))} for each in stays]


def _approval_values(actor: str, now: datetime) -> dict[str, Any]:
    """Return the columns that a plan's approval sets."""
    return {"approved_by": actor, "approved_at": now}


def _check_host_exists(connection: Connection, name: str) -> None:
    """Raise `UnknownNameError` if a plan names a host that does not exist."""
    there = select(hosts.c.id).where(hosts.c.name == name, hosts.c.admin != HostAdmin.RETIRED.value)
    if connection.execute(there).first() is None:
        raise UnknownNameError("hosts", "host", name, hint="`fuga host list` lists them")


def _lock_plan(connection: Connection, key: UUID) -> Row[Any]:
    """Lock and return the row of a plan of moves, or raise `NotFoundError`."""
    columns = ("id", "state", "kind", "arguments", "approve", "requested_by", "approved_by")
    query: Select[Any] = (
        select(*(plans.c[each] for each in columns)).where(plans.c.id == key).with_for_update()
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFoundError("plan", key)
    return row


def _apply_plan_event(
    connection: Connection,
    row: Row[Any],
    event: PlanEvent,
    *,
    now: datetime,
    actor: str,
    reason: str | None = None,
    **values: Any,
) -> None:
    """Change the state of a plan and record the event, or raise `PlanStepError`."""
    try:
        step = PLAN.step(row.state, event)
    except IllegalTransitionError:
        raise PlanStepError(row.id, row.state, event, row.approved_by) from None
    connection.execute(
        update(plans).where(plans.c.id == row.id).values(state=step.after.value, **values)
    )
    step.record_event(connection, now, actor, row.id, reason=reason, data={"kind": row.kind})
