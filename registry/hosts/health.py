"""Changes of a host's health, each with its event."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, update

from registry.audit.changes import HOST_HEALTH
from registry.db.schema import hosts
from registry.lifecycle import HostHealth, HostHealthEvent
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
    step = HOST_HEALTH.step(host.health, event)
    if step.moved:
        health = step.after.value
        connection.execute(update(hosts).where(hosts.c.id == host.id).values(health=health))
        step.record_event(connection, now, actor, host.id, reason=reason, data={"name": host.name})
    return step.after
