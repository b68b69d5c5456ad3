"""Every call that may change something leaves a row in the audit, refused or not."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.rest.middleware.auth import PROTECTED_PREFIX, SAFE_METHODS, is_of_api
from controller.rest.middleware.rate_limits import address_of
from controller.rest.problems.refusals import Refusals
from registry import Registry
from registry.audit import AuditedCall

MAX_PATH: Final = 500
MAX_SUBJECT: Final = 64
_REFUSED_FROM: Final = 400
#: Each key that is pressed at a console, and each look of a roll's driver. That the console was
#: opened and the roll begun is in the audit, what becomes of hosts in the events.
REPEATED: Final = re.compile(
    r"/v1/vms/[^/]+/console/sessions/[^/]+/input/[^/]+|/v1/rolls/[^/]+/drivers/[^/]+"
)
#: How they end while they go on: typed, or the console does not take more now.
GOES_ON: Final = frozenset({200, 409})

log = structlog.get_logger(__name__)


class AuditTrail:
    """The outermost layer: an answered call is in the audit."""

    def __init__(self, app: ASGIApp, registry: Registry, refusals: Refusals) -> None:
        self.app = app
        self.registry = registry
        self.refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call."""
        if (
            scope["type"] != "http"
            or scope["method"] in SAFE_METHODS
            or not is_of_api(scope["path"])
        ):
            await self.app(scope, receive, send)
            return
        call = AuditedCall(
            method=scope["method"][:16], path=_path(scope), address=address_of(scope)
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
            _complete(call, scope)
            if call.row is None and (status is None or status >= _REFUSED_FROM):
                await self.refusals.add(call, status)
                return
            if call.is_noted(status):
                return
            await run_in_threadpool(self._finish, call, status)

        async def send_when_recorded(message: Message) -> None:
            if message["type"] == "http.response.start":
                await finish(message["status"])
            await send(message)

        try:
            await self.app(scope, receive, send_when_recorded)
        finally:
            if not finished:  # the caller went away, and whatever was done stays done
                await finish(None)

    def _finish(self, call: AuditedCall, status: int | None) -> None:
        try:
            self.registry.audit.finish(call, status)
        except Exception as error:  # of the outermost layer: the call has its answer
            # What was changed has its row; of what was not, this line is all that is left.
            values = {key: str(value) for key, value in call.values().items()}
            log.error("audit_failed", **(values | {"status": status, "error": str(error)}))


def _path(scope: Scope) -> str:
    """Return what was called as it was sent: printable, whatever it means."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"], errors="replace").encode()
    query: bytes = scope.get("query_string", b"")
    shown_path = b"?".join(filter(None, (raw.partition(b"?")[0], query)))
    return quote(shown_path, safe="%/?&=:@,;+!$'()*~[]")[:MAX_PATH]


def note_route(scope: Scope) -> None:
    """Record which endpoint serves a call, as soon as it is known."""
    call = scope.get("state", {}).get("audited")
    route = getattr(scope.get("route"), "path", None)
    if call is not None and route is not None:
        call.route = f"{PROTECTED_PREFIX}{route}"


def _complete(call: AuditedCall, scope: Scope) -> None:
    """Add what the router found."""
    note_route(scope)
    named = list((scope.get("path_params") or {}).values())
    if named:
        call.subject = quote(str(named[-1]), safe=":", errors="replace")[:MAX_SUBJECT]
