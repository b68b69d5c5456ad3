"""Every error as an RFC 9457 problem document, from one table.

The fields of a problem: ``type`` names the kind (a name; its path says what it means),
``code`` is its last part for programs, ``title`` the same for people, ``detail`` says
what happened this time and what to do. ``errors`` lists the errors of the
input: ``in`` (body, query, path or header), ``pointer`` (a JSON pointer into the body)
or ``parameter``, what was found there and what is allowed.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

import structlog
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import compile_path

from controller.errors import ConsoleUnreadError, PolicyFailedError
from controller.rest.problems.errors import (
    BodyTooLargeError,
    ForbiddenError,
    HeaderError,
    LoginRefusedError,
    MalformedBodyError,
    OverloadedError,
    ProviderError,
    RateLimitedError,
    UnauthorizedError,
    UnsupportedMediaTypeError,
    VersionMismatchError,
)
from controller.rest.problems.input_errors import (
    UNKNOWN,
    RefusedCall,
    input_errors,
    input_errors_summary,
    quotable_value,
    refused_call_of,
)
from registry import (
    CapacityExceededError,
    ConflictError,
    DatabaseFullError,
    DuplicateError,
    IdempotencyConflictError,
    IdempotencyInProgressError,
    IllegalTransitionError,
    ImageRefusedError,
    ImageStoreError,
    ImageTooLargeError,
    ImageUrlRefusedError,
    InvalidError,
    MoveRefusedError,
    NotFoundError,
    QuotaExceededError,
    RegistryUnavailableError,
    ReservationError,
    RoundDamagedError,
    RoundPurgedError,
    SchemaOutdatedError,
    UriRefusedError,
)

MEDIA_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "https://fuga.invalid/problems/"
ERRORS_SHOWN: Final = 20

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """A kind of problem: its status, code and title."""

    status: HTTPStatus
    code: str
    title: str


INVALID: Final = ProblemKind(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", "Invalid input")
INTERNAL: Final = ProblemKind(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "Internal error")

#: Kind of each error class and of its subclasses.
KINDS: Final[Mapping[type[Exception], ProblemKind]] = MappingProxyType(
    {
        UnauthorizedError: ProblemKind(
            HTTPStatus.UNAUTHORIZED, "unauthorized", "Token missing or invalid"
        ),
        LoginRefusedError: ProblemKind(HTTPStatus.UNAUTHORIZED, "login_refused", "Login refused"),
        ProviderError: ProblemKind(
            HTTPStatus.GATEWAY_TIMEOUT, "provider_failed", "Provider failed"
        ),
        ForbiddenError: ProblemKind(
            HTTPStatus.FORBIDDEN, "forbidden", "Not allowed with this token"
        ),
        RateLimitedError: ProblemKind(
            HTTPStatus.TOO_MANY_REQUESTS, "rate_limited", "Too many calls"
        ),
        OverloadedError: ProblemKind(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", "Server busy"),
        QuotaExceededError: ProblemKind(HTTPStatus.FORBIDDEN, "quota_exceeded", "Quota exceeded"),
        MalformedBodyError: ProblemKind(
            HTTPStatus.BAD_REQUEST, "malformed", "Body is not valid JSON"
        ),
        BodyTooLargeError: ProblemKind(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", "Body too large"
        ),
        UnsupportedMediaTypeError: ProblemKind(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "Unsupported content type"
        ),
        ImageTooLargeError: ProblemKind(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", "Body too large"
        ),
        ImageRefusedError: ProblemKind(
            HTTPStatus.UNPROCESSABLE_ENTITY, "image_refused", "Image refused"
        ),
        ImageUrlRefusedError: ProblemKind(
            HTTPStatus.UNPROCESSABLE_ENTITY, "url_refused", "Image URL not allowed"
        ),
        ImageStoreError: ProblemKind(
            HTTPStatus.INSUFFICIENT_STORAGE, "image_store_failed", "Image store failed"
        ),
        RequestValidationError: INVALID,
        InvalidError: INVALID,
        HeaderError: INVALID,
        UriRefusedError: ProblemKind(
            HTTPStatus.UNPROCESSABLE_ENTITY, "uri_refused", "libvirt URI not allowed"
        ),
        NotFoundError: ProblemKind(HTTPStatus.NOT_FOUND, "not_found", "Not found"),
        RoundPurgedError: ProblemKind(HTTPStatus.GONE, "purged", "Purged"),
        RoundDamagedError: ProblemKind(HTTPStatus.GONE, "damaged", "Damaged"),
        DuplicateError: ProblemKind(HTTPStatus.CONFLICT, "duplicate", "Already exists"),
        MoveRefusedError: ProblemKind(HTTPStatus.CONFLICT, "move_refused", "VM cannot be moved"),
        ReservationError: ProblemKind(
            HTTPStatus.CONFLICT, "reservation_refused", "Reservation cannot be drawn on"
        ),
        ConflictError: ProblemKind(
            HTTPStatus.CONFLICT, "conflict", "Not possible in the present state"
        ),
        IllegalTransitionError: ProblemKind(
            HTTPStatus.CONFLICT, "illegal_transition", "Not possible in the present state"
        ),
        CapacityExceededError: ProblemKind(
            HTTPStatus.CONFLICT, "capacity_exceeded", "Not enough capacity on the host"
        ),
        VersionMismatchError: ProblemKind(
            HTTPStatus.PRECONDITION_FAILED, "version_mismatch", "Changed since it was read"
        ),
        IdempotencyConflictError: ProblemKind(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "idempotency_key_reused",
            "Idempotency-Key already used with another body",
        ),
        IdempotencyInProgressError: ProblemKind(
            HTTPStatus.CONFLICT,
            "idempotency_in_progress",
            "Call with this Idempotency-Key in progress",
        ),
        DatabaseFullError: ProblemKind(
            HTTPStatus.SERVICE_UNAVAILABLE, "database_full", "Database disk full"
        ),
        RegistryUnavailableError: ProblemKind(
            HTTPStatus.SERVICE_UNAVAILABLE, "not_ready", "Database not available"
        ),
        PolicyFailedError: ProblemKind(
            HTTPStatus.INTERNAL_SERVER_ERROR, "policy_failed", "Policy failed"
        ),
        ConsoleUnreadError: ProblemKind(
            HTTPStatus.GATEWAY_TIMEOUT, "console_unread", "Console not readable"
        ),
        SchemaOutdatedError: ProblemKind(
            HTTPStatus.SERVICE_UNAVAILABLE, "schema_outdated", "Database schema does not match"
        ),
    }
)

#: Kinds of the framework's own errors, by status: unknown paths and methods.
HTTP_KINDS: Final[Mapping[int, ProblemKind]] = MappingProxyType(
    {
        400: ProblemKind(HTTPStatus.BAD_REQUEST, "malformed", "Body is not valid JSON"),
        404: ProblemKind(HTTPStatus.NOT_FOUND, "no_such_path", "Path not found"),
        405: ProblemKind(HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed", "Method not allowed"),
    }
)

#: Kinds of errors of a connection before there is a call.
CONNECTION_KINDS: Final[Mapping[HTTPStatus, ProblemKind]] = MappingProxyType(
    {
        HTTPStatus.BAD_REQUEST: ProblemKind(
            HTTPStatus.BAD_REQUEST, "not_http", "Not valid HTTP/1.1"
        ),
        HTTPStatus.REQUEST_TIMEOUT: ProblemKind(
            HTTPStatus.REQUEST_TIMEOUT, "too_slow", "Call too slow"
        ),
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: ProblemKind(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", "Header too large"
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemAnswer:
    """One problem document and its headers."""

    kind: ProblemKind
    detail: str
    errors: Sequence[Mapping[str, Any]] = ()
    extensions: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the problem document as a JSON object."""
        return {
            "type": TYPE_PREFIX + self.kind.code,
            "title": self.kind.title,
            "status": int(self.kind.status),
            "detail": self.detail,
            "code": self.kind.code,
            "errors": [dict(error) for error in self.errors],
            **self.extensions,
        }

    def response(self) -> Response:
        """Return the problem as an HTTP answer, in ASCII: quoted input may be invalid UTF-8."""
        return Response(
            json.dumps(self.document(), ensure_ascii=True),
            status_code=int(self.kind.status),
            media_type=MEDIA_TYPE,
            headers=dict(self.headers),
        )


