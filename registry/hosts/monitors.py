"""Monitors, each with a lease that expires by the database's clock.

Which monitor polls which host is stored nowhere: every monitor computes it from
those whose leases are live. Two that disagree for a moment both poll the host, which does no harm.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import delete, select, update

from registry.db.bulk import insert_if_absent
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.schema import monitors
from registry.records.hosts import MonitorRecord

#: How long a monitor that ended without deregistering is listed.
_REMEMBERED: Final = timedelta(hours=1)


class Monitors(Repository):
    """Stores the heartbeats of monitors, and lists them."""

    @retry_on_rollback
    def record_heartbeat(
        self, key: UUID, name: str, *, lease_s: float, watched: int, late: int
    ) -> None:
        """Record a monitor's heartbeat, and take or extend its lease."""
        with self._database.write() as connection:
            now = db_now(connection)
            values = {
                "name": name,
                "heartbeat_at": now,
                "lease_until": now + timedelta(seconds=lease_s),
                "watched": watched,
                "late": late,
            }
            if not insert_if_absent(connection, monitors, id=key, started_at=now, **values):
                connection.execute(update(monitors).where(monitors.c.id == key).values(**values))
            over = monitors.c.lease_until < now - _REMEMBERED
            connection.execute(delete(monitors).where(over, monitors.c.id != key))

    @retry_on_rollback
    def unregister(self, key: UUID) -> None:
        """Delete a monitor that ends, so that others need not wait for its lease to expire."""
        with self._database.write() as connection:
            connection.execute(delete(monitors).where(monitors.c.id == key))

    def all(self) -> tuple[MonitorRecord, ...]:
        """Return the monitors with a heartbeat within an hour, by name, and which are live."""
        with self._database.read() as connection:
            rows = connection.execute(select(monitors).order_by(monitors.c.name, monitors.c.id))
            found = rows.all()
            now = db_now(connection)
        return tuple(MonitorRecord(**row._mapping, is_live=row.lease_until > now) for row in found)
