"""Reads request bodies: after caller and route are checked, with bounds, as strict JSON.

Unknown paths, unknown callers, missing rights, unknown versions, and unsupported types or lengths
are answered before the body is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Message, Receive, Scope

from controller.rest.etags import set_condition
from controller.rest.middleware.callers import SAFE_METHODS, check_operator, requires_operator
from controller.rest.problems.errors import (
    BodyTooLargeError,
    MalformedBodyError,
    UnsupportedMediaTypeError,
)

MAX_BODY_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 16
#: The largest useful bodies name a thousand hosts, or a few thousand VMs.
MAX_CONTAINERS: Final = 2_000
MAX_VALUES: Final = 20_000
#: Longer bodies are parsed in a thread, so that the event loop serves other calls.
MAX_PARSED_IN_LOOP_BYTES: Final = 8 * 1024
JSON_TYPE: Final = re.compile(r"application/json(;\s*charset=\"?utf-8\"?)?", re.IGNORECASE)
#: Possessive: a string without an end is scanned once, not once from each of its quotes.
_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BRACKET: Final = re.compile(r"[\[{\]}]")

Handler = Callable[[HttpRequest], Coroutine[Any, Any, Response]]


class BoundedRoute(APIRoute):
    """A route that reads the body only after all checks that need no body."""

    def get_route_handler(self) -> Handler:
        """Return FastAPI's own handler, behind the checks."""
        serve = super().get_route_handler()
        for_operators = _depends_on(self.dependant, requires_operator)
        has_body = self.body_field is not None

        async def check_and_serve(request: HttpRequest) -> Response:
            given = request.headers.getlist("if-match")  # several lines are one list
            if given and request.method not in SAFE_METHODS:
                set_condition(request, ",".join(given))
            if for_operators:
                check_operator(request)
            if has_body:
                request = await _with_checked_body(request.scope, request.receive)
            return await serve(request)

        return check_and_serve


class _CheckedRequest(HttpRequest):
    """A call whose body was read and parsed already."""

    def __init__(self, scope: Scope, receive: Receive, body: bytes, parsed: Any) -> None:
        super().__init__(scope, receive)
        self._checked = body, parsed

    async def body(self) -> bytes:
        """Return the bytes of the body."""
        return self._checked[0]

    async def json(self) -> Any:
        """Return the parsed JSON of the body."""
        return self._checked[1]


async def _with_checked_body(scope: Scope, receive: Receive) -> HttpRequest:
    """Read the body of a call within the limits; return the call with its parsed JSON."""
    headers = Headers(scope=scope)
    _check_headers(headers)
    body = await _read_body(receive)
    parsed = None
    if len(body) > MAX_PARSED_IN_LOOP_BYTES:
        parsed = await run_in_threadpool(parse_json, body)
    elif body:
        parsed = parse_json(body)
    return _CheckedRequest(scope, receive, body, parsed)


def _depends_on(dependant: Dependant, call: Callable[..., Any]) -> bool:
    """Return whether an endpoint has this dependency, directly or through another."""
    return any(each.call is call or _depends_on(each, call) for each in dependant.dependencies)


def _check_headers(headers: Headers) -> None:
    """Refuse an unsupported type or length by the headers alone."""
    length = headers.get("content-length", "0")
    if length == "0" and "transfer-encoding" not in headers:
        return
    content_type = headers.get("content-type")
    if content_type is None or not JSON_TYPE.fullmatch(content_type.strip()):
        raise UnsupportedMediaTypeError(content_type)
    if length.isdecimal() and int(length[:20]) > MAX_BODY_BYTES:
        raise BodyTooLargeError(MAX_BODY_BYTES)


async def _read_body(receive: Receive) -> bytes:
    """Read a body up to the size limit."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            raise MalformedBodyError("it ended early")
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > MAX_BODY_BYTES:
            raise BodyTooLargeError(MAX_BODY_BYTES)
        if not message.get("more_body", False):
            return b"".join(chunks)


def parse_json(body: bytes) -> Any:
    """Parse JSON that has exactly one meaning, or raise `MalformedBodyError`.

    Unlike Python's parser, this one refuses NaN, repeated names, and too many or too deeply nested
    values. The models refuse lone surrogates, and name their field.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBodyError(f"byte {error.start} is not UTF-8") from error
    _check_bounds(text)
    try:
        return json.loads(
            text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeated_names
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise MalformedBodyError(f"{error.msg} at {place}") from error
    except ValueError as error:  # an integer of thousands of digits
        raise MalformedBodyError("a number is too long") from error


def _check_bounds(text: str) -> None:
    """Check depth and number of values before the parser runs; contents of strings do not count."""
    if text.count('"') > 2 * MAX_VALUES:
        raise MalformedBodyError(f"it has more than {MAX_VALUES} strings")
    if text.count("[") + text.count("{") <= MAX_DEPTH and text.count(",") <= MAX_VALUES:
        return
    bare = _STRING.sub("", text)
    if bare.count(",") > MAX_VALUES:
        raise MalformedBodyError(f"it has more than {MAX_VALUES} values")
    if bare.count("[") + bare.count("{") > MAX_CONTAINERS:
        raise MalformedBodyError(f"it has more than {MAX_CONTAINERS} lists and objects")
    depth = 0
    for bracket in _BRACKET.finditer(bare):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > MAX_DEPTH:
            raise MalformedBodyError(f"it is nested deeper than {MAX_DEPTH} levels")


def _refuse_constant(name: str) -> Any:
    raise MalformedBodyError(f"{name} is not a JSON number")


def _refuse_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise MalformedBodyError("an object has the same name twice")
    return members
