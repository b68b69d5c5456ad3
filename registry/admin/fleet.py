"""Counts of hosts, VMs, requests and work for metrics, in one read transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Table, func, not_, select

from registry.admin.backup import BACKED_UP
from registry.admin.borrowed_totals import BorrowedTotals, read_borrowed_totals
from registry.admin.liveness import control_lease
from registry.db.clock import db_now
from registry.db.ids import lowest_uuid7
from registry.db.schema import (
    assignments,
    events,
    host_fences,
    hosts,
    images,
    inventories,
    leftovers,
    moves,
    requests,
    reservations,
    rounds,
    strangers,
    tokens,
    unreleased,
    vms,
)
from registry.ledger.placeable import is_waiting_vm
from registry.lifecycle import (
    FINISHED,
    OPEN_MOVES,
    OPEN_REQUESTS,
    OPEN_RESERVATIONS,
    AssignmentState,
    HostAdmin,
    SlotLoopState,
)
from registry.records.budgets import BudgetUse
from registry.records.cluster import Accounts
from registry.records.liveness import Lease
from registry.requests.rules import zone_of
from registry.rounds.cluster_view import read_accounts
from registry.rounds.slot_loop import slot_loop_status
from registry.usage.budget_use import budget_use_of, read_budgets

#: States with work to do; when the first two began is on the row itself.
_BUILDING: Final = (AssignmentState.RESERVED.value, AssignmentState.CREATING.value)
_ENDING: Final = (
    AssignmentState.RELEASING.value,
    AssignmentState.QUARANTINED.value,
    AssignmentState.LEAVING.value,
)
#: Of what is being removed, the age of the oldest assignments only is looked up.
_LOOKED_UP: Final = 200
#: The reason of a request that no round has seen yet.
NOT_DECIDED_YET: Final = "not_decided_yet"


_USED_OF_LATE: Final = timedelta(days=7)
_MOVED_OF_LATE: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetHost:
    """The state, capacity and committed amounts of a host that is not retired, for metrics."""

    name: str
    zone: str | None
    admin: str
    health: str
    heartbeat_at: datetime  #: of its last report, or of its registration
    held_back: bool  #: it gets no VMs for a while, as builds failed there
    amounts: Mapping[str, tuple[int, int]]  #: capacity and committed amount by resource


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRound:
    """The figures of the last round, for metrics."""

    number: int
    slot_start_at: datetime
    placed: int
    left_out: int
    fair_distance: float | None
    prices: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetMoves:
    """The figures of VMs' moves between hosts, for metrics."""

    going_on: Mapping[str, int]  #: by state
    oldest_s: float  #: seconds since the oldest open move was requested; 0 without one
    ended: Mapping[str, int]  #: moves requested in the last day, by final state
    standstill_s: float  #: total downtime of guests that moved in the last day
    longest_standstill_s: float  #: the longest downtime of one guest


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCounts:
    """The figures that metrics publish of the register center."""

    now: datetime
    accounts: Accounts
    waiting: Mapping[str, int]  #: waiting VMs by the reason of their request
    requests: Mapping[str, int]  #: by state
    assignments: Mapping[str, int]  #: unreleased ones, by state
    #: age of the oldest assignment in each state that a worker has to end
    task_ages_s: Mapping[str, float]
    hosts: tuple[FleetHost, ...]
    fences: Mapping[str, int]  #: hosts whose fencing was requested, by state
    images_held: int
    leftovers: int
    strangers: int
    lease: Lease | None
    paused: bool  #: slots are not decided
    last_round: FleetRound | None
    moves: FleetMoves
    reservations: Mapping[str, int]  #: open reservations by state
    reserved_short: int  #: VMs of reservations for which the last round found no room
    budgets: tuple[BudgetUse, ...]  #: as last measured
    borrowed: tuple[BorrowedTotals, ...]
    #: seconds until the first recently used operator token expires; None if none expires
    token_ends_in_s: float | None = None
    #: age of the newest backup by `fuga db backup`; None without one
    backup_age_s: float | None = None


