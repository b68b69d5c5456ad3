"""Reads of console logs: a caller asks, a worker reads on the host, the caller gets the answer.

The row is first the question and then the answer. It exists while its caller waits;
rows of callers that left are deleted with a later question.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import and_, delete, insert, select, update

from registry.consoles.session_rows import placed_vm_name
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.host_access import HOST_COLUMNS, to_host_access
from registry.db.ids import uuid7
from registry.db.names import check_int
from registry.db.row_conversion import record_of
from registry.db.schema import assignments, console_reads, hosts, is_place
from registry.records.hosts import HostAccess

MAX_CONSOLE_BYTES: Final = 65_536
_KEPT_FOR: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleQuestion:
    """The console that a worker is to read, and its host."""

    id: UUID
    vm_id: UUID
    max_bytes: int
    after: int  #: bytes of the log that the caller has already
    host: HostAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleAnswer:
    """The part of a console log that a worker read, or the error."""

    content: bytes
    end: int  #: end position in the log, the next ``after``
    error: str | None


class ConsoleReads(Repository):
    """Stores requests to read console logs, and the workers' answers."""

    @retry_on_rollback
    def request(self, vm_id: UUID, *, max_bytes: int = MAX_CONSOLE_BYTES, after: int = 0) -> UUID:
        """Store a request for the end of a VM's console log; `ConflictError` without a host."""
        check_int("max_bytes", max_bytes, 1, MAX_CONSOLE_BYTES)
        check_int("after", after, 0, 2**63 - 1)
        key = uuid7()
        with self._database.write() as connection:
            now = db_now(connection)
            placed_vm_name(connection, vm_id)
            connection.execute(
                delete(console_reads).where(console_reads.c.requested_at < now - _KEPT_FOR)
            )
            connection.execute(
                insert(console_reads).values(
                    id=key, vm_id=vm_id, max_bytes=max_bytes, after=after, requested_at=now
                )
            )
        return key

    def question(self, id: UUID) -> ConsoleQuestion | None:  # noqa: A002 - the contract's name
        """Return which console log a worker is to read, or None if the caller has gone."""
        query = (
            select(console_reads, *HOST_COLUMNS)
            .select_from(console_reads)
            .join(assignments, and_(assignments.c.vm_id == console_reads.c.vm_id, is_place))
            .join(hosts, hosts.c.id == assignments.c.host_id)
            .where(console_reads.c.id == id, console_reads.c.answered_at.is_(None))
        )
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        return record_of(ConsoleQuestion, row, host=to_host_access(row))

    @retry_on_rollback
    def store_answer(self, id: UUID, answer: ConsoleAnswer) -> None:  # noqa: A002
        """Store the part of a console log that a worker read, unless there is an answer already."""
        with self._database.write() as connection:
            connection.execute(
                update(console_reads)
                .where(console_reads.c.id == id, console_reads.c.answered_at.is_(None))
                .values(
                    content=answer.content,
                    end_at=answer.end,
                    error=answer.error,
                    answered_at=db_now(connection),
                )
            )

    def find_answer(self, id: UUID) -> ConsoleAnswer | None:  # noqa: A002
        """Return the part of a console log that a worker read, or None while there is none."""
        query = select(console_reads).where(
            console_reads.c.id == id, console_reads.c.answered_at.is_not(None)
        )
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        return ConsoleAnswer(content=row.content or b"", end=row.end_at or 0, error=row.error)

    @retry_on_rollback
    def delete_question(self, id: UUID) -> None:  # noqa: A002
        """Delete a request to read a console log, with its answer."""
        with self._database.write() as connection:
            connection.execute(delete(console_reads).where(console_reads.c.id == id))
