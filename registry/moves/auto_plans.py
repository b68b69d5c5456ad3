"""Automatic plans: the leading control centre requests them at an interval, one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, select

from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.locks import take_advisory_lock
from registry.db.schema import plans, rolls, slot_loop
from registry.lifecycle import RollState, SlotLoopState
from registry.moves.plans import create_plan
from registry.moves.stored_plans import GOES_ON, get_plan
from registry.records.liveness import Lease
from registry.records.moves import STANDING_RULE, Plan, PlanKind
from registry.rounds.leases import check_epoch


class AutoPlans(Repository):
    """Requests automatic plans. The next is due an interval after the last was created."""

    def last(self) -> tuple[datetime, datetime | None]:
        """Return the present time, and when the last automatic plan was created."""
        with self._database.read() as connection:
            return db_now(connection), _last_created_at(connection)

    @retry_on_rollback
    def request_if_due(
        self, lease: Lease, kind: PlanKind, arguments: Mapping[str, Any], *, every_s: float
    ) -> Plan | None:
        """Create an automatic plan that is approved once it is decided, unless it is declined.

        It returns None if the last one is younger than ``every_s``, another plan is open, a roll
        is running, or the slot loop is paused.

        Raises
        ------
        StaleEpochError
            If another control centre holds the lease by now.
        """
        with self._database.write() as connection:
            check_epoch(connection, lease.name, lease.holder, lease.epoch, until_commit=True)
            take_advisory_lock(connection, STANDING_RULE)
            now, last = db_now(connection), _last_created_at(connection)
            if last is not None and now - last < timedelta(seconds=every_s):
                return None
            if _is_plan_prevented(connection, now):
                return None
            key = create_plan(connection, kind, arguments, approve=True, actor=STANDING_RULE)
            return get_plan(connection, key)


def _last_created_at(connection: Connection) -> datetime | None:
    """Return when the last automatic plan was created, or None."""
    # By ids, which rise with time: the index has them.
    query = select(plans.c.requested_at).where(plans.c.requested_by == STANDING_RULE)
    return connection.scalar(query.order_by(plans.c.id.desc()).limit(1))


def _is_plan_prevented(connection: Connection, now: datetime) -> bool:
    """Return whether the slot loop is paused, a plan is open or a roll runs: no automatic plan."""
    paused = slot_loop.c.state == SlotLoopState.PAUSED.value
    driven = (rolls.c.state == RollState.RUNNING.value, rolls.c.driver_lease_until > now)
    counts = (
        select(func.count()).select_from(slot_loop).where(paused),
        select(func.count()).select_from(plans).where(GOES_ON),
        select(func.count()).select_from(rolls).where(*driven),
    )
    return any(connection.scalar(each) for each in counts)
