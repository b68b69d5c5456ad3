"""So many calls of a tenant at a time, and no more: one more is refused at once."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from starlette.types import Receive, Scope, Send

from controller.rest.middleware.authentication import Authentication
from controller.rest.middleware.callers import Caller
from controller.rest.middleware.concurrent_calls import ConcurrentCalls
from controller.rest.middleware.rate_limits import RateLimits
from controller.rest.middleware.streams import RELEASE_PERMIT
from controller.rest.problems.errors import OverloadedError, RateLimitedError
from tests.unit.controller.rest.test_auth import knowing


def scope(path: str, method: str = "GET", **more: Any) -> dict[str, Any]:
    return {"type": "http", "path": path, "method": method, "headers": [], **more}


def call_of(tenant: str | None, path: str = "/v1/vms", *, body: bool = False) -> dict[str, Any]:
    caller = Caller(tenant or "op", tenant, UUID(int=1))
    headers = [(b"content-length", b"2")] if body else []
    return scope(path, "POST", headers=headers, state={"caller": caller})


async def nothing(*_: Any) -> Any:
    return {"type": "http.disconnect"}


class Site:
    """An application whose calls last until they may go, and bodies that come late."""

    def __init__(self, **places: int) -> None:
        self.crowd = ConcurrentCalls(self.serve, **places)
        self.goes = asyncio.Event()
        self.body = asyncio.Event()
        self.served: list[str] = []

    async def serve(self, given: Scope, receive: Receive, _send: Send) -> None:
        if given["headers"]:
            await receive()
        if given["path"] == "/v1/broken":
            raise RuntimeError
        if given["path"] == "/v1/stream":
            given["state"][RELEASE_PERMIT]()
        if given["path"] != "/v1/fast":
            await self.goes.wait()
        self.served.append(given["path"])

    async def late(self) -> dict[str, Any]:
        await self.body.wait()
        return {"type": "http.request", "body": b"{}", "more_body": False}

    def begin(self, call: dict[str, Any]) -> asyncio.Task[None]:
        return asyncio.create_task(self.crowd(call, self.late, nothing))

    async def is_refused(self, call: dict[str, Any]) -> bool:
        try:
            await self.crowd(call, self.late, nothing)
        except OverloadedError:
            return True
        return False


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_tenant_fills_its_places_and_leaves_some_to_others_and_to_operators() -> None:
    async def scene() -> None:
        site = Site(tenants=8, operators=4)
        calls = [site.begin(call_of("a")) for _ in range(20)]
        await turns()
        assert [each.done() for each in calls].count(False) == 4
        calls += [site.begin(call_of("b")) for _ in range(20)]
        await turns()
        assert [each.done() for each in calls].count(False) == 6

        assert await site.is_refused(call_of("a", "/v1/fast"))
        assert not await site.is_refused(call_of("c", "/v1/fast"))
        assert not await site.is_refused(call_of(None, "/v1/fast"))
        assert not await site.is_refused(scope("/healthz", state={}) | {"path": "/v1/fast"})
        site.goes.set()
        await asyncio.gather(*calls, return_exceptions=True)
        assert not await site.is_refused(call_of("a", "/v1/fast"))

    asyncio.run(scene())


def test_slow_bodies_hold_no_places_of_calls_whose_body_is_there() -> None:
    async def scene() -> None:
        site = Site(tenants=8, operators=4)
        slow = []
        for _ in range(20):
            slow.append(site.begin(call_of("a", body=True)))
            await turns()
        assert [each.done() for each in slow].count(False) == 4

        assert not await site.is_refused(call_of("a", "/v1/fast"))
        assert not await site.is_refused(call_of("b", "/v1/fast"))
        assert not await site.is_refused(call_of(None, "/v1/fast"))
        site.body.set()
        await turns()
        assert await site.is_refused(call_of("a", "/v1/fast"))  # now they work
        site.goes.set()
        await asyncio.gather(*slow, return_exceptions=True)
        assert not await site.is_refused(call_of("a", "/v1/fast"))

    asyncio.run(scene())


@pytest.mark.parametrize("path", ["/v1/broken", "/v1/stream"])
def test_a_call_that_fails_or_lasts_gives_its_place_back_once(path: str) -> None:
    async def scene() -> None:
        site = Site(tenants=2, operators=2)
        calls = []
        for _ in range(5):
            calls.append(site.begin(call_of("a", path)))
            await turns()
        assert not await site.is_refused(call_of("a", "/v1/fast"))
        site.goes.set()
        await asyncio.gather(*calls, return_exceptions=True)
        holding = [site.begin(call_of("a")) for _ in range(2)]
        site.goes.clear()
        await turns()
        assert await site.is_refused(call_of("a", "/v1/fast"))
        site.goes.set()
        await asyncio.gather(*holding, return_exceptions=True)

    asyncio.run(scene())


def test_strangers_who_send_their_logins_slowly_take_no_places_of_calls_with_tokens() -> None:
    async def scene() -> None:
        goes = asyncio.Event()
        served: list[str] = []

        async def waits_for_the_body(given: Scope, _receive: Receive, _send: Send) -> None:
            if given["path"] == "/v1/login":
                await goes.wait()
            served.append(given["path"])

        def login(number: int) -> Any:
            client = (f"192.0.2.{number}", 1)
            return crowd(scope("/v1/login", "POST", client=client), nothing, nothing)

        crowd = Authentication(ConcurrentCalls(waits_for_the_body), knowing("s3cret"), RateLimits())
        slow = [asyncio.create_task(login(number % 20)) for number in range(400)]
        for _ in range(5):
            await asyncio.sleep(0)

        of_a_token = scope("/v1/hosts", headers=[(b"authorization", b"Bearer s3cret")])
        await crowd(of_a_token, nothing, nothing)
        assert served == ["/v1/hosts"]
        goes.set()
        answers = await asyncio.gather(*slow, return_exceptions=True)
        assert {type(each) for each in answers} == {type(None), RateLimitedError}
        await login(1)

    asyncio.run(scene())
