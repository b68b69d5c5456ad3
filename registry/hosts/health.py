"""Changes of a host's health, each with its event."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, update

from registry.ground.schema import hosts
from registry.journal.events import event_row, record
from registry.lifecycle import HOST_HEALTH_TRANSITIONS, HostHealth, HostHealthEvent, next_state
from registry.records.hosts import Host


def change_health(
    connection: Connection,
    host: Host,
    event: HostHealthEvent,
    reason: str | None,
    *,
    now: datetime,
    actor: str,
) -> HostHealth:
    """Apply an event to a host's health, and return what it is then."""
    after = next_state(HOST_HEALTH_TRANSITIONS, host.health, event)
    if after != host.health:
        connection.execute(update(hosts).where(hosts.c.id == host.id).values(health=after.value))
        history = event_row(
            now,
            actor,
            "host_health",
            "host",
            host.id,
            change=(host.health, after),
            event=event,
            reason=reason,
            data={"name": host.name},
        )
        record(connection, [history])
    return after
