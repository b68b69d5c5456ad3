"""The liveness of control centres, workers and monitors, from a few rows in one read."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from registry.admin.clock_steps import clock_ahead_s, last_clock_step
from registry.admin.processes import known_processes
from registry.db.clock import db_now
from registry.db.schema import assignments, hosts, leases, rounds, unreleased
from registry.lifecycle import AssignmentState, HostAdmin, HostHealth
from registry.records.liveness import HostPollSummary, Lease, Liveness
from registry.rounds.leases import CONTROL_LEASE
from registry.rounds.slot_loop import slot_loop_status


def read_liveness(connection: Connection) -> Liveness:
    """Return the liveness of control centres, workers and monitors as this transaction sees it."""
    last = connection.execute(
        select(rounds.c.number, rounds.c.slot_start_at).order_by(rounds.c.number.desc()).limit(1)
    ).one_or_none()
    reserved = select(func.min(assignments.c.created_at)).where(
        unreleased, assignments.c.state == AssignmentState.RESERVED.value
    )
    return Liveness(
        now=db_now(connection),
        lease=control_lease(connection),
        slot_loop=slot_loop_status(connection),
        last_round=last.number if last is not None else None,
        last_round_at=last.slot_start_at if last is not None else None,
        processes=known_processes(connection),
        hosts=_host_poll_summary(connection),
        oldest_reserved_at=connection.execute(reserved).scalar_one(),
        clock_ahead_s=clock_ahead_s(connection),
        clock_step=last_clock_step(connection),
    )


def control_lease(connection: Connection) -> Lease | None:
    """Return the lease of the control centre, live or not; None if it was never held."""
    row = connection.execute(select(leases).where(leases.c.name == CONTROL_LEASE)).one_or_none()
    return Lease(**row._mapping) if row is not None else None


def _host_poll_summary(connection: Connection) -> HostPollSummary:
    """Return how many active hosts there are and are up, and the oldest last poll of those up."""
    query = (
        select(hosts.c.health, func.count().label("number"), func.min(hosts.c.last_polled_at))
        .where(hosts.c.admin == HostAdmin.ACTIVE.value)
        .group_by(hosts.c.health)
    )
    by_health = {row.health: row for row in connection.execute(query)}
    up = by_health.get(HostHealth.UP.value)
    return HostPollSummary(
        active=sum(row.number for row in by_health.values()),
        up=up.number if up is not None else 0,
        longest_silent_at=up[2] if up is not None else None,
    )
