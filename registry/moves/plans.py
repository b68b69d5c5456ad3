"""Plans of moves: asked for, decided by the control centre, approved, carried out in waves."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, Select, case, func, insert, select, update

from registry.errors import ConflictError, NotFoundError, UnknownNameError
from registry.ground.clock import db_now
from registry.ground.engine import Database, retried
from registry.ground.ids import uuid7
from registry.ground.packing import pack, unpack
from registry.ground.pages import DEFAULT_LIMIT, Page, check_limit, cursor_uuid, page_of
from registry.ground.schema import (
    hosts,
    moves,
    plan_moves,
    plans,
    requests,
    slot_loop,
    tenants,
    vms,
)
from registry.journal.changes import PLAN
from registry.ledger.placeable import count_waiting
from registry.lifecycle import (
    OPEN_MOVES,
    HostAdmin,
    MoveState,
    PlanEvent,
    PlanState,
    RequestState,
    SlotLoopState,
)
from registry.moves.running import view_running
from registry.records.moves import Plan, PlanKind, PlanMove, PlannedMove, RunningView
from registry.records.rounds import Lease
from registry.rounds.cluster import read_cluster
from registry.rounds.known_hosts import KnownHosts

_OPEN: Final = [state.value for state in OPEN_MOVES]
_FROM, _TO = hosts.alias("from_host"), hosts.alias("to_host")
_GOES_ON: Final = plans.c.state.in_([PlanState.ASKED.value, PlanState.APPROVED.value])
_OPEN_REQUESTS: Final = (RequestState.PENDING.value, RequestState.PARTLY_PLACED.value)
#: Why requests wait that moves might let in.
_FOR_ROOM: Final = ("no_room", "gang_not_whole", "held_back")
#: VMs that one request may ask for.
_MOST_VMS: Final = 10_000
#: Over: its move is, or it was refused.
_IS_OVER: Final = plan_moves.c.refused.is_not(None) | (
    moves.c.state.is_not(None) & moves.c.state.not_in(_OPEN)
)
_HAS_FAILED: Final = plan_moves.c.refused.is_not(None) | moves.c.state.in_(
    [MoveState.FAILED.value, MoveState.CANCELLED.value]
)


class Plans:
    """What operators and the control centre do with plans."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known = KnownHosts()
        self._reading = threading.Lock()

    # ---- operators ---------------------------------------------------------------

    @retried
    def ask(
        self, kind: PlanKind, arguments: Mapping[str, Any], *, approve: bool, actor: str
    ) -> Plan:
        """Have the control centre decide a plan; with ``approve`` it is carried out at once.

        ``arguments`` are the plan's own: ``hosts``, names of those to evacuate; ``request``,
        the id of one to let in; parameters of its planner by name.

        Raises
        ------
        UnknownNameError
            If a host that is named is not there, or the request.
        ConflictError
            If no VM of the request waits, or another plan makes room for it already.
        """
        with self._database.write() as connection:
            return get_plan(
                connection, ask(connection, kind, arguments, approve=approve, actor=actor)
            )

    @retried
    def approve(self, id: UUID, *, actor: str) -> Plan:  # noqa: A002 - the contract's name
        """Have a plan carried out that was proposed."""
        with self._database.write() as connection:
            row = _locked(connection, id)
            now = db_now(connection)
            _step(
                connection, row, PlanEvent.APPROVED, now=now, actor=actor, **_approved(actor, now)
            )
            return get_plan(connection, id)

    @retried
    def cancel(self, id: UUID, *, actor: str, reason: str | None = None) -> Plan:  # noqa: A002
        """End a plan. Moves that began go on; no others begin."""
        with self._database.write() as connection:
            row = _locked(connection, id)
            now = db_now(connection)
            told = {"ended_at": now, "last_error": reason}
            _step(connection, row, PlanEvent.CANCELLED, now=now, actor=actor, reason=reason, **told)
            connection.execute(
                update(moves)
                .where(
                    moves.c.id.in_(select(plan_moves.c.move_id).where(plan_moves.c.plan_id == id)),
                    moves.c.state == MoveState.ASKED.value,
                )
                .values(cancelled_by=actor, sent_at=None)
            )
            return get_plan(connection, id)

    def get(self, id: UUID) -> Plan:  # noqa: A002
        """Return a plan, or raise `NotFoundError`."""
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
        """Return a page, the latest first."""
        query = select(plans.c.id).order_by(plans.c.id.desc()).limit(check_limit(limit) + 1)
        for column, value in ((plans.c.kind, kind), (plans.c.state, state)):
            if value is not None:
                query = query.where(column == value.value)
        if cursor is not None:
            query = query.where(plans.c.id < cursor_uuid(cursor))
        with self._database.read() as connection:
            keys = connection.scalars(query).all()
            found = _read(connection, plans.c.id.in_(keys))
        found.sort(key=lambda plan: plan.id, reverse=True)
        return page_of(found, limit, lambda plan: (plan.id.hex,))

    def moves(self, id: UUID) -> tuple[PlanMove, ...]:  # noqa: A002
        """Return the moves of a plan in their order, and what became of each."""
        with self._database.read() as connection:
            get_plan(connection, id)
            return tuple(PlanMove(**row._mapping) for row in connection.execute(_moves_of(id)))

    def inputs(self, id: UUID) -> tuple[bytes, Mapping[str, Any]]:  # noqa: A002
        """Return what a plan was decided on, and the plan as its planner gave it.

        `NotFoundError` where there is no such plan, `ConflictError` where it is not decided.
        """
        query = select(plans.c.inputs, plans.c.packed_plan).where(plans.c.id == id)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise NotFoundError("plan", id)
        if row.inputs is None:
            raise ConflictError("the plan is not decided")
        return row.inputs, unpack(row.packed_plan)

    # ---- the control centre ------------------------------------------------------

    def view_running(self, *, rest_s: float) -> RunningView:
        """Return the cluster and what runs on it, in one consistent read."""
        with self._database.read() as connection:
            return view_running(connection, rest_s=rest_s)

    def read_running(self, lease: Lease) -> RunningView:
        """Return what a round decides on and what runs, in one consistent read.

        `StaleEpochError` and `SlotLoopPausedError` as for `Rounds.read_cluster`.
        """
        with self._reading, self._database.read() as connection:
            cluster = read_cluster(connection, lease, self._known)
            return view_running(connection, cluster=cluster)

    def open(self) -> tuple[Plan, ...]:
        """Return what is to be decided or carried out; nothing while the slot loop is paused."""
        with self._database.read() as connection:
            paused = select(slot_loop.c.id).where(slot_loop.c.state == SlotLoopState.PAUSED.value)
            if connection.execute(paused).first() is not None:
                return ()
            found = _read(connection, _GOES_ON)
        return tuple(sorted(found, key=lambda plan: plan.id))

    @retried
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
        let_in: Mapping[str, Any] | None = None,
        gain: float | None = None,
        declined: str | None = None,
    ) -> Plan:
        """Write what was decided, with all that a replay needs.

        One that is approved as soon as it is decided is cancelled if it is ``declined``, with why.
        """
        with self._database.write() as connection:
            row = _locked(connection, id)
            now = db_now(connection)
            values: dict[str, Any] = {
                "before": dict(before),
                "after": dict(after),
                "stays": [dict(each) for each in stays],
                "cut": cut,
                "gain": gain,
                "inputs": inputs,
                "packed_plan": pack(document),
            }
            if let_in is not None:
                waiting = _waiting(connection, UUID(row.arguments["request"]))
                values["let_in"] = {**let_in, "waiting": waiting}
            if decided:
                rows = [
                    {
                        "plan_id": id,
                        "position": position,
                        "wave": each.wave,
                        "vm_id": each.vm_id,
                        "from_host_id": each.from_host_id,
                        "to_host_id": each.to_host_id,
                        "why": each.why,
                        "carried_mib": each.carried_mib,
                    }
                    for position, each in enumerate(decided)
                ]
                connection.execute(insert(plan_moves), rows)
            _step(connection, row, PlanEvent.PROPOSED, now=now, actor=actor, **values)
            if row.approve and declined is None:
                approved = _locked(connection, id)
                by = _approved(row.asked_by, now)
                _step(connection, approved, PlanEvent.APPROVED, now=now, actor=row.asked_by, **by)
            if declined is not None:
                proposed = _locked(connection, id)
                _step(
                    connection,
                    proposed,
                    PlanEvent.CANCELLED,
                    now=now,
                    actor=row.asked_by,
                    reason=declined,
                    last_error=declined,
                    ended_at=now,
                )
            return get_plan(connection, id)

    @retried
    def fail(self, id: UUID, error: str, *, actor: str) -> None:  # noqa: A002
        """Write that a plan could not be decided."""
        with self._database.write() as connection:
            row, now = _locked(connection, id), db_now(connection)
            told = {"last_error": error, "ended_at": now}
            _step(connection, row, PlanEvent.FAILED, now=now, actor=actor, reason=error, **told)

    def next_wave(self, id: UUID) -> tuple[PlanMove, ...] | None:  # noqa: A002
        """Return the moves of the first wave that is not over; None: all are.

        A wave begins when the one before it is over: it may need the room that this frees.
        """
        with self._database.read() as connection:
            rows = connection.execute(_moves_of(id)).all()
        found = [PlanMove(**row._mapping) for row in rows]
        going = [each for each in found if not _over(each)]
        if not going:
            return None
        wave = min(each.wave for each in going)
        return tuple(each for each in going if each.wave == wave)

    @retried
    def refuse(self, id: UUID, position: int, reason: str) -> None:  # noqa: A002
        """Write that a move of a plan was refused when it was asked for."""
        with self._database.write() as connection:
            connection.execute(
                update(plan_moves)
                .where(plan_moves.c.plan_id == id, plan_moves.c.position == position)
                .values(refused=reason)
            )

    def making_room(self) -> int:
        """Return how many plans that make room are asked for or carried out."""
        with self._database.read() as connection:
            return connection.execute(
                select(func.count()).where(plans.c.kind == PlanKind.ROOM.value, _GOES_ON)
            ).scalar_one()

    def lacking_room(self, *, rounds: int, rest_s: float) -> frozenset[UUID]:
        """Return requests that lacked room in so many rounds, at least.

        Without those for which a plan was to make room within the last ``rest_s``.
        """
        waits = select(requests.c.id).where(
            requests.c.state.in_(_OPEN_REQUESTS),
            requests.c.rounds_waited >= rounds,
            requests.c.waiting["reason"].as_string().in_(_FOR_ROOM),
        )
        with self._database.read() as connection:
            since = db_now(connection) - timedelta(seconds=rest_s)
            lately = select(plans.c.arguments).where(
                plans.c.kind == PlanKind.ROOM.value, plans.c.asked_at > since
            )
            tried = {UUID(each["request"]) for each in connection.scalars(lately)}
            return frozenset(connection.scalars(waits)) - tried

    def keeps_room(self, id: UUID, *, for_s: float) -> bool:  # noqa: A002
        """Return whether what a plan freed is to be kept for its request still.

        It is until VMs of the request were placed, as many as are let in; no longer than
        ``for_s`` since the last of its moves; and not if one of them failed.
        """
        with self._database.read() as connection:
            plan = get_plan(connection, id)
            if plan.let_in is None or plan.failed or plan.approved_at is None:
                return False
            waits = _waiting(connection, UUID(plan.arguments["request"]))
            let_in = sum(each["count"] for each in plan.let_in["hosts"])
            last = connection.scalar(
                select(func.max(moves.c.ended_at))
                .join(plan_moves, plan_moves.c.move_id == moves.c.id)
                .where(plan_moves.c.plan_id == id)
            )
            since = plan.approved_at if last is None else max(last, plan.approved_at)
            late = (db_now(connection) - since).total_seconds() > for_s
            return not late and waits > plan.let_in["waiting"] - let_in

    @retried
    def finish(self, id: UUID, *, actor: str) -> None:  # noqa: A002
        """Write that every move of a plan is over."""
        with self._database.write() as connection:
            row, now = _locked(connection, id), db_now(connection)
            if row.state == PlanState.APPROVED.value:
                _step(connection, row, PlanEvent.DONE, now=now, actor=actor, ended_at=now)


