"""Retention: how long history is kept, and the purge of older rows in batches.

Rows that hold capacity or may still change are kept at any age: requests and VMs, assignments of
VMs that are not gone, and the rounds that these name. The ledger is never purged. The usage of
purged assignments is kept in daily sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Column, Connection, Select, delete, exists, func, select

from registry.capacity.capacity_history import KEPT
from registry.db.bulk import is_any_of
from registry.db.clock import db_now, earlier_time
from registry.db.engine import Repository, retry_on_rollback
from registry.db.ids import lowest_uuid7
from registry.db.names import check_int
from registry.db.schema import (
    assignment_resources,
    assignments,
    audit,
    capacity_days,
    events,
    login_codes,
    moves,
    plan_moves,
    plans,
    requests,
    reservations,
    roll_hosts,
    rolls,
    round_hash_chain,
    round_inputs,
    rounds,
    shadow_rounds,
    tokens,
    vms,
    volumes,
)
from registry.lifecycle import FINISHED, OPEN_RESERVATIONS, AssignmentState, PlanState
from registry.records.liveness import Lease
from registry.rounds.leases import CONTROL_LEASE, check_epoch
from registry.usage.borrowed_times import forget_borrowed_times
from registry.usage.daily_usage import add_to_sums

#: rows of one transaction; inputs of a round weigh as much as many rows
BATCH: Final = 500
INPUTS_BATCH: Final = 20
#: How long ended logins are kept; events and the audit keep their records longer.
LOGINS_KEPT: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Periods:
    """How long each kind of history is kept."""

    inputs_days: int = 7  #: inputs and outcomes of rounds, which replays need
    #: rounds with their shadows, plans, moves, reservations, removed volumes, and assignments of
    #: deleted VMs
    rounds_days: int = 400
    events_months: int = 13  #: whole calendar months (UTC), in addition to the present one
    audit_months: int = 13  #: the same, of calls that could change something

    def __post_init__(self) -> None:
        check_int("inputs_days", self.inputs_days, 1, 36_500)
        check_int("rounds_days", self.rounds_days, self.inputs_days, 36_500)
        check_int("events_months", self.events_months, 1, 1_200)
        check_int("audit_months", self.audit_months, 1, 1_200)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeCounts:
    """How many rows of each kind were purged, or would be."""

    inputs: int = 0
    assignments: int = 0
    rounds: int = 0
    events: int = 0
    audit: int = 0
    plans: int = 0
    rolls: int = 0
    reservations: int = 0
    moves: int = 0
    volumes: int = 0
    links: int = 0
    capacity_days: int = 0
    login_codes: int = 0
    login_tokens: int = 0

    def __bool__(self) -> bool:
        """Whether any row was purged, or would be."""
        return any(getattr(self, each.name) for each in fields(self))

    def __add__(self, other: PurgeCounts) -> PurgeCounts:
        return PurgeCounts(
            **{
                each.name: getattr(self, each.name) + getattr(other, each.name)
                for each in fields(self)
            }
        )


class Retention(Repository):
    """Counts and purges rows past their retention period, by the database's clock."""

    def count_due(self, periods: Periods) -> PurgeCounts:
        """Return how many rows of each kind a purge would delete now, without deleting any.

        A round counts once its inputs and assignments are gone. So a purge may delete more rounds
        than this, which fall due by the purge itself.
        """
        with self._database.read() as connection:
            old = _due_queries(connection, periods)
            return PurgeCounts(
                **{
                    name: connection.scalars(
                        select(func.count()).select_from(query.subquery())
                    ).one()
                    for name, query in old.items()
                }
            )

    @retry_on_rollback
    def purge_batch(
        self, periods: Periods, *, lease: Lease | None = None, by: datetime | None = None
    ) -> PurgeCounts:
        """Delete one batch of rows past their retention; the result is falsy if none was due.

        Rows are due by the database's clock and by ``by``.

        Due rows stay due, so the search precedes the lock of the lease.

        Raises
        ------
        StaleEpochError
            If a lease is given and is not the current one of the control centre.
        """
        with self._database.read() as connection:
            name, keys = _first_due_batch(connection, periods, by)
        if not keys:
            return PurgeCounts()
        with self._database.write() as connection:
            if lease is not None:
                check_epoch(connection, CONTROL_LEASE, lease.holder, lease.epoch, until_commit=True)
            if name == "assignments":
                these = is_any_of(connection, assignments.c.id, keys)
                vm_ids = connection.scalars(select(assignments.c.vm_id).where(these)).all()
                add_to_sums(connection, these)
                _delete_rows(connection, name, keys)
                forget_borrowed_times(connection, vm_ids)
            else:
                _delete_rows(connection, name, keys)
        return PurgeCounts(**{name: len(keys)})


