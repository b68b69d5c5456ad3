"""Plans that make room for waiting requests: which requests need them, how long room is kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, func, select

from registry.db.clock import db_now
from registry.db.engine import Repository
from registry.db.ids import CLOCKS_APART, lowest_uuid7
from registry.db.locks import take_advisory_lock
from registry.db.schema import moves, plan_moves, plans, requests
from registry.errors import ConflictError, UnknownNameError
from registry.ledger.placeable import count_waiting
from registry.lifecycle import OPEN_REQUESTS
from registry.moves.stored_plans import GOES_ON, get_plan
from registry.records.moves import PlanKind
from registry.requests.waiting_status import SLOTS_WAITED

#: Waiting reasons of requests that moves might admit.
_FOR_ROOM: Final = ("no_room", "gang_not_whole", "held_back")
#: Largest number of VMs of a request.
_MAX_COUNTED: Final = 10_000


class RoomPlans(Repository):
    """Queries of the control centre about plans that make room for a request."""

    def count_open(self) -> int:
        """Return the number of open plans that make room for a request."""
        with self._database.read() as connection:
            return connection.execute(
                select(func.count()).where(plans.c.kind == PlanKind.ROOM.value, GOES_ON)
            ).scalar_one()

    def requests_lacking_room(self, *, rounds: int, rest_s: float) -> frozenset[UUID]:
        """Return the waiting requests that lacked room in at least this number of rounds.

        Requests for which a plan was made within the last ``rest_s`` are left out.
        """
        waits = select(requests.c.id).where(
            requests.c.state.in_(OPEN_REQUESTS),
            rounds <= SLOTS_WAITED,
            requests.c.waiting["reason"].as_string().in_(_FOR_ROOM),
        )
        with self._database.read() as connection:
            since = db_now(connection) - timedelta(seconds=rest_s)
            lately = select(plans.c.arguments).where(
                plans.c.id
                > lowest_uuid7(since - CLOCKS_APART),  # by the key: there are years of them
                plans.c.kind == PlanKind.ROOM.value,
                plans.c.requested_at > since,
            )
            tried = {UUID(each["request"]) for each in connection.scalars(lately)}
            return frozenset(connection.scalars(waits)) - tried

    def is_waiting(self, request: UUID) -> bool:
        """Return whether a VM of the request waits for a place."""
        with self._database.read() as connection:
            return count_waiting_vms(connection, request) > 0

    def keeps_room(self, id: UUID, *, for_s: float) -> bool:  # noqa: A002
        """Return whether the room that a plan freed is still kept for its request.

        It is kept until the admitted number of VMs is placed, but no longer than
        ``for_s`` after the last move, and not if a move failed.
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
    return count_waiting(connection, {request: _MAX_COUNTED}).get(request, 0)


def check_request_waits(connection: Connection, request: UUID) -> None:
    """Raise unless VMs of a request wait and no other plan makes room for it.

    A lock until the transaction ends keeps two callers from passing the check together.

    Raises
    ------
    UnknownNameError
        If there is no such request.
    ConflictError
        If no VM of the request waits, or a plan makes room for it already.
    """
    take_advisory_lock(connection, f"room for {request}")
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
