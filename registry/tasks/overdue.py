"""Ends builds that take too long, whether or not a worker still holds them.

A deadline limits each call to a host, and a lease limits each worker. This module limits a build
as a whole: one that is claimed again and again, or always released unfinished, ends as failed.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Row, select

from registry.db.schema import assignments, unreleased
from registry.lifecycle import AssignmentState

#: In one transaction; the rest follows with the next sweep.
MAX_AT_ONCE: Final = 100


def overdue_builds(
    connection: Connection, build_timeout_s: float, *, now: datetime
) -> tuple[Row[Any], ...]:
    """Return id, host and VM of builds that exceeded the timeout without a domain."""
    query = (
        select(assignments.c.id, assignments.c.host_id, assignments.c.vm_id)
        .where(
            unreleased,
            assignments.c.state == AssignmentState.CREATING.value,
            assignments.c.build_began_at <= now - timedelta(seconds=build_timeout_s),
        )
        .order_by(assignments.c.build_began_at, assignments.c.id)
        .limit(MAX_AT_ONCE)
    )
    return tuple(connection.execute(query))


def is_overdue(row: Row[Any], build_timeout_s: float, now: datetime) -> bool:
    """Return whether a locked build still exceeds the timeout, as its worker may have finished."""
    return (
        row.state == AssignmentState.CREATING.value
        and row.build_began_at is not None
        and bool(row.build_began_at <= now - timedelta(seconds=build_timeout_s))
    )
