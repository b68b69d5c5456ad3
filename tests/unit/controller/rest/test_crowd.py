"""So many calls at a time, and no more: whoever comes then is told so at once."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send

from controller.rest.callers.middleware import Crowd
from controller.rest.problems.errors import OverloadedError


def scope(path: str) -> dict[str, Any]:
    return {"type": "http", "path": path, "method": "GET", "headers": []}


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