def ask(
    connection: Connection,
    kind: PlanKind,
    arguments: Mapping[str, Any],
    *,
    approve: bool,
    actor: str,
) -> UUID:
    """Ask for a plan in a caller's transaction, and return its id; see `Plans.ask`."""
    for name in arguments.get("hosts", ()):
        _check_host(connection, name)
    if "request" in arguments:
        _check_waits(connection, UUID(arguments["request"]))
    key = uuid7()
    connection.execute(
        insert(plans).values(
            id=key,
            kind=kind.value,
            state=PlanState.ASKED.value,
            arguments=dict(arguments),
            asked_by=actor,
            asked_at=db_now(connection),
            approve=approve,
        )
    )
    return key


def _over(move: PlanMove) -> bool:
    return move.refused is not None or (move.state is not None and move.state not in OPEN_MOVES)


def _approved(actor: str, now: datetime) -> dict[str, Any]:
    return {"approved_by": actor, "approved_at": now}


def _check_host(connection: Connection, name: str) -> None:
    there = select(hosts.c.id).where(hosts.c.name == name, hosts.c.admin != HostAdmin.RETIRED.value)
    if connection.execute(there).first() is None:
        raise UnknownNameError("hosts", "host", name, hint="`fuga host list` lists them")


def _waiting(connection: Connection, request: UUID) -> int:
    return count_waiting(connection, {request: _MOST_VMS}).get(request, 0)


