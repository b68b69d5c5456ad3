"""Changes of a host's health, each with its event."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from sqlalchemy import Connection, and_, or_, update

from registry.audit.changes import HOST_HEALTH
from registry.db.schema import hosts
from registry.lifecycle import HostHealth, HostHealthEvent
from registry.records.hosts import Host

#: Failed polls after which what answered at an address counts no more; FUGA_DOWN_AFTER by default.
MISSED_POLLS_OF_DEAD: Final = 10
#: A host that answered lately. One that enrols never becomes down, so its failed polls count.
ANSWERED_LATELY: Final = and_(
    hosts.c.health != HostHealth.DOWN.value,
    or_(hosts.c.health != HostHealth.ENROLLING.value, hosts.c.missed_polls < MISSED_POLLS_OF_DEAD),
)


def change_health(
    connection: Connection,
    host: Host,
    event: HostHealthEvent,
    reason: str | None,
    *,
    now: datetime,
    actor: str,
) -> HostHealth:
    """Apply an event to a host's health, record it, and return the health after it."""
    step = HOST_HEALTH.step(host.health, event)
    if step.moved:
        health = step.after.value
        connection.execute(update(hosts).where(hosts.c.id == host.id).values(health=health))
        step.record_event(connection, now, actor, host.id, reason=reason, data={"name": host.name})
    return step.after
