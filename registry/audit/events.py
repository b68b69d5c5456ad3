"""History: each change of state is a row, written in the transaction that makes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, Table, select

from registry.audit.subjects import subjects_of_events
from registry.db.audit_context import AUDITED, set_audit_subject
from registry.db.background_statements import PreparedStatement
from registry.db.bulk import chunks, is_any_of, prepare_insert
from registry.db.clock import db_now
from registry.db.dialect import has_one_writer
from registry.db.engine import Database, Repository, retry_on_rollback
from registry.db.names import check_int
from registry.db.pages import check_limit
from registry.db.schema import events, hosts, requests, vms, volumes
from registry.records.journal import Event

#: A writer's lock key has the last event id before its own, in the bits below this.
_FLOORS: Final = """
    SELECT min(((classid::bigint << 32) | objid::bigint) & ((1::bigint << 48) - 1))
    FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND classid::bigint >> 16 = 26485
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


#: Subject types whose events have an id and whose rows have a name.
_NAMED: Final[Mapping[str, Table]] = {
    "vm": vms,
    "request": requests,
    "host": hosts,
    "volume": volumes,
}


def event_row(
    now: datetime,
    actor: str,
    kind: str,
    subject_type: str,
    subject_id: object,
    *,
    tenant: str | None = None,
    change: tuple[StrEnum | None, StrEnum] | None = None,
    event: StrEnum | None = None,
    reason: str | None = None,
    data: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the row of an event of the history; ``change`` is the state before and after."""
    before, after = change if change is not None else (None, None)
    return {
        "at": now,
        "actor": actor,
        "kind": kind,
        "subject_type": subject_type,
        "subject_id": str(subject_id),
        "tenant": tenant,
        "from_state": before.value if before is not None else None,
        "to_state": after.value if after is not None else None,
        "event": event.value if event is not None else None,
        "reason": reason,
        "data": dict(data or {}),
    }


def record_events(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append event rows, made by `event_row`, to the history."""
    prepare_events(connection, rows)()


def record_event(  # noqa: PLR0917 - those of `event_row`, and where
    connection: Connection,
    now: datetime,
    actor: str,
    kind: str,
    subject_type: str,
    subject_id: object,
    **details: Any,
) -> None:
    """Append one event to the history; ``details`` are further arguments of `event_row`."""
    record_events(connection, [event_row(now, actor, kind, subject_type, subject_id, **details)])


def prepare_events(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> PreparedStatement:
    """Compile `record_events`; the caller only executes it."""
    if rows and AUDITED in connection.get_execution_options():
        set_audit_subject(connection, rows[0]["subject_id"])
    return prepare_insert(connection, events, rows)


class Events(Repository):
    """Reads the history, and adds events that change no row."""

    @retry_on_rollback
    def add(
        self, *, actor: str, kind: str, subject_type: str, subject_id: str, reason: str
    ) -> None:
        """Append an event that changes no other row of the database."""
        with self._database.write() as connection:
            now = db_now(connection)
            record_event(connection, now, actor, kind, subject_type, subject_id, reason=reason)

    def find_subjects(self, given: str, tenant: str | None = None) -> tuple[str, ...]:
        """Return the ids under which events know a subject, by its id or name."""
        with self._database.read() as connection:
            return subjects_of_events(connection, given, tenant)

    def list(
        self,
        *,
        after: int = 0,
        subject_id: str | Collection[str] | None = None,
        tenant: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        newest: bool = False,
        limit: int = 100,
    ) -> tuple[Event, ...]:
        """Return events of the history above ``after``, by id; with ``newest`` the last of them.

        Events above the id of a running transaction are returned only once it ends. So a reader
        that continues after the last id it saw misses nothing.
        """
        query = select(events).where(events.c.id > check_int("after", after, 0, 2**63 - 1))
        if subject_id is not None:
            ids = [subject_id] if isinstance(subject_id, str) else sorted(subject_id)
            query = query.where(events.c.subject_id.in_(ids))
        if tenant is not None:
            query = query.where(events.c.tenant == tenant)
        if kind is not None:
            query = query.where(events.c.kind == kind)
        if since is not None:
            query = query.where(events.c.at >= since)
        order = events.c.id.desc() if newest else events.c.id
        query = query.order_by(order).limit(check_limit(limit))
        settled = newest_stable_id(self._database)
        if settled is not None:
            query = query.where(events.c.id <= settled)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
            names = _subject_names(connection, rows)
        found = [
            Event(**row._mapping, subject_name=name) for row, name in zip(rows, names, strict=True)
        ]
        return tuple(reversed(found)) if newest else tuple(found)


def newest_stable_id(database: Database) -> int | None:
    """Return an event id up to which no new event can appear; None on SQLite, which leaves no gaps.

    PostgreSQL gives ids before it commits. The order of the reads matters. First the last id given
    is read: each id up to it belongs to a finished transaction or to one that holds a lock whose
    key is lower, which a trigger takes. A snapshot taken after that sees all finished
    transactions.
    """
    with database.read() as connection:
        if has_one_writer(connection):
            return None
        last: int = connection.exec_driver_sql(
            "SELECT coalesce(pg_sequence_last_value('events_id_seq'), 0)"
        ).scalar_one()
        floor: int | None = connection.exec_driver_sql(_FLOORS).scalar_one()
    return last if floor is None else min(last, floor)


def _subject_names(connection: Connection, rows: Sequence[Row[Any]]) -> list[str | None]:
    """Return the names of the events' subjects; an assignment has the name of its VM."""
    keys = [_subject_key(row) for row in rows]
    names: dict[tuple[str, str], str] = {}
    for subject_type, table in _NAMED.items():
        ids = sorted({UUID(key[1]) for key in keys if key is not None and key[0] == subject_type})
        for some in chunks(ids):
            query = select(table.c.id, table.c.name).where(is_any_of(connection, table.c.id, some))
            for row in connection.execute(query):
                if row.name is not None:
                    names[subject_type, str(row.id)] = row.name
    return [names.get(key) if key is not None else None for key in keys]


def _subject_key(row: Row[Any]) -> tuple[str, str] | None:
    """Return the type and id by which an event's subject has a name, or None."""
    subject_type, key = row.subject_type, row.subject_id
    if subject_type == "assignment":
        subject_type, key = "vm", str(row.data.get("vm"))
    if subject_type not in _NAMED:
        return None
    try:
        return subject_type, str(UUID(key))
    except ValueError:
        return None
