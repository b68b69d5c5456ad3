"""The call whose writes are audited: its row is written with the first of them.

Whatever a call changes, a transaction writes. The first that it commits carries a row of
the audit, so that nothing is changed that the audit does not know of; how the call ended
is added to that row later.
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

#: Status, route, subject.
CallOutcome = tuple[int | None, str | None, str | None]


@dataclass(slots=True, kw_only=True)
class AuditedCall:
    """A call that may change something, as far as it is known yet."""

    method: str
    path: str
    address: str
    request_id: str = ""
    token_id: UUID | None = None
    token: str | None = None  #: None: an unknown caller
    tenant: str | None = None  #: None: an operator, or an unknown caller
    route: str | None = None  #: the path's template
    subject: str | None = None  #: id of what it is about
    status: int | None = None  #: of the answer, where one is committed with the row
    row: int | None = None  #: of the audit, once one is committed
    written: int | None = None  #: of the audit, by the transaction under way
    outcome_written: CallOutcome | None = None  #: with that row

    def values(self) -> dict[str, Any]:
        """Return what the audit keeps of it."""
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

    def outcome_with(self, status: int | None) -> CallOutcome:
        """Return what is known at the end."""
        return status, self.route, self.subject

    def is_noted(self, status: int | None) -> bool:
        """Whether the row says already that the call ended like this."""
        return self.row is not None and self.outcome_written == self.outcome_with(status)


_INSERT: Final = insert(audit).values(at=UtcNow()).returning(audit.c.id)
#: Where a transaction says whose call it is for.
AUDITED: Final = "audited"


def call_of(connection: Connection) -> AuditedCall | None:
    """Return the call that a transaction is for, if it is audited."""
    call: AuditedCall | None = connection.get_execution_options().get(AUDITED)
    return call


def begin_audited(connection: Connection, call: AuditedCall) -> None:
    """Let a transaction be for a call.

    What one that was taken back said of the call is forgotten.
    """
    if call.row is None:
        call.subject = call.status = None
    connection.execution_options(**{AUDITED: call})


def write_intent(connection: Connection, call: AuditedCall) -> None:
    """Write the call's row in this transaction, unless one is committed already."""
    if call.token is None or call.row is not None:
        return
    call.outcome_written = call.outcome_with(call.status)
    call.written = connection.execute(_INSERT, call.values()).scalar_one()


def intent_committed(call: AuditedCall) -> None:
    """Remember that the call's row is there to stay."""
    if call.row is None:
        call.row = call.written


@dataclass(frozen=True, slots=True)
class AuditIntent:
    """What the audit says of a call that wrote together with others, not committed yet."""

    call: AuditedCall
    subject: str
    status: int | None
    row: int | None  #: None: an earlier transaction of the call wrote it


def write_intents(
    connection: Connection, calls: Sequence[tuple[AuditedCall, str, int | None]], now: datetime
) -> Sequence[AuditIntent]:
    """Write the rows of several calls, each with its subject and the status that is kept."""
    rows = [
        call.values() | {"at": now, "subject": subject, "status": status}
        for call, subject, status in calls
        if call.token is not None and call.row is None
    ]
    written = insert_returning(connection, audit, rows, ["id", "subject"])
    of_subjects = {row.subject: row.id for row in written}
    return [
        AuditIntent(call, subject, status, of_subjects.get(subject))
        for call, subject, status in calls
    ]


def note_committed(intents: Sequence[AuditIntent]) -> None:
    """Remember that the rows of these calls are there to stay."""
    for each in intents:
        each.call.subject = each.subject
        if each.row is not None:
            each.call.row, each.call.status = each.row, each.status
            each.call.outcome_written = each.call.outcome_with(each.status)


def note_subject(connection: Connection, subject_id: str) -> None:
    """Set the subject of the call, if its path does not have it."""
    call = call_of(connection)
    if call is not None and call.subject is None:
        call.subject = subject_id
