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
    request_id: str  #: value of `X-Request-Id`, also in the log
    token_id: UUID | None
    token: str | None  #: name of the token; None without a valid one
    tenant: str | None  #: None for operators and unknown callers
    address: str  #: address of the caller
    method: str
    path: str
    route: str | None  #: None if the call was refused before its route was known
    subject: str | None  #: id of the resource that the call concerns
    status: int | None  #: None if the process that served the call died before it answered
    suppressed: int  #: other refused calls of the caller in that minute
    #: how many were refused, this one too, by ``STATUS METHOD ROUTE``; None: this one alone
    refusals: Mapping[str, int] | None
    last_at: datetime | None  #: when the last of them was; None: this one alone


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """A key of a creating call: unique in its scope, and for one body (its fingerprint)."""

    scope: str
    key: str
    fingerprint: str
    status: int = 201  #: status of the answer to the first call
