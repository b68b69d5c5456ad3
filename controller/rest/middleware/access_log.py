"""Outer ASGI middleware: logs each call, gives it an id, and answers errors as problems."""

from __future__ import annotations

import functools
import re
import time
import uuid
from collections.abc import Callable
from typing import Final

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.rest.metrics import HttpMetrics
from controller.rest.middleware.log_throttle import LOG_EVERY_S
from controller.rest.problems.documents import ProblemAnswer, build_problem
from controller.rest.problems.input_errors import UNKNOWN, Names, RefusedCall, no_names
from controller.rest.problems.known_names import KnownNames
from registry import NotFoundError, UnknownNameError

#: Log lines per minute for calls without a valid token; one line counts the rest.
MAX_STRANGERS_LOGGED: Final = 60

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
        """Serve one call; log it, and answer its errors as problem documents."""
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

        async def send_and_record_status(message: Message) -> None:
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
                await self.app(scope, receive, send_and_record_status)
            except Exception as error:  # the one place where any error becomes an answer
                if status is not None:
                    raise
                problem = await _problem_answer(error, scope)
                await problem.response()(scope, receive, send_and_record_status)
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
        build_problem, error, method=scope["method"], path=scope["path"], call=call
    )
    return answer() if names is no_names else await run_in_threadpool(answer)


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