def _check_waits(connection: Connection, request: UUID) -> None:
    if not _waiting(connection, request):
        if connection.execute(select(requests.c.id).where(requests.c.id == request)).first():
            raise ConflictError(f"no VM of request {request} waits for a place")
        raise UnknownNameError("request", "request", request, hint="`fuga requests` lists them")
    going_on = select(plans.c.id, plans.c.arguments).where(
        plans.c.kind == PlanKind.ROOM.value, _GOES_ON
    )
    for row in connection.execute(going_on):
        if row.arguments["request"] == str(request):
            raise ConflictError(
                f"plan {row.id} makes room for this request already; `fuga plan cancel` ends it"
            )


def _locked(connection: Connection, key: UUID) -> Row[Any]:
    columns = ("id", "state", "kind", "arguments", "approve", "asked_by")
    query: Select[Any] = (
        select(*(plans.c[each] for each in columns)).where(plans.c.id == key).with_for_update()
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFoundError("plan", key)
    return row


def _step(
    connection: Connection,
    row: Row[Any],
    event: PlanEvent,
    *,
    now: datetime,
    actor: str,
    reason: str | None = None,
    **values: Any,
) -> None:
    step = PLAN.step(row.state, event)
    connection.execute(
        update(plans).where(plans.c.id == row.id).values(state=step.after.value, **values)
    )
    step.note(connection, now, actor, row.id, reason=reason, data={"kind": row.kind})


def _moves_of(key: UUID) -> Any:
    return (
        select(
            plan_moves.c.position,
            plan_moves.c.wave,
            plan_moves.c.vm_id,
            vms.c.name.label("vm_name"),
            tenants.c.name.label("tenant"),
            _FROM.c.name.label("from_host"),
            _TO.c.name.label("to_host"),
            plan_moves.c.why,
            plan_moves.c.carried_mib,
            plan_moves.c.move_id,
            moves.c.state,
            plan_moves.c.refused,
        )
        .select_from(plan_moves)
        .join(vms, vms.c.id == plan_moves.c.vm_id)
        .join(tenants, tenants.c.id == vms.c.tenant_id)
        .join(_FROM, _FROM.c.id == plan_moves.c.from_host_id)
        .join(_TO, _TO.c.id == plan_moves.c.to_host_id)
        .outerjoin(moves, moves.c.id == plan_moves.c.move_id)
        .where(plan_moves.c.plan_id == key)
        .order_by(plan_moves.c.position)
    )


def get_plan(connection: Connection, key: UUID) -> Plan:
    """Return a plan in a caller's transaction, or raise `NotFoundError`."""
    found = _read(connection, plans.c.id == key)
    if not found:
        raise NotFoundError("plan", key)
    return found[0]


def _read(connection: Connection, which: ColumnElement[bool]) -> list[Plan]:
    counted = (
        select(
            plan_moves.c.plan_id,
            func.count().label("moves"),
            (func.max(plan_moves.c.wave) + 1).label("waves"),
            func.sum(case((_IS_OVER, 1), else_=0)).label("ended"),
            func.sum(case((_HAS_FAILED, 1), else_=0)).label("failed"),
            func.sum(plan_moves.c.carried_mib).label("carried_mib"),
        )
        .outerjoin(moves, moves.c.id == plan_moves.c.move_id)
        .join(plans, plans.c.id == plan_moves.c.plan_id)
        .where(which)
        .group_by(plan_moves.c.plan_id)
    )
    tallies = {row.plan_id: row for row in connection.execute(counted)}
    columns = [column for column in plans.c if column.key not in {"inputs", "packed_plan"}]
    return [
        _to_plan(row, tallies.get(row.id))
        for row in connection.execute(select(*columns).where(which))
    ]


def _to_plan(row: Row[Any], tally: Row[Any] | None) -> Plan:
    return Plan(
        id=row.id,
        kind=PlanKind(row.kind),
        state=PlanState(row.state),
        arguments=row.arguments,
        asked_by=row.asked_by,
        asked_at=row.asked_at,
        approved_by=row.approved_by,
        approved_at=row.approved_at,
        ended_at=row.ended_at,
        before=row.before,
        after=row.after,
        stays=tuple(row.stays),
        let_in=row.let_in,
        moves=tally.moves if tally else 0,
        waves=tally.waves if tally else 0,
        ended=int(tally.ended) if tally else 0,
        failed=int(tally.failed) if tally else 0,
        moved_gib=float(tally.carried_mib) / 1024 if tally else 0.0,
        cut=row.cut,
        gain=row.gain,
        last_error=row.last_error,
    )