def build_problem(
    error: Exception, *, method: str, path: str, call: RefusedCall = UNKNOWN
) -> ProblemAnswer:
    """Return the problem document for an error of ``call``. Never fails."""
    if isinstance(error, HTTPException):
        return _http_exception_answer(error, method=method, path=path)
    kind = next((KINDS[cls] for cls in type(error).__mro__ if cls in KINDS), None)
    if kind is None:
        return _internal_error_answer(error)
    errors = input_errors(error, method, call)
    return ProblemAnswer(
        kind=kind,
        detail=_detail_text(error, errors, call),
        errors=errors[:ERRORS_SHOWN],
        extensions=_extension_members(error),
        headers=_problem_headers(kind) | _headers_of_error(error),
    )


async def problem_handler(request: HttpRequest, error: Exception) -> Response:
    """Answer FastAPI's own exceptions by a problem document; an exception handler of FastAPI."""

    def render() -> Response:
        call = refused_call_of(request.scope)
        problem = build_problem(error, method=request.method, path=request.url.path, call=call)
        return problem.response()

    # The first use builds the OpenAPI document, which takes half a second.
    made = request.app.openapi_schema is not None
    response = render() if made else await run_in_threadpool(render)
    if response.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # The router names the methods of the first route with this path only.
        response.headers["Allow"] = ", ".join(sorted(_methods_at(request))) or "GET"
    return response


