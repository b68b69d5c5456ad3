"""The audited call of a transaction. Its audit row is written with the call's first write.

The first transaction that a call commits contains its audit row, so nothing changes without
an entry. How the call ended
is added to the row later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, insert

from registry.db.bulk import insert_returning
from registry.db.clock import UtcNow
from registry.db.schema import audit

#: Status, route and subject of a call.
CallOutcome = tuple[int | None, str | None, str | None]


@dataclass(slots=True, kw_only=True)
class AuditedCall:
    """A changing call, with what is known of it so far."""

    method: str
    path: str
    address: str
    request_id: str = ""
    token_id: UUID | None = None
    token: str | None = None  #: None: an unknown caller
    tenant: str | None = None  #: None: an operator, or an unknown caller
    route: str | None = None  #: the path's template
    subject: str | None = None  #: id of the thing that the call is about
    status: int | None = None  #: status of the answer, if it is committed with the row
    row: int | None = None  #: id of the audit row, once it is committed
    written: int | None = None  #: id of the audit row in the transaction under way
    outcome_written: CallOutcome | None = None  #: the outcome written with that row

    def values(self) -> dict[str, Any]:
        """Return the columns of the call's audit row."""
        return {
            "request_id": self.request_id,
            "token_id": self.token_id,
            "token": self.token,
            "tenant": self.tenant,
            "address": self.address,
            "method": self.method,
            "path": self.path,
            "route": self.route,
            "subject": self.subject,
            "status": self.status,
        }

    def to_outcome(self, status: int | None) -> CallOutcome:
        """Return the values that the audit row stores of the call's outcome with a status."""
        return status, self.route, self.subject

    def has_outcome(self, status: int | None) -> bool:
        """Whether the call's audit row has the outcome of this status already."""
        return self.row is not None and self.outcome_written == self.to_outcome(status)


_INSERT: Final = insert(audit).values(at=UtcNow()).returning(audit.c.id)
#: The execution option that has a transaction's call.
AUDITED: Final = "audited"


def audited_call_of(connection: Connection) -> AuditedCall | None:
    """Return the audited call for which a transaction runs, or None."""
    call: AuditedCall | None = connection.get_execution_options().get(AUDITED)
    return call


def begin_audited_call(connection: Connection, call: AuditedCall) -> None:
    """Begin the audit of a transaction for a call.

    Values of the call from a transaction that was rolled back are cleared.
    """
    if call.row is None:
        call.subject = call.status = None
    connection.execution_options(**{AUDITED: call})


def insert_audit_row(connection: Connection, call: AuditedCall) -> None:
    """Insert the call's audit row in this transaction, unless one is committed already."""
    if call.token is None or call.row is not None:
        return
    call.outcome_written = call.to_outcome(call.status)
    call.written = connection.execute(_INSERT, call.values()).scalar_one()


def mark_audit_row_committed(call: AuditedCall) -> None:
    """Record that the call's audit row is committed."""
    if call.row is None:
        call.row = call.written


@dataclass(frozen=True, slots=True)
class UncommittedAuditRow:
    """The uncommitted audit row of a call in a batch of calls."""

    call: AuditedCall
    subject: str
    status: int | None
    row: int | None  #: None if an earlier transaction of the call wrote it


def insert_audit_rows(
    connection: Connection, calls: Sequence[tuple[AuditedCall, str, int | None]], now: datetime
) -> Sequence[UncommittedAuditRow]:
    """Insert the audit rows of several calls, each with its subject and stored status."""
    rows = [
        call.values() | {"at": now, "subject": subject, "status": status}
        for call, subject, status in calls
        if call.token is not None and call.row is None
    ]
    written = insert_returning(connection, audit, rows, ["id", "subject"])
    of_subjects = {row.subject: row.id for row in written}
    return [
        UncommittedAuditRow(call, subject, status, of_subjects.get(subject))
        for call, subject, status in calls
    ]


def mark_audit_rows_committed(intents: Sequence[UncommittedAuditRow]) -> None:
    """Record that the audit rows of these calls are committed."""
    for each in intents:
        each.call.subject = each.subject
        if each.row is not None:
            each.call.row, each.call.status = each.row, each.status
            each.call.outcome_written = each.call.to_outcome(each.status)


def set_audit_subject(connection: Connection, subject_id: str) -> None:
    """Set the subject of the transaction's audited call unless its path had one."""
    call = audited_call_of(connection)
    if call is not None and call.subject is None:
        call.subject = subject_id
