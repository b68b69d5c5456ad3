"""What surrounds every call, outermost first: access log, authentication, body guard.

Plain ASGI, because an endpoint must not run, nor a body be read, before the caller is
known; and because errors raised here become problems in one place, `AccessLog`.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from typing import Any, Final

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.rest.auth import Gate
from controller.rest.errors import (
    BodyTooLargeError,
    MalformedBodyError,
    UnauthorizedError,
    UnsupportedMediaTypeError,
)
from controller.rest.limits import Limits, address_of
from controller.rest.metrics import HttpMetrics
from controller.rest.paths import PROTECTED_PREFIX, is_protected
from controller.rest.problems import problem_of
from registry import Registry

REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
JSON_TYPE: Final = re.compile(r"application/json(;\s*charset=\"?utf-8\"?)?", re.IGNORECASE)
MAX_DEPTH: Final = 16
BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)
#: The one body that is no JSON, and too large to be held: its endpoint reads it piece by piece.
STREAMED: Final = f"{PROTECTED_PREFIX}/images/upload"

log = structlog.get_logger(__name__)


class AccessLog:
    """One line per call; its id; and the last catch for every error."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        http_request_id = given if REQUEST_ID.fullmatch(given) else str(uuid.uuid4())
        call = scope.get("state", {}).get("audited")
        if call is not None:
            call.request_id = http_request_id
        started = time.perf_counter()
        status: int | None = None

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = http_request_id
                headers["X-Content-Type-Options"] = "nosniff"
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        with structlog.contextvars.bound_contextvars(http_request_id=http_request_id):
            try:
                await self.app(scope, receive, send_and_note)
            except Exception as error:  # the one place where any error becomes an answer
                if status is not None:
                    raise
                problem = problem_of(error, method=scope["method"], path=scope["path"])
                await problem.response()(scope, receive, send_and_note)
            finally:
                caller = scope.get("state", {}).get("caller")
                seconds = time.perf_counter() - started
                self.metrics.count(scope, status, seconds)
                (log.error if status is None or status >= 500 else log.info)(
                    "http_request",
                    method=scope["method"],
                    path=scope["path"][:200],
                    status=status,
                    duration_ms=round(seconds * 1000, 1),
                    token=caller.token if caller else None,
                )


class Authentication:
    """Lets nobody past without a live token, below /v1 and to metrics.

    Nor whoever calls too often, nor a token that only reads to where things change.
    """

    def __init__(self, app: ASGIApp, registry: Registry, limits: Limits) -> None:
        self.app = app
        self.gate = Gate(registry)
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call."""
        if scope["type"] == "http" and is_protected(scope["path"]):
            await self._admit(scope)
        await self.app(scope, receive, send)

    async def _admit(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        credentials = headers.get("authorization")
        address = address_of(scope)
        self.limits.before_authentication(address, credentials)
        try:
            caller = await self.gate.authenticate(headers)
        except UnauthorizedError:
            self.limits.failed(address)
            raise
        state = scope.setdefault("state", {})
        state["caller"] = caller
        call = state.get("audited")
        if call is not None:
            call.token_id, call.token, call.tenant = caller.token_id, caller.token, caller.tenant
        self.limits.passed(caller, credentials)
        caller.check_method(scope["method"])


class BodyGuard:
    """Reads the whole body, bounded, and refuses what is not strict, shallow JSON."""

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self.app = app
        self.max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["path"] == STREAMED:  # other methods are refused by the router, unread
            await self.app(scope, receive, send)
            return
        body = await self._read(Headers(scope=scope), receive)
        if body and scope["method"] in {"POST", "PATCH", "PUT"}:
            content_type = Headers(scope=scope).get("content-type")
            if content_type is None or not JSON_TYPE.fullmatch(content_type.strip()):
                raise UnsupportedMediaTypeError(content_type)
            check_json(body)
        given = False

        async def receive_again() -> Message:
            nonlocal given
            if given:
                return await receive()  # the disconnect, some day
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, receive_again, send)

    async def _read(self, headers: Headers, receive: Receive) -> bytes:
        announced = headers.get("content-length", "0")
        if announced.isdecimal() and int(announced[:20]) > self.max_body_bytes:
            raise BodyTooLargeError(self.max_body_bytes)
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise MalformedBodyError("it ended early")
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > self.max_body_bytes:
                raise BodyTooLargeError(self.max_body_bytes)
            if not message.get("more_body", False):
                return b"".join(chunks)


def check_json(body: bytes) -> None:
    """Raise `MalformedBodyError` unless the body is JSON that means one thing.

    Python's parser takes NaN, the last of two equal names and any depth; we do not.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBodyError(f"byte {error.start} is not UTF-8") from error
    _check_depth(text)
    try:
        json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeated_names)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise MalformedBodyError(f"{error.msg} at {place}") from error
    except ValueError as error:  # an integer of thousands of digits
        raise MalformedBodyError("a number is too long") from error


def _check_depth(text: str) -> None:
    """Bound the nesting before the recursive parser sees it; brackets in strings do not count."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for token in BRACKETS.finditer(text):
        first = token[0][0]
        if first in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise MalformedBodyError(f"it is nested deeper than {MAX_DEPTH} levels")
        elif first in "]}":
            depth -= 1


def _refuse_constant(name: str) -> Any:
    raise MalformedBodyError(f"{name} is not a JSON number")


def _refuse_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise MalformedBodyError("an object has the same name twice")
    return members
