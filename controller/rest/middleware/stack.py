"""The ASGI middleware around every call: access log, authentication, limits on concurrent calls.

It is plain ASGI, so that no endpoint runs and no body is read before the caller is known.
`AccessLog` turns all errors raised below it into problem documents.
"""

from __future__ import annotations

import asyncio
import functools
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.rest.metrics import HttpMetrics
from controller.rest.middleware.auth import LOGIN_PATH, SAFE_METHODS, Authenticator, is_protected
from controller.rest.middleware.connections import LOG_EVERY_S
from controller.rest.middleware.party_concurrency import PartyConcurrency
from controller.rest.middleware.rate_limits import RateLimits, address_of, network_of, whole_seconds
from controller.rest.middleware.streams import RELEASE_PLACE
from controller.rest.problems.documents import ProblemAnswer, problem_of
from controller.rest.problems.errors import (
    HeaderError,
    LoginRefusedError,
    OverloadedError,
    RateLimitedError,
    UnauthorizedError,
)
from controller.rest.problems.faults import UNKNOWN, Names, RefusedCall, no_names
from controller.rest.problems.known_names import KnownNames
from registry import NotFoundError, Registry, UnknownNameError
from service.fair_semaphore import FairSemaphore

#: Log lines per minute for calls without a valid token; one line counts the rest.
MAX_STRANGERS_LOGGED: Final = 60
#: Calls of tenants in one process; the first may have half, the next half of the rest.
MAX_TENANT_CALLS: Final = 640
#: Calls of operators, shared by their tokens: no tenant takes these.
MAX_OPERATOR_CALLS: Final = 160
#: Logins of all addresses together: a caller without a token may send a body slowly.
MAX_LOGINS: Final = 64
#: Supervisors such as systemd poll these.
HEALTH_PATHS: Final = frozenset({"/healthz", "/readyz"})
#: Headers of which a second one is refused; `Authenticator` and h11 check `Authorization`, `Host`.
SENT_ONCE: Final = ("Idempotency-Key", "Content-Type")
REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")

log = structlog.get_logger(__name__)


