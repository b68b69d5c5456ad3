"""The call whose writes are audited: its row is written with the first of them.

Whatever a call changes, a transaction writes. The first that it commits carries a row of
the audit, so that nothing is changed that the audit does not know of; how the call ended
is added to that row later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, insert

from registry.clock import db_now
from registry.schema import audit


@dataclass(slots=True, kw_only=True)
class AuditedCall:
    """A call that may change something, as far as it is known yet."""

    method: str
    path: str
    address: str
    request_id: str = ""
    token_id: UUID | None = None
    token: str | None = None  #: None: nobody that is known
    tenant: str | None = None  #: None: an operator, or nobody
    route: str | None = None  #: the path's template
    subject: str | None = None  #: id of what it is about
    row: int | None = None  #: of the audit, once one is committed
    written: int | None = None  #: of the audit, by the transaction under way

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
        }


_call: ContextVar[AuditedCall | None] = ContextVar("call", default=None)


@contextmanager
def audited(call: AuditedCall) -> Iterator[None]:
    """Audit what is written inside; once the call says whose it is."""
    token = _call.set(call)
    try:
        yield
    finally:
        _call.reset(token)


def write_intent(connection: Connection) -> None:
    """Write the call's row in this transaction, unless one is committed already."""
    call = _call.get()
    if call is None or call.token is None or call.row is not None:
        return
    row = {"at": db_now(connection), **call.values()}
    call.written = connection.execute(insert(audit).values(row).returning(audit.c.id)).scalar_one()


def intent_committed() -> None:
    """Remember that the call's row is there to stay."""
    call = _call.get()
    if call is not None and call.row is None:
        call.row = call.written


def note_subject(subject_id: str) -> None:
    """Tell what the call is about, if its path does not."""
    call = _call.get()
    if call is not None and call.subject is None:
        call.subject = subject_id
