"""Polls of hosts that failed: after so many a host is unreachable, then down."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection, select, update

from registry.events import assignment_row, record
from registry.host_health import change_health
from registry.lifecycle import (
    ASSIGNMENT_TRANSITIONS,
    AssignmentEvent,
    AssignmentState,
    HostAdmin,
    HostHealth,
    HostHealthEvent,
    next_state,
)
from registry.power import drop_power
from registry.progress import recompute
from registry.records import Host
from registry.schema import assignments, hosts, tenants, unreleased, vms


def record_miss(
    connection: Connection,
    host: Host,
    error: str,
    *,
    unreachable_after: int,
    down_after: int,
    started_at: datetime | None,
    apart_s: float,
    now: datetime,
    actor: str,
) -> None:
    """Write that a poll failed. After so many in a row the host is unreachable, then down.

    Several monitors look at the same host. Of looks that began within ``apart_s``
    of each other one is counted, whoever took them; one that began before the
    host last answered another monitor is not.
    """
    if host.admin == HostAdmin.RETIRED:
        return
    if started_at is not None and not _is_counted(connection, host, started_at, apart_s):
        return
    missed = host.missed_polls + 1
    connection.execute(
        update(hosts)
        .where(hosts.c.id == host.id)
        .values(
            last_error=error,
            missed_polls=missed,
            last_missed_at=started_at or now,
            returning_since=None,
        )
    )
    event = None
    if missed >= down_after:
        event = HostHealthEvent.GIVEN_UP
    elif missed >= unreachable_after:
        event = HostHealthEvent.UNANSWERED
    if event is not None:
        after = change_health(connection, host, event, error, now=now, actor=actor)
        if after == HostHealth.DOWN:
            _withdraw_reserved(connection, host, now=now, actor=actor)


def _is_counted(connection: Connection, host: Host, began_at: datetime, apart_s: float) -> bool:
    if host.last_polled_at is not None and began_at < host.last_polled_at:
        return False
    query = select(hosts.c.last_missed_at).where(hosts.c.id == host.id)
    counted_at = connection.scalars(query).one()
    return counted_at is None or began_at >= counted_at + timedelta(seconds=apart_s)


def _withdraw_reserved(connection: Connection, host: Host, *, now: datetime, actor: str) -> None:
    """Release what nobody claimed on a host that is down, so that it is decided again."""
    rows = connection.execute(
        select(
            assignments.c.id,
            assignments.c.vm_id,
            vms.c.request_id,
            tenants.c.name.label("tenant"),
        )
        .select_from(assignments)
        .join(vms, vms.c.id == assignments.c.vm_id)
        .join(tenants, tenants.c.id == vms.c.tenant_id)
        .where(
            assignments.c.host_id == host.id,
            unreleased,
            assignments.c.state == AssignmentState.RESERVED.value,
        )
        .order_by(assignments.c.id)
        .with_for_update(of=assignments, key_share=True)
    ).all()
    if not rows:
        return
    before, event = AssignmentState.RESERVED, AssignmentEvent.WITHDRAWN
    after = next_state(ASSIGNMENT_TRANSITIONS, before, event)
    connection.execute(
        update(assignments)
        .where(assignments.c.id.in_([row.id for row in rows]))
        .values(state=after.value, released_at=now)
    )
    history = [
        assignment_row(
            now,
            actor,
            row.id,
            vm_id=row.vm_id,
            tenant=row.tenant,
            change=(before, after),
            event=event,
            reason=f"host {host.name} is down and nobody had claimed it",
            host=host.name,
        )
        for row in rows
    ]
    record(connection, history)
    drop_power(connection, [row.vm_id for row in rows], now=now, actor=actor)
    recompute(
        connection,
        {row.request_id for row in rows},
        now=now,
        actor=actor,
        reason=f"host {host.name} is down",
    )
