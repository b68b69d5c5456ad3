"""Events, audit entries and stored answers: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A change, with its actor and reason."""

    id: int
    at: datetime
    actor: str
    kind: str
    subject_type: str
    subject_id: str
    tenant: str | None
    from_state: str | None
    to_state: str | None
    event: str | None
    reason: str | None
    data: Mapping[str, Any]
    #: Of the request, VM or host; of an assignment, its VM's. None: it has none, or is gone.
    subject_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A changing call, and how it ended.

    Of calls that were refused, and changed nothing, the first of a caller in a minute has an
    entry, which counts the others of that minute.
    """

    id: int
    at: datetime
    request_id: str  #: as in the log and in `X-Request-Id`
    token_id: UUID | None
    token: str | None  #: its name; None: there was no good one
    tenant: str | None  #: None: an operator, or an unknown caller
    address: str  #: where it came from
    method: str
    path: str
    route: str | None  #: None: refused before it was looked for
    subject: str | None  #: id of what it was about
    status: int | None  #: None: the process that served it died before it could answer
    suppressed: int  #: other calls of its caller that were refused in that minute
    #: how many were refused, this one too, by ``STATUS METHOD ROUTE``; None: this one alone
    refusals: Mapping[str, int] | None
    last_at: datetime | None  #: when the last of them was; None: this one alone


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """A key of a creating call: unique in its scope, and for one body (its fingerprint)."""

    scope: str
    key: str
    fingerprint: str
    status: int = 201  #: of the answer to a call that does its work
