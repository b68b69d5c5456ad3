"""The audit: every call that may change something, who made it, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import ColumnElement, insert, select, update

from registry.audited import AuditedCall
from registry.clock import db_now
from registry.engine import Database, retried
from registry.locks import has_one_writer
from registry.pages import DEFAULT_LIMIT, Page, check_limit, decode_cursor, page_of
from registry.records import AuditEntry
from registry.schema import audit

REFUSED = (401, 403, 429)


class Audit:
    """Ends what `audited` began, and reads it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @retried
    def finish(self, call: AuditedCall, status: int | None, *, untold: int = 0) -> None:
        """Say how a call ended; one that wrote nothing gets its row only now.

        ``untold`` is how many like it were refused before it and have no row.
        """
        with self._database.write() as connection:
            if call.row is None:
                row = {"at": db_now(connection), **call.values()}
                connection.execute(insert(audit).values(row | {"status": status, "untold": untold}))
                return
            if not has_one_writer(connection):
                # The row is safe; what the answer was may be lost with the last moment
                # before the database's machine dies, and is nothing to wait for.
                connection.exec_driver_sql("SET LOCAL synchronous_commit TO off")
            ended = {"status": status, "route": call.route, "subject": call.subject}
            connection.execute(update(audit).where(audit.c.id == call.row).values(ended))

    def list(
        self,
        *,
        token: str | None = None,
        tenant: str | None = None,
        method: str | None = None,
        status: int | None = None,
        refused: bool = False,
        subject: str | None = None,
        request_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page[AuditEntry]:
        """Return a page, newest first."""
        query = select(audit).order_by(audit.c.id.desc()).limit(check_limit(limit) + 1)
        exact = {
            audit.c.token: token,
            audit.c.tenant: tenant,
            audit.c.method: method,
            audit.c.status: status,
            audit.c.subject: subject,
            audit.c.request_id: request_id,
        }
        wanted = [column == value for column, value in exact.items() if value is not None]
        wanted += _between(since, until)
        if refused:
            wanted.append(audit.c.status.in_(REFUSED))
        if cursor is not None:
            (before,) = decode_cursor(cursor, int)
            wanted.append(audit.c.id < before)
        with self._database.read() as connection:
            rows = connection.execute(query.where(*wanted))
            found = [AuditEntry(**row._mapping) for row in rows]
        return page_of(found, limit, lambda entry: (entry.id,))


def _between(since: datetime | None, until: datetime | None) -> Iterator[ColumnElement[bool]]:
    if since is not None:
        yield audit.c.at >= since
    if until is not None:
        yield audit.c.at < until
