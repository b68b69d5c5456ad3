"""So many calls at a time, and no more: whoever comes then is told so at once."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send

from controller.rest.callers.limits import Limits
from controller.rest.callers.middleware import MOST_UNDER_WAY, Authentication, Crowd
from controller.rest.problems.errors import OverloadedError, RateLimitedError
from tests.unit.controller.rest.test_auth import knowing


def scope(path: str, method: str = "GET", **more: Any) -> dict[str, Any]:
    return {"type": "http", "path": path, "method": method, "headers": [], **more}


async def nothing(*_: Any) -> Any:
    return {"type": "http.disconnect"}


def test_one_more_than_may_be_is_refused_until_another_has_gone() -> None:
    async def scene() -> None:
        goes = asyncio.Event()
        served: list[str] = []

        async def waits(given: Scope, _receive: Receive, _send: Send) -> None:
            if given["path"] == "/v1/broken":
                raise RuntimeError
            if given["path"] == "/v1/slow":
                await goes.wait()
            served.append(given["path"])

        crowd = Crowd(waits, most=2)
        under_way = [
            asyncio.create_task(crowd(scope("/v1/slow"), nothing, nothing)) for _ in range(2)
        ]
        await asyncio.sleep(0)

        try:
            await crowd(scope("/v1/hosts"), nothing, nothing)
        except OverloadedError:
            served.append("refused")
        await crowd(scope("/healthz"), nothing, nothing)
        await crowd(scope("/readyz"), nothing, nothing)
        goes.set()
        await asyncio.gather(*under_way)
        for _ in range(3):  # one that fails gives its place back
            try:
                await crowd(scope("/v1/broken"), nothing, nothing)
            except RuntimeError:
                served.append("broken")
        await crowd(scope("/v1/hosts"), nothing, nothing)

        assert served == [
            "refused", "/healthz", "/readyz", "/v1/slow", "/v1/slow", *["broken"] * 3, "/v1/hosts",
        ]  # fmt: skip

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

        crowd = Crowd(Authentication(waits_for_the_body, knowing("s3cret"), Limits()))
        slow = [asyncio.create_task(login(number % 20)) for number in range(MOST_UNDER_WAY)]
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
