"""Failed polls: after a number of them a host is unreachable, then down."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, select, update

from registry.db.clock import valid_poll_time
from registry.db.schema import hosts
from registry.hosts.health import MISSED_POLLS_OF_DEAD, change_health
from registry.images.holds import record_lost_hosts
from registry.ledger.release import release_unclaimed
from registry.lifecycle import OUT_OF_REACH, HostAdmin, HostHealth, HostHealthEvent
from registry.records.hosts import Host, Miss, MissPolicy


def record_misses(
    connection: Connection,
    misses: Iterable[tuple[Host, Miss]],
    policy: MissPolicy,
    *,
    now: datetime,
    actor: str,
) -> None:
    """Record failed polls of hosts, whose rows are locked.

    After a number of misses in a row a host is unreachable, then down. Several monitors may poll
    the same host: of polls that began within ``policy.apart_s`` of each other one counts. A poll
    that began before the host last answered another monitor does not count.

    Later changes are made for all hosts together, so that rows are locked in their order.
    """
    lost: dict[UUID, datetime | None] = {}
    down: dict[UUID, str] = {}
    for host, miss in misses:
        health = _count_miss(connection, host, miss, policy, now=now, actor=actor)
        if health is None:
            continue
        if health.value in OUT_OF_REACH and host.health.value not in OUT_OF_REACH:
            lost[host.id] = host.last_polled_at
        if health == HostHealth.DOWN:
            down[host.id] = f"host {host.name} is down"
    record_lost_hosts(connection, lost, now=now, actor=actor)
    release_unclaimed(connection, down, now=now, actor=actor)


def _count_miss(
    connection: Connection, host: Host, miss: Miss, policy: MissPolicy, *, now: datetime, actor: str
) -> HostHealth | None:
    """Count a failed poll of a host and return its new health; None if the poll does not count."""
    error, started_at = miss.error, miss.started_at
    if host.admin == HostAdmin.RETIRED:
        return None
    if started_at is not None and not _is_miss_counted(
        connection, host, started_at, policy.apart_s, now
    ):
        return None
    missed = host.missed_polls + 1
    if host.found_machine_uuid is not None:
        _count_miss_of_other_machine(connection, host)
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


def _count_miss_of_other_machine(connection: Connection, host: Host) -> None:
    """Count a failed poll since another machine answered for a host; forget it after many.

    The poll at which it answered failed as well, so it is the first.
    """
    query = select(hosts.c.found_missed_polls).where(hosts.c.id == host.id)
    missed = connection.scalars(query).one() + 1
    values: dict[str, Any] = {"found_missed_polls": missed}
    if missed > MISSED_POLLS_OF_DEAD:
        values = {"found_machine_uuid": None, "found_machine_name": None, "found_missed_polls": 0}
    connection.execute(update(hosts).where(hosts.c.id == host.id).values(**values))


def _is_miss_counted(
    connection: Connection, host: Host, began_at: datetime, apart_s: float, now: datetime
) -> bool:
    """Return whether a failed poll began after the last answer and the last counted failure."""
    last = valid_poll_time(host.last_polled_at, now)
    if last is not None and began_at < last:
        return False
    query = select(hosts.c.last_missed_at).where(hosts.c.id == host.id)
    counted_at = valid_poll_time(connection.scalars(query).one(), now)
    if counted_at is None:
        return True
    return bool(began_at >= counted_at + timedelta(seconds=apart_s))
