"""ASGI middleware that authenticates callers, before an endpoint runs or a body is read."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from controller.rest.middleware.callers import LOGIN_PATH, SAFE_METHODS, Authenticator, is_protected
from controller.rest.middleware.peer_addresses import address_of, network_of
from controller.rest.middleware.rate_limits import RateLimits, whole_seconds
from controller.rest.problems.errors import (
    HeaderError,
    LoginRefusedError,
    RateLimitedError,
    UnauthorizedError,
)
from registry import Registry
from service.fair_semaphore import FairSemaphore

#: Logins of all addresses together: a caller without a token may send a body slowly.
MAX_LOGINS: Final = 64

#: Supervisors such as systemd poll these.
HEALTH_PATHS: Final = frozenset({"/healthz", "/readyz"})

#: Headers of which a second one is refused; `Authenticator` and h11 check `Authorization`, `Host`.
SENT_ONCE: Final = ("Idempotency-Key", "Content-Type")


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
        """Serve one call, if its token and the rate limits allow it."""
        try:
            if scope["type"] == "http":
                await (
                    self._authenticate_call
                    if is_protected(scope["path"])
                    else self._count_tokenless_call
                )(scope)
            if scope.get("path") == LOGIN_PATH and scope["method"] not in SAFE_METHODS:
                self.limits.check_address(address_of(scope), None)
                await self._admit_login_call(scope, receive, send)
                return
        except RateLimitedError:
            await asyncio.sleep(self.limits.refused_after_s)
            raise
        await self.app(scope, receive, send)

    async def _admit_login_call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a login unless too many are under way; count it as a failure if it is refused."""
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

    async def _count_tokenless_call(self, scope: Scope) -> None:
        """Count a call to a page that needs no token; above the rate limit refuse or delay it."""
        wait_s = self.limits.count_tokenless_call(address_of(scope))
        if not wait_s:
            return
        if scope["path"] in HEALTH_PATHS:  # is answered always, to many at once a little later
            await asyncio.sleep(self.limits.refused_after_s)
            return
        raise RateLimitedError(
            "too many calls without a token from this address", whole_seconds(wait_s)
        )

    async def _authenticate_call(self, scope: Scope) -> None:
        """Authenticate a call by its token and store the caller in its state, or refuse it."""
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
    """Refuse a call with a repeated header that may occur only once."""
    for name in SENT_ONCE:
        times = len(headers.getlist(name))
        if times > 1:
            raise HeaderError(name, f"{times} headers of this name", "one")
