"""ASGI middleware that limits the concurrent calls of tenants and of operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.rest.middleware.party_concurrency import PartyConcurrency
from controller.rest.middleware.streams import RELEASE_PERMIT
from controller.rest.problems.errors import OverloadedError
from service.fair_semaphore import FairSemaphore

#: Calls of tenants in one process; the first may have half, the next half of the rest.
MAX_TENANT_CALLS: Final = 640

#: Calls of operators, shared by their tokens: no tenant takes these.
MAX_OPERATOR_CALLS: Final = 160


class ConcurrentCalls:
    """Refuses calls while too many of their party are under way.

    Calls pile up if the database hangs or is slow. An immediate refusal then serves a caller better
    than a queue that outlasts its timeout. Tenants share one pool of permits, operators another.
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
        """Serve one call, unless too many of its party are under way."""
        caller = scope.get("state", {}).get("caller")
        if caller is None:  # pages, health, and logins, which have limits of their own
            await self.app(scope, receive, send)
            return
        pools = self._operators if caller.is_operator else self._tenants
        party = caller.tenant or str(caller.token_id)
        permit = _PoolPermit(party)
        permit.move_to(pools.work)
        awaited = _has_body(scope)
        end: Callable[[], None] = _do_nothing

        async def receive_with_permit() -> Message:
            nonlocal awaited, end
            if awaited:
                permit.move_to(pools.bodies)
            message = await receive()
            if awaited and not message.get("more_body", False):
                awaited = False
                permit.move_to(pools.work)
                end = await self._at_once.begin(party)
            return message

        def release() -> None:
            permit.release()
            end()

        scope["state"][RELEASE_PERMIT] = release
        try:
            if not awaited:
                end = await self._at_once.begin(party)
            await self.app(scope, receive_with_permit, send)
        finally:
            release()


def _do_nothing() -> None:
    """Do nothing: the call has not begun."""


@dataclass(frozen=True, slots=True)
class _Pools:
    """The permits of tenants' or of operators' calls."""

    work: FairSemaphore
    bodies: FairSemaphore  #: of calls whose body is awaited


class _PoolPermit:
    """The permit of a call, from one pool at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool: FairSemaphore | None = None

    def move_to(self, pool: FairSemaphore) -> None:
        """Take a permit of a pool and return that of the other, or raise `OverloadedError`."""
        if pool is self._pool:
            return
        if not pool.take(self._name):
            raise OverloadedError(pool.held_by(self._name))
        self.release()
        self._pool = pool

    def release(self) -> None:
        if self._pool is not None:
            self._pool.give_back(self._name)
            self._pool = None


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