def _due_queries(
    connection: Connection, periods: Periods, by: datetime | None = None
) -> Mapping[str, Select[Any]]:
    """Return a query for the keys of rows of each kind past their retention, the oldest first.

    Rounds, events and calls have numbers that rise with time, and ids of plans, moves and
    reservations begin with the time when they were made: a bound on these keeps queries from
    reading what is not due.
    """
    now = earlier_time(db_now(connection), by)
    inputs_end = now - timedelta(days=periods.inputs_days)
    rounds_end = now - timedelta(days=periods.rounds_days)
    events_end = _month_start(now, -periods.events_months)
    audit_end = _month_start(now, -periods.audit_months)
    old_rounds = _first_key_since(connection, rounds.c.number, rounds.c.created_at, rounds_end)
    kept = connection.scalar(select(func.min(round_inputs.c.round)))
    old_inputs = _first_key_since(
        connection, rounds.c.number, rounds.c.created_at, inputs_end, kept
    )
    return {
        "inputs": select(round_inputs.c.round)
        .join(rounds, rounds.c.number == round_inputs.c.round)
        .where(round_inputs.c.round < old_inputs, rounds.c.created_at < inputs_end)
        .order_by(round_inputs.c.round),
        "assignments": select(assignments.c.id)
        .join(rounds, rounds.c.number == assignments.c.round)
        .join(vms, vms.c.id == assignments.c.vm_id)
        .where(
            assignments.c.round < old_rounds,
            rounds.c.created_at < rounds_end,
            assignments.c.state == AssignmentState.RELEASED.value,
            vms.c.deleted_at < rounds_end,
        )
        .order_by(assignments.c.round, assignments.c.id),
        "rounds": select(rounds.c.number)
        .where(
            rounds.c.number < old_rounds,
            rounds.c.created_at < rounds_end,
            ~exists().where(assignments.c.round == rounds.c.number),
            ~exists().where(round_inputs.c.round == rounds.c.number),
        )
        .order_by(rounds.c.number),
        # From the old end on, so what is left is one chain; the newest stays, whatever its age:
        # the next round is chained to it.
        "links": select(round_hash_chain.c.round)
        .where(
            round_hash_chain.c.round
            < func.coalesce(
                select(func.min(round_hash_chain.c.round))
                .where(round_hash_chain.c.created_at >= rounds_end)
                .scalar_subquery(),
                select(func.max(round_hash_chain.c.round)).scalar_subquery(),
            )
        )
        .order_by(round_hash_chain.c.round),
        "plans": select(plans.c.id)
        .where(
            plans.c.id < lowest_uuid7(rounds_end),
            func.coalesce(plans.c.ended_at, plans.c.requested_at) < rounds_end,
            plans.c.state.not_in([PlanState.PENDING.value, PlanState.APPROVED.value]),
        )
        .order_by(plans.c.id),
        "rolls": select(rolls.c.id).where(rolls.c.ended_at < rounds_end).order_by(rolls.c.id),
        "reservations": select(reservations.c.id)
        .where(
            reservations.c.id < lowest_uuid7(rounds_end),
            reservations.c.ends_at < rounds_end,
            reservations.c.state.not_in(OPEN_RESERVATIONS),
            ~exists().where(
                requests.c.reservation_id == reservations.c.id,
                requests.c.state.not_in([state.value for state in FINISHED]),
            ),
        )
        .order_by(reservations.c.id),
        "moves": select(moves.c.id)
        .where(
            moves.c.id < lowest_uuid7(rounds_end),
            moves.c.ended_at < rounds_end,
            ~exists().where(plan_moves.c.move_id == moves.c.id),
        )
        .order_by(moves.c.id),
        "volumes": select(volumes.c.id)
        .where(volumes.c.removed_at < rounds_end)
        .order_by(volumes.c.id),
        "events": select(events.c.id)
        .where(
            events.c.id < _first_key_since(connection, events.c.id, events.c.at, events_end),
            events.c.at < events_end,
        )
        .order_by(events.c.id),
        "audit": select(audit.c.id)
        .where(
            audit.c.id < _first_key_since(connection, audit.c.id, audit.c.at, audit_end),
            audit.c.at < audit_end,
        )
        .order_by(audit.c.id),
        "capacity_days": select(capacity_days.c.day)
        .distinct()
        .where(capacity_days.c.day < (now - KEPT).date())
        .order_by(capacity_days.c.day),
        "login_codes": select(login_codes.c.id)
        .where(login_codes.c.expires_at < now - LOGINS_KEPT)
        .order_by(login_codes.c.expires_at),
        "login_tokens": select(tokens.c.id)
        .where(
            tokens.c.login.is_not(None),
            func.coalesce(tokens.c.revoked_at, tokens.c.expires_at) < now - LOGINS_KEPT,
            ~exists().where(login_codes.c.token_id == tokens.c.id),
        )
        .order_by(tokens.c.id),
    }


