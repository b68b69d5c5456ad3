"""Hosts as monitors read them: first all, then those that changed or are in trouble.

Each change of how a host is reached, or of whether it is polled, adds an event of
the host in the same transaction. So a monitor that continues from its last read misses no change,
and reads nothing while there is none, however many hosts there are. Polls leave no events.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from sqlalchemy import Column, Row, func, select

from registry.audit.events import newest_stable_id
from registry.db.bulk import chunks, is_any_of
from registry.db.engine import Repository
from registry.db.row_conversion import record_of
from registry.db.schema import events, hosts
from registry.lifecycle import HostAdmin
from registry.records.hosts import HostsRead, WatchedHost

_COLUMNS: Final[tuple[Column[Any], ...]] = (
    hosts.c.id,
    hosts.c.name,
    hosts.c.uri,
    hosts.c.pool,
    hosts.c.credential,
    hosts.c.ssh_host_keys,
    hosts.c.health,
)
_IN_USE: Final = hosts.c.admin != HostAdmin.RETIRED.value


class WatchedHosts(Repository):
    """Reads the hosts that monitors poll."""

    def all(self) -> HostsRead:
        """Return every host that is not retired, for a monitor to poll."""
        cursor = self._newest_stable_id()  # later changes are read again
        with self._database.read() as connection:
            rows = connection.execute(select(*_COLUMNS).where(_IN_USE).order_by(hosts.c.name))
            found = tuple(_to_watched(row) for row in rows)
        return HostsRead(cursor=cursor, hosts=found, gone=frozenset())

    def changed_since(self, cursor: int) -> HostsRead:
        """Return the hosts with events since a monitor's earlier read."""
        newest = self._newest_stable_id()
        query = (
            select(events.c.subject_id)
            .where(events.c.id > cursor, events.c.id <= newest, events.c.subject_type == "host")
            .distinct()
        )
        found: list[WatchedHost] = []
        gone: set[UUID] = set()
        with self._database.read() as connection:
            keys = [UUID(key) for key in connection.scalars(query)]
            for some in chunks(keys):
                changed = select(*_COLUMNS).where(is_any_of(connection, hosts.c.id, some), _IN_USE)
                seen = [_to_watched(row) for row in connection.execute(changed)]
                gone |= set(some) - {host.id for host in seen}
                found += seen
        return HostsRead(cursor=newest, hosts=tuple(found), gone=frozenset(gone))

    def failing_hosts(self) -> frozenset[UUID]:
        """Return the hosts whose latest poll failed."""
        with self._database.read() as connection:
            missed = select(hosts.c.id).where(hosts.c.missed_polls > 0, _IN_USE)
            return frozenset(connection.scalars(missed))

    def _newest_stable_id(self) -> int:
        """Return an event id up to which no new change of a host can appear."""
        settled = newest_stable_id(self._database)
        if settled is not None:
            return settled
        with self._database.read() as connection:
            newest: int = connection.scalar(select(func.coalesce(func.max(events.c.id), 0))) or 0
        return newest


def _to_watched(row: Row[Any]) -> WatchedHost:
    """Return a host from its row as a monitor reads it."""
    return record_of(WatchedHost, row)