def read_fleet(connection: Connection) -> FleetCounts:
    """Return the figures of hosts, VMs, requests and work for metrics, of one point in time."""
    now = db_now(connection)
    there = select(hosts.c.id).where(hosts.c.admin != HostAdmin.RETIRED.value)
    return FleetCounts(
        now=now,
        accounts=read_accounts(connection),
        waiting=_count_waiting_vms(connection),
        requests=_count_requests(connection),
        assignments=_count_assignments(connection),
        task_ages_s=_task_ages_s(connection, now),
        hosts=_fleet_hosts(connection, now),
        fences=_count_fences(connection),
        images_held=_count_rows(connection, images, images.c.held_at.is_not(None)),
        leftovers=_count_rows(connection, leftovers),
        strangers=_count_rows(connection, strangers, strangers.c.host_id.in_(there)),
        lease=control_lease(connection),
        paused=slot_loop_status(connection).state is SlotLoopState.PAUSED,
        last_round=_last_round(connection),
        moves=_count_moves(connection, now),
        **_count_reservations(connection),
        budgets=tuple(budget_use_of(row) for row in read_budgets(connection)),
        borrowed=read_borrowed_totals(connection),
        token_ends_in_s=_token_ends_in_s(connection, now),
        backup_age_s=_backup_age_s(connection, now),
    )


def _count_moves(connection: Connection, now: datetime) -> FleetMoves:
    """Count open moves of VMs by state, and the moves of the last day by outcome."""
    goes_on = moves.c.state.in_([state.value for state in OPEN_MOVES])
    open_moves = (
        select(
            moves.c.state, func.count().label("number"), func.min(moves.c.requested_at).label("at")
        )
        .where(goes_on)
        .group_by(moves.c.state)
    )
    found = connection.execute(open_moves).all()
    of_late = (
        select(
            moves.c.state,
            func.count().label("number"),
            func.sum(moves.c.downtime_ms).label("still_ms"),
            func.max(moves.c.downtime_ms).label("longest_ms"),
        )
        .where(moves.c.id >= lowest_uuid7(now - _MOVED_OF_LATE), not_(goes_on))
        .group_by(moves.c.state)
    )
    ended = connection.execute(of_late).all()
    return FleetMoves(
        going_on={row.state: row.number for row in found},
        oldest_s=max((max(0.0, (now - row.at).total_seconds()) for row in found), default=0.0),
        ended={row.state: row.number for row in ended},
        standstill_s=sum(float(row.still_ms or 0) for row in ended) / 1000,
        longest_standstill_s=max((row.longest_ms or 0 for row in ended), default=0) / 1000,
    )


def _count_reservations(connection: Connection) -> dict[str, Any]:
    """Return the open reservations by state, and how many VMs they lack room for."""
    query = (
        select(reservations.c.state, func.count().label("number"), func.sum(reservations.c.short))
        .where(reservations.c.state.in_(OPEN_RESERVATIONS))
        .group_by(reservations.c.state)
    )
    found = connection.execute(query).all()
    return {
        "reservations": {state: number for state, number, _ in found},
        "reserved_short": sum(int(short) for _, _, short in found),
    }


def _backup_age_s(connection: Connection, now: datetime) -> float | None:
    """Return how many seconds ago the database was last backed up, or None."""
    query = select(events.c.at).where(events.c.subject_id == BACKED_UP)
    at = connection.scalar(query.order_by(events.c.id.desc()).limit(1))
    return None if at is None else max(0.0, (now - at).total_seconds())


def _token_ends_in_s(connection: Connection, now: datetime) -> float | None:
    """Return the seconds until the first operator token in use expires, or None."""
    query = select(func.min(tokens.c.expires_at)).where(
        tokens.c.role == "operator",
        tokens.c.login.is_(None),
        tokens.c.revoked_at.is_(None),
        tokens.c.expires_at > now,
        tokens.c.last_used_at > now - _USED_OF_LATE,
    )
    ends = connection.execute(query).scalar_one()
    return None if ends is None else (ends - now).total_seconds()


def _count_rows(connection: Connection, table: Table, *which: ColumnElement[bool]) -> int:
    """Return how many rows of a table meet the conditions."""
    return connection.execute(select(func.count()).select_from(table).where(*which)).scalar_one()


def _count_requests(connection: Connection) -> dict[str, int]:
    """Return the number of unfinished requests by state."""
    finished = [state.value for state in FINISHED]
    query = select(requests.c.state, func.count()).where(requests.c.state.not_in(finished))
    return dict(connection.execute(query.group_by(requests.c.state)).all())