def _first_key_since(
    connection: Connection,
    key: Column[int],
    at: Column[datetime],
    since: datetime,
    first: int | None = None,
) -> int:
    """Return the lowest key of rows since a time, or one above all keys.

    Keys rise with time. The search begins at ``first``, in small steps, as few rows are due. If a
    step of the clock broke the order of times, the search ends at one of several possible keys;
    the purge compares the time of each row, and deletes the others later.
    """

    def old_key(start: int) -> int | None:
        """Return the first key from ``start`` on if its row is older than ``since``, else None."""
        next_one = select(key, at).where(key >= start).order_by(key).limit(1)
        row = connection.execute(next_one).one_or_none()
        return row[0] if row is not None and row[1] < since else None

    old = old_key(first or 0)
    if old is None:
        return first or 0
    step = 1
    while (further := old_key(old + step)) is not None:
        old, step = further, 2 * step
    low, high = old + 1, old + step
    while low < high:
        middle = (low + high) // 2
        further = old_key(middle)
        if further is None:
            high = middle
        else:
            low = further + 1
    return low


def _first_due_batch(
    connection: Connection, periods: Periods, by: datetime | None
) -> tuple[str, Sequence[Any]]:
    """Return the first kind of rows that are due to be purged, and a batch of their keys."""
    for name, query in _due_queries(connection, periods, by).items():
        max_rows = INPUTS_BATCH if name == "inputs" else BATCH
        if keys := connection.scalars(query.limit(max_rows)).all():
            return name, keys
    return "events", ()


def _delete_rows(connection: Connection, name: str, keys: Sequence[Any]) -> None:
    """Purge rows of one kind by their keys, with the rows of other tables that belong to them."""
    for column in _KEYS[name]:
        connection.execute(delete(column.table).where(column.in_(keys)))


#: The key columns of each kind, in the order of deletion.
_KEYS: Final[Mapping[str, Sequence[Column[Any]]]] = {
    "inputs": (round_inputs.c.round,),
    "assignments": (assignment_resources.c.assignment_id, assignments.c.id),
    "rounds": (shadow_rounds.c.round, rounds.c.number),
    "links": (round_hash_chain.c.round,),
    "plans": (plan_moves.c.plan_id, plans.c.id),
    "rolls": (roll_hosts.c.roll_id, rolls.c.id),
    "reservations": (reservations.c.id,),
    "moves": (moves.c.id,),
    "volumes": (volumes.c.id,),
    "events": (events.c.id,),
    "audit": (audit.c.id,),
    "capacity_days": (capacity_days.c.day,),
    "login_codes": (login_codes.c.id,),
    "login_tokens": (tokens.c.id,),
}


def _month_start(now: datetime, months: int) -> datetime:
    """Return the start (UTC) of the month that is ``months`` after that of ``now``."""
    year, month = divmod(now.year * 12 + now.month - 1 + months, 12)
    return now.replace(
        year=max(year, 1), month=month + 1, day=1, hour=0, minute=0, second=0, microsecond=0
    )
