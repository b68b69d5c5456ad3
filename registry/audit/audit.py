"""The audit log: every changing call, who made it, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Text, cast, insert, or_, select, update

from registry.audit.subjects import subjects_of_audit
from registry.db.audit_context import AuditedCall
from registry.db.clock import db_now
from registry.db.dialect import has_one_writer
from registry.db.engine import Repository, retry_on_rollback
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, decode_cursor, page_of
from registry.db.schema import audit
from registry.records.journal import AuditEntry

REFUSED = (401, 403, 429)


class Audit(Repository):
    """The audit log: completes and reads the entries that `registry.db.audit_context` begins."""

    @retry_on_rollback
    def finish(self, call: AuditedCall, status: int | None) -> int:
        """Record a changing call's outcome in the audit log; return the row's id."""
        with self._database.write() as connection:
            if call.row is None:
                row = {"at": db_now(connection), **call.values(), "status": status}
                made = insert(audit).values(row).returning(audit.c.id)
                return int(connection.execute(made).scalar_one())
            if not has_one_writer(connection):
                # The row is safe. Its status may be lost with the last moment
                # before the database's machine fails, so it needs no sync.
                connection.exec_driver_sql("SET LOCAL synchronous_commit TO off")
            ended = {"status": status, "route": call.route, "subject": call.subject}
            connection.execute(update(audit).where(audit.c.id == call.row).values(ended))
            return call.row

    @retry_on_rollback
    def add_refusals(self, row: int, refusals: Mapping[str, int], *, last_ago_s: float) -> None:
        """Count a caller's later refusals in the row of the first.

        Parameters
        ----------
        row : int
            The row that `finish` returned.
        refusals : Mapping[str, int]
            Number of refusals, with the first, by ``STATUS METHOD ROUTE``.
        last_ago_s : float
            Seconds since the last refusal.
        """
        with self._database.write() as connection:
            intent = {
                "refusals": dict(refusals),
                "suppressed": sum(refusals.values()) - 1,
                "last_at": db_now(connection) - timedelta(seconds=last_ago_s),
            }
            connection.execute(update(audit).where(audit.c.id == row).values(intent))

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
        """Return a page of the audit log, newest first; ``subject`` is an id or a name.

        Raises `InvalidError` if no subject has that name, or several have it.
        """
        query = select(audit).order_by(audit.c.id.desc()).limit(check_limit(limit) + 1)
        exact = {audit.c.token: token, audit.c.tenant: tenant, audit.c.request_id: request_id}
        wanted = [column == value for column, value in exact.items() if value is not None]
        wanted += _period_conditions(since, until)
        if method is not None:
            wanted.append((audit.c.method == method) | _has_refusal_like(f" {method} "))
        if status is not None:
            wanted.append((audit.c.status == status) | _has_refusal_like(f'"{status} '))
        if refused:
            gathered = (_has_refusal_like(f'"{each} ') for each in REFUSED)
            wanted.append(or_(audit.c.status.in_(REFUSED), *gathered))
        if cursor is not None:
            (before,) = decode_cursor(cursor, int)
            wanted.append(audit.c.id < before)
        with self._database.read() as connection:
            if subject is not None:
                wanted.append(audit.c.subject.in_(subjects_of_audit(connection, subject)))
            rows = connection.execute(query.where(*wanted))
            found = [AuditEntry(**row._mapping) for row in rows]
        return page_of(found, limit, lambda entry: (entry.id,))


def _has_refusal_like(part: str) -> ColumnElement[bool]:
    """Return the condition for audit rows of counted refusals whose routes contain ``part``."""
    return cast(audit.c.refusals, Text).contains(part, autoescape=True)


def _period_conditions(
    since: datetime | None, until: datetime | None
) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions that an audit entry lies in a period."""
    if since is not None:
        yield audit.c.at >= since
    if until is not None:
        yield audit.c.at < until
