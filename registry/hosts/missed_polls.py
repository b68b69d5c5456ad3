"""Polls of hosts that failed: after so many a host is unreachable, then down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, and_, select, update

from registry.ground.bulk import among, chunks
from registry.ground.locks import lock_vms
from registry.ground.schema import assignments, hosts, tenants, unreleased, vms
from registry.hosts.health import change_health
from registry.images.holds import note_hosts_lost
from registry.journal.events import assignment_row, record
from registry.ledger.power import drop_power
from registry.ledger.progress import recompute
from registry.lifecycle import (
    ASSIGNMENT_TRANSITIONS,
    OUT_OF_REACH,
    AssignmentEvent,
    AssignmentState,
    HostAdmin,
    HostHealth,
    HostHealthEvent,
    next_state,
)
from registry.records.hosts import Host, Miss, MissPolicy

_NAMED: Final = 3  #: hosts in the reason of a request


def record_misses(
    connection: Connection,
    misses: Iterable[tuple[Host, Miss]],
    policy: MissPolicy,
    *,
    now: datetime,
    actor: str,
) -> None:
    """Write that polls of hosts, which are locked, failed.

    After so many in a row a host is unreachable, then down. Several monitors look at the
    same host. Of looks that began within ``policy.apart_s`` of each other one is counted,
    whoever took them; one that began before the host last answered another monitor is not.

    What follows is done for all hosts together, so that rows are locked in their order.
    """
    lost: dict[UUID, datetime | None] = {}
    down: dict[UUID, str] = {}
    for host, miss in misses:
        health = _count(connection, host, miss, policy, now=now, actor=actor)
        if health is None:
            continue
        if health.value in OUT_OF_REACH and host.health.value not in OUT_OF_REACH:
            lost[host.id] = host.last_polled_at
        if health == HostHealth.DOWN:
            down[host.id] = f"host {host.name} is down"
    note_hosts_lost(connection, lost, now=now, actor=actor)
    withdraw_reserved(connection, down, now=now, actor=actor)


def _count(
    connection: Connection,
    host: Host,
    miss: Miss,
    policy: MissPolicy,
    *,
    now: datetime,
    actor: str,
) -> HostHealth | None:
    """Count a miss, and return what the host's health is then; None: it does not count."""
    error, started_at = miss.error, miss.started_at
    if host.admin == HostAdmin.RETIRED:
        return None
    if started_at is not None and not _is_counted(connection, host, started_at, policy.apart_s):
        return None
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
    if missed >= policy.down_after:
        event = HostHealthEvent.GIVEN_UP
    elif missed >= policy.unreachable_after:
        event = HostHealthEvent.UNANSWERED
    else:
        return None
    return change_health(connection, host, event, error, now=now, actor=actor)


def _is_counted(connection: Connection, host: Host, began_at: datetime, apart_s: float) -> bool:
    if host.last_polled_at is not None and began_at < host.last_polled_at:
        return False
    query = select(hosts.c.last_missed_at).where(hosts.c.id == host.id)
    counted_at = connection.scalars(query).one()
    return counted_at is None or began_at >= counted_at + timedelta(seconds=apart_s)


def withdraw_reserved(
    connection: Connection, why: Mapping[UUID, str], *, now: datetime, actor: str
) -> None:
    """Release what nobody claimed on hosts that cannot build it, so that it is decided again."""
    rows = _reserved(connection, sorted(why))
    if not rows:
        return
    before, event = AssignmentState.RESERVED, AssignmentEvent.WITHDRAWN
    after = next_state(ASSIGNMENT_TRANSITIONS, before, event)
    for some in chunks([row.id for row in rows]):
        connection.execute(
            update(assignments)
            .where(assignments.c.id.in_(some))
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
            reason=f"{why[row.host_id]} and nobody had claimed it",
            host=row.host,
        )
        for row in rows
    ]
    record(connection, history)
    drop_power(connection, [row.vm_id for row in rows], now=now, actor=actor)
    told = sorted({why[row.host_id] for row in rows})
    more = [f"and {len(told) - _NAMED} more"] if len(told) > _NAMED else []
    recompute(
        connection,
        {row.request_id for row in rows},
        now=now,
        actor=actor,
        reason=", ".join(told[:_NAMED] + more),
    )


def _reserved(connection: Connection, host_ids: Sequence[UUID]) -> list[Row[Any]]:
    """Lock what nobody claimed on these hosts, VMs first, and return it."""
    found: list[Row[Any]] = []
    for some in chunks(host_ids):
        there = and_(
            among(connection, assignments.c.host_id, some),
            unreleased,
            assignments.c.state == AssignmentState.RESERVED.value,
        )
        lock_vms(connection, vms.c.id.in_(select(assignments.c.vm_id).where(there)))
        query = (
            select(
                assignments.c.id,
                assignments.c.vm_id,
                assignments.c.host_id,
                hosts.c.name.label("host"),
                vms.c.request_id,
                tenants.c.name.label("tenant"),
            )
            .select_from(assignments)
            .join(hosts, hosts.c.id == assignments.c.host_id)
            .join(vms, vms.c.id == assignments.c.vm_id)
            .join(tenants, tenants.c.id == vms.c.tenant_id)
            .where(there)
            .order_by(assignments.c.id)
            .with_for_update(of=assignments, key_share=True)
        )
        found += connection.execute(query)
    return found