class AccessLog:
    """Logs one line per call, gives it an id, and answers every error."""

    def __init__(
        self, app: ASGIApp, metrics: HttpMetrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.app = app
        self.metrics = metrics
        self._strangers = _UnauthenticatedCallLog(clock)

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
                problem = await _problem_answer(error, scope)
                await problem.response()(scope, receive, send_and_note)
            finally:
                caller = scope.get("state", {}).get("caller")
                seconds = time.perf_counter() - started
                self.metrics.count(scope, status, seconds)
                failed = status is None or status >= 500
                if failed or caller is not None or self._strangers.may_log():
                    (log.error if failed else log.info)(
                        "http_request",
                        method=scope["method"][:16],
                        path=scope["path"][:200],
                        status=status,
                        duration_ms=round(seconds * 1000, 1),
                        token=caller.token if caller else None,
                    )


async def _problem_answer(error: Exception, scope: Scope) -> ProblemAnswer:
    """Return the problem document for an error; suggestions may need a read of the database."""
    caller = scope.get("state", {}).get("caller")
    names: Names = no_names
    if caller is not None and isinstance(error, NotFoundError | UnknownNameError):
        services = scope["app"].state.services
        names = KnownNames(services.registry, services.host_names, caller).names_of
    # Malformed input was answered in `problem_handler` before.
    call = RefusedCall(UNKNOWN.operation, names)
    answer = functools.partial(
        problem_of, error, method=scope["method"], path=scope["path"], call=call
    )
    return answer() if names is no_names else await run_in_threadpool(answer)


class ConcurrentCalls:
    """Refuses calls while too many of their party are under way.

    Calls pile up if the database hangs or is slow. An immediate refusal then serves a caller better
    than a queue that outlasts its timeout. Tenants share one pool of places, operators another.
    Calls whose body is awaited have separate pools, so that slow bodies delay no other call. While
    other parties call, the calls of one party are served in turn (`PartyConcurrency`).
    """

    def __init__(
        self, app: ASGIApp, tenants: int = MAX_TENANT_CALLS, operators: int = MAX_OPERATOR_CALLS
    ) -> None:
        self.app = app
        self._tenants = _Pools(FairSemaphore(tenants), FairSemaphore(tenants))
        self._operators = _Pools(FairSemaphore(operators), FairSemaphore(operators))
        self._at_once = PartyConcurrency()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call."""
        caller = scope.get("state", {}).get("caller")
        if caller is None:  # pages, health, and logins, which have places of their own
            await self.app(scope, receive, send)
            return
        pools = self._operators if caller.is_operator else self._tenants
        party = caller.tenant or str(caller.token_id)
        place = _PoolPermit(party)
        place.move_to(pools.work)
        awaited = _has_body(scope)
        end: Callable[[], None] = _no_op

        async def receive_in_place() -> Message:
            nonlocal awaited, end
            if awaited:
                place.move_to(pools.bodies)
            message = await receive()
            if awaited and not message.get("more_body", False):
                awaited = False
                place.move_to(pools.work)
                end = await self._at_once.begin(party)
            return message

        def leave() -> None:
            place.leave()
            end()

        scope["state"][RELEASE_PLACE] = leave
        try:
            if not awaited:
                end = await self._at_once.begin(party)
            await self.app(scope, receive_in_place, send)
        finally:
            leave()


def _no_op() -> None:
    """Do nothing: the call has not begun."""


@dataclass(frozen=True, slots=True)
class _Pools:
    work: FairSemaphore
    bodies: FairSemaphore  #: of calls whose body is awaited


class _PoolPermit:
    """A call's place in one pool at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool: FairSemaphore | None = None

    def move_to(self, pool: FairSemaphore) -> None:
        """Take a place in a pool and leave the other one, or raise `OverloadedError`."""
        if pool is self._pool:
            return
        if not pool.take(self._name):
            raise OverloadedError(pool.held_by(self._name))
        self.leave()
        self._pool = pool

    def leave(self) -> None:
        if self._pool is not None:
            self._pool.give_back(self._name)
            self._pool = None


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


class _UnauthenticatedCallLog:
    """Limits log lines per minute about calls without a token, and counts the rest."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = float("-inf")
        self._logged = 0
        self._suppressed = 0

    def may_log(self) -> bool:
        """Return whether a call gets a log line; count it otherwise."""
        now = self._clock()
        if now - self._since >= LOG_EVERY_S:
            if self._suppressed:
                log.info("unknown_callers", suppressed=self._suppressed)
            self._since, self._logged, self._suppressed = now, 0, 0
        self._logged += 1
        self._suppressed += self._logged > MAX_STRANGERS_LOGGED
        return self._logged <= MAX_STRANGERS_LOGGED


class Authentication:
    """Refuses calls without a valid token, below /v1 and to metrics.

    It also refuses calls above the rate limits, and changes with a read-only token. Refused logins
    count like calls with a wrong token.
    """

    def __init__(self, app: ASGIApp, registry: Registry, limits: RateLimits) -> None:
        self.app = app
        self.gate = Authenticator(registry)
        self.limits = limits
        self._logins = FairSemaphore(MAX_LOGINS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call."""
        try:
            if scope["type"] == "http":
                await (self._admit if is_protected(scope["path"]) else self._count_stranger)(scope)
            if scope.get("path") == LOGIN_PATH and scope["method"] not in SAFE_METHODS:
                self.limits.check_address(address_of(scope), None)
                await self._log_in(scope, receive, send)
                return
        except RateLimitedError:
            await asyncio.sleep(self.limits.refused_after_s)
            raise
        await self.app(scope, receive, send)

    async def _log_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        network = network_of(address_of(scope))
        if not self._logins.take(network):
            raise RateLimitedError("too many logins are under way", 1)
        try:
            await self.app(scope, receive, send)
        except LoginRefusedError:
            self.limits.count_failure(address_of(scope))
            raise
        finally:
            self._logins.give_back(network)

    async def _count_stranger(self, scope: Scope) -> None:
        wait_s = self.limits.count_stranger(address_of(scope))
        if not wait_s:
            return
        if scope["path"] in HEALTH_PATHS:  # is answered always, to many at once a little later
            await asyncio.sleep(self.limits.refused_after_s)
            return
        raise RateLimitedError(
            "too many calls without a token from this address", whole_seconds(wait_s)
        )

    async def _admit(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        credentials = headers.get("authorization")
        address = address_of(scope)
        self.limits.check_address(address, credentials)
        try:
            caller = await self.gate.authenticate(headers)
        except UnauthorizedError:
            self.limits.count_failure(address, credentials)
            raise
        state = scope.setdefault("state", {})
        state["caller"] = caller
        call = state.get("audited")
        if call is not None:
            call.token_id, call.token, call.tenant = caller.token_id, caller.token, caller.tenant
        self.limits.count_success(caller, credentials)
        check_sent_once(headers)
        caller.check_method(scope["method"], scope["path"])


def check_sent_once(headers: Headers) -> None:
    """Refuse a call that repeats a header whose value must be unique."""
    for name in SENT_ONCE:
        times = len(headers.getlist(name))
        if times > 1:
            raise HeaderError(name, f"{times} headers of this name", "one")
