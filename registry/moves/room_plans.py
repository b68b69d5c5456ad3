"""Room for requests that wait: which lack it, which plans make it, how long it is kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, func, select

from registry.db.clock import db_now
from registry.db.engine import Database
from registry.db.ids import CLOCKS_APART, first_at
from registry.db.locks import take_turns
from registry.db.schema import moves, plan_moves, plans, requests
from registry.errors import ConflictError, UnknownNameError
from registry.ledger.placeable import count_waiting
from registry.ledger.waiting_status import SLOTS_WAITED
from registry.lifecycle import OPEN_REQUESTS
from registry.moves.stored_plans import GOES_ON, get_plan
from registry.records.moves import PlanKind

#: Why requests wait that moves might let in.
_FOR_ROOM: Final = ("no_room", "gang_not_whole", "held_back")
#: VMs that one request may ask for.
_MOST_VMS: Final = 10_000


class RoomPlans:
    """What the control centre asks of plans that make room for a request."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def count_open(self) -> int:
        """Return how many plans that make room are pending or carried out."""
        with self._database.read() as connection:
            return connection.execute(
                select(func.count()).where(plans.c.kind == PlanKind.ROOM.value, GOES_ON)
            ).scalar_one()

    def requests_lacking_room(self, *, rounds: int, rest_s: float) -> frozenset[UUID]:
        """Return requests that lacked room in so many rounds, at least.

        Without those for which a plan was to make room within the last ``rest_s``.
        """
        waits = select(requests.c.id).where(
            requests.c.state.in_(OPEN_REQUESTS),
            rounds <= SLOTS_WAITED,
            requests.c.waiting["reason"].as_string().in_(_FOR_ROOM),
        )
        with self._database.read() as connection:
            since = db_now(connection) - timedelta(seconds=rest_s)
            lately = select(plans.c.arguments).where(
                plans.c.id > first_at(since - CLOCKS_APART),  # by the key: there are years of them
                plans.c.kind == PlanKind.ROOM.value,
                plans.c.requested_at > since,
            )
            tried = {UUID(each["request"]) for each in connection.scalars(lately)}
            return frozenset(connection.scalars(waits)) - tried

    def is_waiting(self, request: UUID) -> bool:
        """Return whether a VM of a request waits for a place."""
        with self._database.read() as connection:
            return count_waiting_vms(connection, request) > 0

    def keeps_room(self, id: UUID, *, for_s: float) -> bool:  # noqa: A002
        """Return whether what a plan freed is to be kept for its request still.

        It is until VMs of the request were placed, as many as are let in; no longer than
        ``for_s`` since the last of its moves; and not if one of them failed.
        """
        with self._database.read() as connection:
            plan = get_plan(connection, id)
            if plan.admitted is None or plan.failed or plan.approved_at is None:
                return False
            waits = count_waiting_vms(connection, UUID(plan.arguments["request"]))
            admitted = sum(each["count"] for each in plan.admitted["hosts"])
            last = connection.scalar(
                select(func.max(moves.c.ended_at))
                .join(plan_moves, plan_moves.c.move_id == moves.c.id)
                .where(plan_moves.c.plan_id == id)
            )
            since = plan.approved_at if last is None else max(last, plan.approved_at)
            late = (db_now(connection) - since).total_seconds() > for_s
            return not late and waits > plan.admitted["waiting"] - admitted


def count_waiting_vms(connection: Connection, request: UUID) -> int:
    """Return how many VMs of a request wait for a place."""
    return count_waiting(connection, {request: _MOST_VMS}).get(request, 0)


def check_waits(connection: Connection, request: UUID) -> None:
    """Refuse a plan for a request of which nothing waits, or for which another makes room.

    The lock lasts until the transaction ends, so two callers cannot both see that there is none.

    Raises
    ------
    UnknownNameError
        If there is no such request.
    ConflictError
        If no VM of it waits, or a plan makes room for it already.
    """
    take_turns(connection, f"room for {request}")
    if not count_waiting_vms(connection, request):
        if connection.execute(select(requests.c.id).where(requests.c.id == request)).first():
            raise ConflictError(f"no VM of request {request} waits for a place")
        raise UnknownNameError("request", "request", request, hint="`fuga requests` lists them")
    going_on = select(plans.c.id, plans.c.arguments).where(
        plans.c.kind == PlanKind.ROOM.value, GOES_ON
    )
    for row in connection.execute(going_on):
        if row.arguments["request"] == str(request):
            raise ConflictError(
                f"plan {row.id} makes room for this request already; `fuga plan cancel` ends it"
            )