def _methods_at(request: HttpRequest) -> set[str]:
    """Return the methods that the OpenAPI document has at this path."""
    paths: Mapping[str, Mapping[str, Any]] = request.app.openapi()["paths"]
    own = paths.get(request.url.path)  # a literal path goes before a template that matches it
    if own is not None:
        return {method.upper() for method in own}
    return {
        method.upper()
        for template, operations in paths.items()
        if _path_pattern(template).match(request.url.path)
        for method in operations
    }


@functools.cache
def _path_pattern(template: str) -> re.Pattern[str]:
    return compile_path(template)[0]


def _extension_members(error: Exception) -> Mapping[str, Any]:
    """Return the members of a problem document that only this kind of error has."""
    if isinstance(error, VersionMismatchError):
        return {"current_version": error.current}
    if isinstance(error, ForbiddenError):
        return {"scope": {"needed": error.needed, "given": error.given}}
    if isinstance(error, QuotaExceededError):
        return {"quota": [dataclasses.asdict(each) for each in error.exceeded]}
    if isinstance(error, MoveRefusedError):
        return {"obstacle": error.obstacle}
    if isinstance(error, ReservationError):
        return {"why": error.why}
    return {}


def _headers_of_error(error: Exception) -> dict[str, str]:
    if isinstance(error, VersionMismatchError):
        return {"ETag": error.current}
    if isinstance(error, RateLimitedError):
        return {"Retry-After": str(error.retry_after_s)}
    return {}


def _problem_headers(kind: ProblemKind) -> dict[str, str]:
    """Return the headers that every problem of this kind has."""
    if kind.status is HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": 'Bearer realm="fuga"'}
    if kind.status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return {"Connection": "close"}  # the rest of the body is not read
    if kind.code in {"database_full", "idempotency_in_progress", "not_ready", "overloaded"}:
        return {"Retry-After": "1"}
    return {}


def _http_exception_answer(error: HTTPException, *, method: str, path: str) -> ProblemAnswer:
    """Return the problem document for an exception of the framework, such as 404 or 405."""
    details = {
        404: f"path {quotable_value(path)} not found; /docs lists all paths",
        405: f"{quotable_value(path)} does not support {method}",
    }
    status = HTTPStatus(error.status_code)
    kind = HTTP_KINDS.get(status) or ProblemKind(status, status.name.lower(), status.phrase)
    return ProblemAnswer(
        kind=kind,
        detail=details.get(error.status_code, str(error.detail)),
        headers=error.headers or {},
    )


def _internal_error_answer(error: Exception) -> ProblemAnswer:
    """Log an unexpected error as an incident; return a problem document that names it."""
    incident = str(uuid.uuid4())
    log.error("request_failed", incident=incident, error=str(error), exc_info=error)
    return ProblemAnswer(
        kind=INTERNAL,
        detail=f"internal error, logged as incident {incident}",
        extensions={"incident": incident},
    )


def _detail_text(error: Exception, errors: Sequence[Mapping[str, Any]], call: RefusedCall) -> str:
    """Return the sentence of a problem document that says what is wrong."""
    if errors:
        return input_errors_summary(errors)
    if isinstance(error, NotFoundError):
        return call.add_suggestions(str(error), error.kind, error.key)
    if isinstance(error, DatabaseFullError):
        log.error("database_full", alert=True, error=str(error))
        return (
            "the disk of the database is full, so this call could not be recorded; repeat it once"
            " an operator has freed space there"
        )
    if isinstance(error, RegistryUnavailableError):
        # The driver's words may name the database's host and user: for the log alone.
        log.warning("registry_unavailable", error=str(error))
        return "the database does not answer, or is too busy; try again"
    return str(error)
