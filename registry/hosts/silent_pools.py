"""Hosts whose guests run and whose storage pool does not answer.

Such a host is up: its VMs run, stop, start and use the network. Work that needs the pool waits, and
nothing is built there until the pool answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, update

from registry.audit.events import event_row, record_events
from registry.db.schema import hosts
from registry.images.holds import record_lost_hosts
from registry.ledger.release import release_unclaimed
from registry.records.hosts import Host, HostReport

#: Silence after which a pool counts as silent, as listing some pools takes a while.
_SILENT_AFTER: Final = timedelta(seconds=10)
#: The longest time between a pool's last answer and its silence.
_BETWEEN_LOOKS: Final = timedelta(minutes=1)


def record_silent_pools(
    connection: Connection, polls: Iterable[tuple[Host, HostReport]], *, now: datetime, actor: str
) -> None:
    """Record which of these locked hosts have storage pools that fell silent or answer again.

    Later changes are made for all hosts together, so that rows are locked in their order.
    """
    lost: dict[UUID, datetime] = {}
    why: dict[UUID, str] = {}
    history = []
    for host, report in polls:
        since = silent_since(host, report)
        if since == host.pool_silent_since:
            continue
        changed = update(hosts).where(hosts.c.id == host.id).values(pool_silent_since=since)
        kind, data = "pool_answers", {"name": host.name, "pool": host.pool}
        if since is not None:
            kind = "pool_silent"
            changed = changed.values(version=hosts.c.version + 1)  # a round may be deciding
            lost[host.id] = since - _BETWEEN_LOOKS
            why[host.id] = f"the storage pool of host {host.name} does not answer"
        elif host.pool_silent_since is not None:
            data["silent_since"] = host.pool_silent_since.isoformat()
        connection.execute(changed)
        history.append(event_row(now, actor, kind, "host", host.id, data=data))
    record_events(connection, history)
    record_lost_hosts(connection, lost, now=now, actor=actor)
    release_unclaimed(connection, why, now=now, actor=actor)


def silent_since(host: Host, report: HostReport) -> datetime | None:
    """Return since when a host's storage pool counts as silent after this poll, or None."""
    silent_since = report.pool_silent_since
    if silent_since is None:
        return None
    if host.pool_silent_since is not None:
        return host.pool_silent_since
    return silent_since if report.polled_at - silent_since >= _SILENT_AFTER else None


def pool_trouble(host: Host, report: HostReport) -> str | None:
    """Return text that a host's storage pool is silent, or None."""
    since = silent_since(host, report)
    if since is None:
        return None
    return f"storage pool {host.pool!r} does not answer since {since:%Y-%m-%d %H:%M:%S} UTC"
