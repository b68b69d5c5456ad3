"""Growing old: what is kept for how long, and the purge that takes the rest, batch by batch.

Whatever holds a place or may still change is kept at any age: requests and VMs, assignments of
VMs that are not gone, and the rounds that these name. The ledger is never purged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Select, delete, exists, func, select

from registry.clock import db_now
from registry.engine import Database, retried
from registry.leases import CONTROL_LEASE, check_epoch
from registry.lifecycle import AssignmentState
from registry.names import check_int
from registry.records import Lease
from registry.schema import (
    assignment_resources,
    assignments,
    audit,
    events,
    round_inputs,
    rounds,
    shadow_rounds,
    vms,
)

#: rows of one transaction; inputs of a round are many rows' worth
BATCH: Final = 500
INPUTS_BATCH: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Periods:
    """How long history is kept."""

    inputs_days: int = 7  #: inputs and outcomes of rounds: what a replay needs
    rounds_days: int = 400  #: rounds with their shadows, and what became of VMs that are gone
    events_months: int = 13  #: whole calendar months (UTC), besides the present one
    audit_months: int = 13  #: the same, of calls that could change something

    def __post_init__(self) -> None:
        check_int("inputs_days", self.inputs_days, 1, 36_500)
        check_int("rounds_days", self.rounds_days, self.inputs_days, 36_500)
        check_int("events_months", self.events_months, 1, 1_200)
        check_int("audit_months", self.audit_months, 1, 1_200)


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """How many rows of each kind went, or would go."""

    inputs: int = 0
    assignments: int = 0
    rounds: int = 0
    events: int = 0
    audit: int = 0

    def __bool__(self) -> bool:
        return any((self.inputs, self.assignments, self.rounds, self.events, self.audit))

    def __add__(self, other: Purged) -> Purged:
        return Purged(
            inputs=self.inputs + other.inputs,
            assignments=self.assignments + other.assignments,
            rounds=self.rounds + other.rounds,
            events=self.events + other.events,
            audit=self.audit + other.audit,
        )


class Retention:
    """Counts and purges what is older than it has to be, by the database's clock."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def due(self, periods: Periods) -> Purged:
        """Return what a purge would take now, and take nothing.

        Rounds count once their inputs and assignments are gone, so some may
        come on top that fall due by this very purge.
        """
        with self._database.read() as connection:
            old = _due(periods, db_now(connection))
            return Purged(
                **{
                    name: connection.scalars(
                        select(func.count()).select_from(query.subquery())
                    ).one()
                    for name, query in old.items()
                }
            )

    @retried
    def purge_batch(self, periods: Periods, *, lease: Lease | None = None) -> Purged:
        """Delete a small part of what is due, in one transaction; falsy: there was nothing.

        Raises
        ------
        StaleEpochError
            If a lease is given and is not the current one of the control centre.
        """
        with self._database.write() as connection:
            if lease is not None:
                check_epoch(connection, CONTROL_LEASE, lease.holder, lease.epoch, until_commit=True)
            return _purge(connection, _due(periods, db_now(connection)))


def _due(periods: Periods, now: datetime) -> Mapping[str, Select[Any]]:
    """Return queries for the keys of what is older than it has to be, the oldest first."""
    inputs_end = now - timedelta(days=periods.inputs_days)
    rounds_end = now - timedelta(days=periods.rounds_days)
    # Rounds are numbered, and events too, as time goes by: where they are old is at the front.
    old_rounds = select(rounds.c.number).where(rounds.c.created_at < rounds_end).subquery()
    return {
        "inputs": select(round_inputs.c.round)
        .join(rounds, rounds.c.number == round_inputs.c.round)
        .where(rounds.c.created_at < inputs_end)
        .order_by(round_inputs.c.round),
        "assignments": select(assignments.c.id)
        .join(old_rounds, old_rounds.c.number == assignments.c.round)
        .join(vms, vms.c.id == assignments.c.vm_id)
        .where(
            assignments.c.state == AssignmentState.RELEASED.value,
            vms.c.deleted_at < rounds_end,
        )
        .order_by(assignments.c.round, assignments.c.id),
        "rounds": select(rounds.c.number)
        .where(
            rounds.c.created_at < rounds_end,
            ~exists().where(assignments.c.round == rounds.c.number),
            ~exists().where(round_inputs.c.round == rounds.c.number),
        )
        .order_by(rounds.c.number),
        "events": select(events.c.id)
        .where(events.c.at < _month(now, -periods.events_months))
        .order_by(events.c.id),
        "audit": select(audit.c.id)
        .where(audit.c.at < _month(now, -periods.audit_months))
        .order_by(audit.c.id),
    }


def _purge(connection: Connection, due: Mapping[str, Select[Any]]) -> Purged:
    inputs = connection.scalars(due["inputs"].limit(INPUTS_BATCH)).all()
    if inputs:
        connection.execute(delete(round_inputs).where(round_inputs.c.round.in_(inputs)))
        return Purged(inputs=len(inputs))
    gone = connection.scalars(due["assignments"].limit(BATCH)).all()
    if gone:
        amounts = assignment_resources.c.assignment_id.in_(gone)
        connection.execute(delete(assignment_resources).where(amounts))
        connection.execute(delete(assignments).where(assignments.c.id.in_(gone)))
        return Purged(assignments=len(gone))
    numbers = connection.scalars(due["rounds"].limit(BATCH)).all()
    if numbers:
        connection.execute(delete(shadow_rounds).where(shadow_rounds.c.round.in_(numbers)))
        connection.execute(delete(rounds).where(rounds.c.number.in_(numbers)))
        return Purged(rounds=len(numbers))
    keys = connection.scalars(due["events"].limit(BATCH)).all()
    if keys:
        connection.execute(delete(events).where(events.c.id.in_(keys)))
        return Purged(events=len(keys))
    calls = connection.scalars(due["audit"].limit(BATCH)).all()
    if calls:
        connection.execute(delete(audit).where(audit.c.id.in_(calls)))
    return Purged(audit=len(calls))


def _month(now: datetime, months: int) -> datetime:
    """Return the beginning of a month (UTC), so many after that of ``now``."""
    year, month = divmod(now.year * 12 + now.month - 1 + months, 12)
    return now.replace(
        year=max(year, 1), month=month + 1, day=1, hour=0, minute=0, second=0, microsecond=0
    )
