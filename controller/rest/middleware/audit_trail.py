"""Records every call that may change something in the audit, including refused calls."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.rest.middleware.callers import PROTECTED_PREFIX, SAFE_METHODS, is_api_path
from controller.rest.middleware.peer_addresses import address_of
from controller.rest.middleware.refused_calls import Refusals
from registry import Registry
from registry.audit import AuditedCall

MAX_PATH: Final = 500
MAX_SUBJECT: Final = 64
_REFUSED_FROM: Final = 400
#: Calls that are repeated many times and not recorded: each key pressed at a console, and each step
#: of a roll's driver. The audit has the opening of the console and the beginning of the roll.
REPEATED: Final = re.compile(
    r"/v1/vms/[^/]+/console/sessions/[^/]+/input/[^/]+|/v1/rolls/[^/]+/drivers/[^/]+"
)
#: Statuses with which these calls are not recorded: done, or the console takes no more now.
GOES_ON: Final = frozenset({200, 409})

log = structlog.get_logger(__name__)


class AuditTrail:
    """Outermost ASGI middleware: stores the audit record of a changing call before its answer."""

    def __init__(self, app: ASGIApp, registry: Registry, refusals: Refusals) -> None:
        self.app = app
        self.registry = registry
        self.refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call; if it may change something, store its audit record."""
        if (
            scope["type"] != "http"
            or scope["method"] in SAFE_METHODS
            or not is_api_path(scope["path"])
        ):
            await self.app(scope, receive, send)
            return
        call = AuditedCall(
            method=scope["method"][:16], path=_quoted_path(scope), address=address_of(scope)
        )
        repeated = REPEATED.fullmatch(scope["path"]) is not None
        state = scope.setdefault("state", {})
        state["audited"] = call
        if not repeated:
            state["writing"] = call
        finished = False

        async def finish(status: int | None) -> None:
            nonlocal finished
            finished = True
            if repeated and status in GOES_ON:
                return
            _add_route_and_subject(call, scope)
            if call.row is None and (status is None or status >= _REFUSED_FROM):
                await self.refusals.add(call, status)
                return
            if call.has_outcome(status):
                return
            await run_in_threadpool(self._store_record, call, status)

        async def send_when_recorded(message: Message) -> None:
            if message["type"] == "http.response.start":
                await finish(message["status"])
            await send(message)

        try:
            await self.app(scope, receive, send_when_recorded)
        finally:
            if not finished:  # the caller went away; changes are not undone
                await finish(None)

    def _store_record(self, call: AuditedCall, status: int | None) -> None:
        """Store the audit record of a call; a failure is only logged."""
        try:
            self.registry.audit.finish(call, status)
        except Exception as error:  # must not prevent the answer
            # A change was recorded with its transaction; of other calls only this line is left.
            values = {key: str(value) for key, value in call.values().items()}
            log.error("audit_failed", **(values | {"status": status, "error": str(error)}))


def _quoted_path(scope: Scope) -> str:
    """Return the path and query as sent, quoted so that they are printable."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"], errors="replace").encode()
    query: bytes = scope.get("query_string", b"")
    shown_path = b"?".join(filter(None, (raw.partition(b"?")[0], query)))
    return quote(shown_path, safe="%/?&=:@,;+!$'()*~[]")[:MAX_PATH]


def record_route(scope: Scope) -> None:
    """Store the route of a call in its audit record, as soon as it is known."""
    call = scope.get("state", {}).get("audited")
    route = getattr(scope.get("route"), "path", None)
    if call is not None and route is not None:
        call.route = f"{PROTECTED_PREFIX}{route}"


def _add_route_and_subject(call: AuditedCall, scope: Scope) -> None:
    """Add a call's route, and the last name or id in its path, to its audit record."""
    record_route(scope)
    named = list((scope.get("path_params") or {}).values())
    if named:
        call.subject = quote(str(named[-1]), safe=":", errors="replace")[:MAX_SUBJECT]
