"""The header Idempotency-Key: makes POSTs that create something safe to repeat.

A client that got no answer repeats the call with the same key. The record that the first call
created is stored with the key for 24 hours, in the same transaction
(`registry.db.idempotency_keys`), and is returned again. Refusals are not stored: nothing was
created, so the call may be tried again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeVar

from fastapi import Depends, Header
from pydantic import BaseModel, TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from controller.rest.dependencies import services_of
from controller.rest.middleware.audit_trail import record_route
from controller.rest.middleware.callers import CREDENTIALS, Caller, caller_of
from controller.rest.problems import patterns
from registry import AnsweredBeforeError, ConflictError, Registry, RegistryError
from registry.audit import AuditedCall, IdempotencyKey, IdempotentCall, parse_stored_record
from registry.tenancy import Derivation

REPLAYED_HEADER: Final = "Idempotency-Replayed"
JSON_TYPE: Final = "application/json"

T = TypeVar("T")

KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=patterns.IDEMPOTENCY_KEY,
        max_length=200,
        description="Makes the call safe to repeat for 24 hours: same key and body, same answer.",
    ),
]


@dataclass(frozen=True, slots=True)
class Creation:
    """A POST that creates something at most once per key."""

    registry: Registry
    caller: Caller
    call: AuditedCall | None
    path: str
    key: str | None
    credential: str = field(repr=False)  #: the secret of the caller's token

    def answer(
        self,
        body: BaseModel,
        create: Callable[[Registry], T],
        *,
        status: int,
        adapter: TypeAdapter[T],
        shown: Callable[[T], bytes] | None = None,
        of_caller: bool = False,
    ) -> Response:
        """Create a record and answer with it; for a repeated key, answer with the first record.

        Parameters
        ----------
        create : callable
            Creates a record in one transaction of the given register center.
        adapter : TypeAdapter
            The type of the records, for JSON.
        shown : callable, optional
            Returns the answer's body for a record; by default the record as JSON.
        of_caller : bool
            Bind the key to the caller's token, not to its tenant.
        """
        show = adapter.dump_json if shown is None else shown
        key = self.key_of(body, status, of_caller=of_caller)
        registry = self.registry.for_call(
            self.call, once=None if key is None else IdempotentCall(key)
        )
        if key is None:
            return _encode_json(show(create(registry)), status)
        keys = self.registry.idempotency
        keys.delete_expired()
        try:
            # First, because the earlier creation may be the reason why this one would fail.
            keys.check_unused(key)
            try:
                made = create(registry)
            except AnsweredBeforeError:
                raise
            except RegistryError:
                keys.check_unused(key)  # by the same call, just now
                raise
        except AnsweredBeforeError as before:
            return _replayed_answer(before, adapter, show)
        return _encode_json(show(made), status)

    async def answer_batched(
        self,
        body: BaseModel,
        create: Callable[[IdempotencyKey | None], Awaitable[T]],
        *,
        status: int,
        adapter: TypeAdapter[T],
        shown: Callable[[T], bytes],
    ) -> Response:
        """Create a record and answer as `answer` does, for a creation batched with others."""
        key = self.key_of(body, status)
        if key is not None and self.registry.idempotency.is_deletion_due():
            await run_in_threadpool(self.registry.idempotency.delete_expired)
        try:
            return _encode_json(shown(await create(key)), status)
        except AnsweredBeforeError as before:
            return _replayed_answer(before, adapter, shown)

    def key_of(
        self, body: BaseModel, status: int, *, of_caller: bool = False
    ) -> IdempotencyKey | None:
        """Return the caller's key, bound to its scope and to a digest of the body."""
        if self.key is None:
            return None
        # Bodies that differ only in spaces, order or explicit defaults have the same digest.
        meaning = f"{self.path}\n{body.model_dump_json()}"
        scope = f"{self.caller.scope}:{self.caller.token_id}" if of_caller else self.caller.scope
        fingerprint = hashlib.sha256(meaning.encode()).hexdigest()
        return IdempotencyKey(scope=scope, key=self.key, fingerprint=fingerprint, status=status)

    def derivation(self, salt: str | None = None) -> Derivation:
        """Return the derivation of a new secret, or of an earlier one by its salt."""
        if salt is None:
            return Derivation.random(self.credential)
        return Derivation(self.credential, salt)


# It takes the request alone: each FastAPI dependency costs every creating call.
async def _provide_creation(request: HttpRequest, key: KeyHeader = None) -> Creation:
    """Return the creation of a call, as a dependency of FastAPI."""
    record_route(request.scope)
    sent = CREDENTIALS.fullmatch(request.headers["authorization"].strip())
    assert sent is not None  # noqa: S101 - a known caller has sent one
    return Creation(
        registry=services_of(request).registry,
        caller=caller_of(request),
        call=request.scope.setdefault("state", {}).get("writing"),
        path=request.scope["path"],
        key=key,
        credential=sent[1],
    )


IdempotencyDep = Annotated[Creation, Depends(_provide_creation)]


def _replayed_answer(
    before: AnsweredBeforeError, adapter: TypeAdapter[T], shown: Callable[[T], bytes]
) -> Response:
    """Return the stored answer of the first call with the same Idempotency-Key."""
    try:
        record = parse_stored_record(adapter, before.body)
    except ValueError as error:
        raise ConflictError(
            f"the first call with Idempotency-Key {before.key!r} did its work, and was answered"
            f" {before.status} by another release of fuga, which this one cannot repeat: look for"
            " what it made"
        ) from error
    content = before.body.encode() if record is None else shown(record)
    return _encode_json(content, before.status, replayed=True)


def _encode_json(content: bytes, status: int, *, replayed: bool = False) -> Response:
    headers = {REPLAYED_HEADER: "true"} if replayed else {}
    return Response(content, status_code=status, media_type=JSON_TYPE, headers=headers)
