"""What a control centre knows of hosts and their inventories from its last read.

On PostgreSQL every row tells which transaction wrote it (``xmin``). Whatever was
written by one that was over before the oldest that ran during the last read, the
last read saw; all else is read again, also what it had seen. So a round reads the
rows that changed, and never misses one. Numbers of transactions in rows are the
lower half of the real ones and come again after 2^32: after a quarter of that, on
another server, database or start of it, or with other resources, everything is
read anew, and so it always is on SQLite.

Rows of inventories and hosts are never deleted; retired hosts are left out.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Row,
    Text,
    cast,
    literal_column,
    select,
)

from registry.ground.schema import hosts, inventories
from registry.lifecycle import HostAdmin, HostHealth
from registry.records.rounds import HostView

_WRAP: Final = 2**32
_ANEW_AFTER: Final = 2**30
_NOTHING: Final = (0, 0)
_SNAPSHOT: Final = """
    SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest,
           pg_postmaster_start_time()::text AS started,
           (SELECT oid::bigint FROM pg_database WHERE datname = current_database()) AS database
"""


@dataclass(frozen=True, slots=True)
class _Since:
    """When a read was, and of what."""

    oldest: int  #: transactions below were over
    place: tuple[object, ...]

    def serves(self, now: _Since) -> bool:
        """Return whether a later read may rest on this one."""
        return self.place == now.place and 0 <= now.oldest - self.oldest < _ANEW_AFTER


class KnownHosts:
    """Hosts that are not retired, and what is known of them; for one reader at a time."""

    def __init__(self) -> None:
        self._since: _Since | None = None
        self._rows: dict[UUID, Row[Any]] = {}
        self._amounts: defaultdict[UUID, dict[str, tuple[int, int]]] = defaultdict(dict)
        self._views: dict[UUID, HostView] = {}
        self._by_name: tuple[UUID, ...] = ()
        self.rows_read = 0  #: by the last read

    def read(
        self, connection: Connection, axis: Sequence[str], now: datetime
    ) -> tuple[HostView, ...]:
        """Return all hosts as they are in this transaction, by name."""
        before, since = self._since, _since(connection, axis)
        self._since = None  # a read that is cut short is begun anew
        if before is None or since is None or not before.serves(since):
            self._rows.clear()
            self._amounts.clear()
            self._views.clear()
            changed = self._take(connection, None)
        else:
            changed = self._take(connection, before.oldest)
        for key in changed:
            self._view(key, axis, now)
        if changed:
            named = sorted((view.name, key) for key, view in self._views.items())
            self._by_name = tuple(key for _, key in named)
        for key, row in self._rows.items():
            if row.held_back_until is not None:  # time alone changes whether it still is
                self._view(key, axis, now)
        self._since = since
        return tuple(self._views[key] for key in self._by_name)

    def _take(self, connection: Connection, floor: int | None) -> set[UUID]:
        """Take rows that were written since; return the hosts that changed."""
        of_inventories = select(
            inventories.c.host_id,
            inventories.c.resource,
            inventories.c.capacity,
            inventories.c.committed,
        )
        of_hosts = select(
            hosts.c.id,
            hosts.c.name,
            hosts.c.version,
            hosts.c.admin,
            hosts.c.health,
            cast(hosts.c.labels, Text).label("labels"),
            hosts.c.held_back_until,
            hosts.c.pool_silent_since.is_not(None).label("pool_silent"),
        )
        if floor is not None:
            of_inventories = of_inventories.where(_written_since("inventories", floor))
            of_hosts = of_hosts.where(_written_since("hosts", floor))
        amounts = connection.execute(of_inventories).all()
        rows = connection.execute(of_hosts).all()
        for host_id, resource, capacity, committed in amounts:
            self._amounts[host_id][resource] = (capacity, committed)
        # What a poll writes to the row of its host is nothing that is read here.
        changed = [row for row in rows if self._rows.get(row.id) != row]
        for row in changed:
            self._rows[row.id] = row
        self.rows_read = len(amounts) + len(rows)
        return {host_id for host_id, *_ in amounts} | {row.id for row in changed}

    def _view(self, key: UUID, axis: Sequence[str], now: datetime) -> None:
        row, amounts = self._rows[key], self._amounts[key]
        if row.admin == HostAdmin.RETIRED.value:
            self._views.pop(key, None)
            return
        is_up = row.admin == HostAdmin.ACTIVE.value and row.health == HostHealth.UP.value
        is_open = is_up and not row.pool_silent
        held_back = row.held_back_until is not None and row.held_back_until > now
        self._views[key] = HostView(
            id=row.id,
            name=row.name,
            version=row.version,
            accepts=is_open and not held_back,
            labels=_labels(row.labels),
            capacity=tuple(amounts.get(name, _NOTHING)[0] for name in axis),
            committed=tuple(amounts.get(name, _NOTHING)[1] for name in axis),
            held_back_until=row.held_back_until if is_open and held_back else None,
        )


@functools.lru_cache(maxsize=10_000)
def _labels(stored: str) -> tuple[str, ...]:
    """Return labels as they are stored; most hosts are labelled like many others."""
    return tuple(json.loads(stored))


def _since(connection: Connection, axis: Sequence[str]) -> _Since | None:
    if connection.dialect.name == "sqlite":
        return None
    row = connection.exec_driver_sql(_SNAPSHOT).one()
    return _Since(oldest=row.oldest, place=(row.started, row.database, tuple(axis)))


def _written_since(table: str, oldest: int) -> ColumnElement[bool]:
    """Return the condition that a transaction wrote a row that might not have been over then."""
    ahead = f"(({table}.xmin::text::bigint - {oldest % _WRAP}) & {_WRAP - 1})"
    return literal_column(f"({ahead} < {_WRAP // 2})", Boolean())
