"""Creating POSTs that may be sent twice: the header Idempotency-Key.

A client that saw no answer repeats the call with the same key. The first answer is
kept for 24 hours per tenant and given again. Refusals are not kept: nothing was made,
so the call may be tried again with the same key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final, TypeVar

from fastapi import Depends, Header
from pydantic import BaseModel, TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from controller.rest.callers.auth import caller_of
from controller.rest.dependencies import registry_of, services_of
from controller.rest.problems import patterns
from controller.rest.problems.documents import KINDS
from controller.rest.writes.audit import note_route
from registry import AnsweredBeforeError, Registry
from registry.journal import IdempotencyKey, StoredAnswer

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
    """One creating POST; does its work once per key."""

    registry: Registry
    scope: str
    path: str
    key: str | None
    writing: Callable[[], Registry]  #: where writes are known to be the call's

    def answer(
        self,
        body: BaseModel,
        create: Callable[[], T],
        *,
        status: int,
        adapter: TypeAdapter[T],
        kept: Callable[[T], T] = lambda made: made,
    ) -> Response:
        """Create and answer, or give the answer of the first call with this key.

        ``kept`` turns what was made into what may be stored: secrets may not.
        """
        key = self.key_of(body)
        if key is None:
            return _json(adapter.dump_json(create()), status)
        self.registry.idempotency.forget_old()
        keys = self.writing().idempotency
        stored = keys.begin(key.scope, key.key, key.fingerprint)
        if stored is not None:
            return _json(stored.body.encode(), stored.status, replayed=True)
        try:
            made = create()
        except tuple(KINDS):
            keys.abandon(key.scope, key.key)
            raise
        stored_body = adapter.dump_json(kept(made)).decode()
        keys.complete(key.scope, key.key, status, stored_body)
        return _json(adapter.dump_json(made), status)

    async def answer_of_one(
        self,
        body: BaseModel,
        create: Callable[[IdempotencyKey | None, Callable[[T], StoredAnswer]], Awaitable[T]],
        *,
        status: int,
        adapter: TypeAdapter[T],
    ) -> Response:
        """The same where creating is one transaction, which keeps the key and the answer too."""
        told: list[tuple[T, StoredAnswer]] = []

        def answered(made: T) -> StoredAnswer:
            answer = StoredAnswer(status=status, body=adapter.dump_json(made).decode())
            told[:] = [(made, answer)]
            return answer

        key = self.key_of(body)
        if key is not None and self.registry.idempotency.may_forget():
            await run_in_threadpool(self.registry.idempotency.forget_old)
        try:
            made = await create(key, answered)
        except AnsweredBeforeError as before:
            return _json(before.body.encode(), before.status, replayed=True)
        # Made of it once: a transaction that was tried again made another thing of it.
        kept = next((answer for thing, answer in told if thing is made), None)
        answer = kept if kept is not None else answered(made)
        return _json(answer.body.encode(), answer.status)

    def key_of(self, body: BaseModel) -> IdempotencyKey | None:
        """Return the caller's key, bound to its scope and to what this body means."""
        if self.key is None:
            return None
        # Spaces, order and spelt-out defaults aside: what means the same is the same.
        meaning = f"{self.path}\n{body.model_dump_json()}"
        fingerprint = hashlib.sha256(meaning.encode()).hexdigest()
        return IdempotencyKey(scope=self.scope, key=self.key, fingerprint=fingerprint)


# It asks for what it needs by itself: each dependency costs every call that creates something.
async def _creation(request: HttpRequest, key: KeyHeader = None) -> Creation:
    note_route(request.scope)
    registry, scope = services_of(request).registry, caller_of(request).scope
    writing = partial(registry_of, request)
    return Creation(registry, scope, request.scope["path"], key, writing)


GivenCreation = Annotated[Creation, Depends(_creation)]


def _json(content: bytes, status: int, *, replayed: bool = False) -> Response:
    headers = {REPLAYED_HEADER: "true"} if replayed else {}
    return Response(content, status_code=status, media_type=JSON_TYPE, headers=headers)