def _count_assignments(connection: Connection) -> dict[str, int]:
    """Return the number of unreleased assignments by state."""
    query = select(assignments.c.state, func.count()).where(unreleased)
    return dict(connection.execute(query.group_by(assignments.c.state)).all())


def _count_fences(connection: Connection) -> dict[str, int]:
    """Return the number of host fences by state."""
    query = select(host_fences.c.state, func.count()).group_by(host_fences.c.state)
    return dict(connection.execute(query).all())


def _count_waiting_vms(connection: Connection) -> dict[str, int]:
    """Return the number of VMs that wait for a host, by the reason of their requests."""
    reason = func.coalesce(requests.c.waiting["reason"].as_string(), NOT_DECIDED_YET)
    query = (
        select(reason.label("reason"), func.count().label("number"))
        .select_from(vms)
        .join(requests, requests.c.id == vms.c.request_id)
        .where(requests.c.state.in_(OPEN_REQUESTS), is_waiting_vm())
        .group_by("reason")
    )
    return {row.reason: row.number for row in connection.execute(query)}


def _task_ages_s(connection: Connection, now: datetime) -> dict[str, float]:
    """Return the age in seconds of the oldest assignment in each state that has work to do."""
    begun = (
        select(assignments.c.state, func.min(assignments.c.created_at))
        .where(unreleased, assignments.c.state.in_(_BUILDING))
        .group_by(assignments.c.state)
    )
    since = dict(connection.execute(begun).all())
    ending = (
        select(assignments.c.id, assignments.c.state)
        .where(unreleased, assignments.c.state.in_(_ENDING))
        .order_by(assignments.c.id)
        .limit(_LOOKED_UP)
    )
    state_of = {str(row.id): row.state for row in connection.execute(ending)}
    last = (
        select(events.c.subject_id, func.max(events.c.at))
        .where(events.c.subject_id.in_(state_of), events.c.kind == "assignment_state")
        .where(events.c.from_state != events.c.to_state)
        .group_by(events.c.subject_id)
    )
    for subject_id, at in connection.execute(last) if state_of else ():
        state = state_of[subject_id]
        since[state] = min(at, since.get(state, at))
    return {state: max(0.0, (now - at).total_seconds()) for state, at in since.items()}


def _fleet_hosts(connection: Connection, now: datetime) -> tuple[FleetHost, ...]:
    """Return the capacity, committed amounts and state of each host, for metrics."""
    amounts: defaultdict[UUID, dict[str, tuple[int, int]]] = defaultdict(dict)
    offered: Any = select(
        inventories.c.host_id,
        inventories.c.resource,
        inventories.c.capacity,
        inventories.c.committed,
    )
    for host_id, resource, capacity, committed in connection.execute(offered):
        amounts[host_id][resource] = (capacity, committed)
    query = (
        select(
            hosts.c.id,
            hosts.c.name,
            hosts.c.labels,
            hosts.c.admin,
            hosts.c.health,
            hosts.c.last_polled_at,
            hosts.c.created_at,
            hosts.c.backoff_until,
            hosts.c.same_machine_as,
            hosts.c.found_machine_uuid,
        )
        .where(hosts.c.admin != HostAdmin.RETIRED.value)
        .order_by(hosts.c.name)
    )
    return tuple(
        FleetHost(
            name=row.name,
            zone=zone_of(tuple(row.labels)),
            admin=row.admin,
            health=row.health,
            heartbeat_at=row.last_polled_at or row.created_at,
            held_back=row.same_machine_as is not None
            or row.found_machine_uuid is not None
            or (row.backoff_until is not None and row.backoff_until > now),
            amounts=amounts[row.id],
        )
        for row in connection.execute(query)
    )


def _last_round(connection: Connection) -> FleetRound | None:
    """Return the figures of the last round, for metrics; None if there was none."""
    columns = (rounds.c[name] for name in FleetRound.__dataclass_fields__)
    row = connection.execute(
        select(*columns).order_by(rounds.c.number.desc()).limit(1)
    ).one_or_none()
    return FleetRound(**row._mapping) if row is not None else None
