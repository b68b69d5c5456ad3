"""Calls an application by hand, to see what it reads of a call and when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message


@dataclass(frozen=True)
class Answered:
    """What came of a call."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    read: int  #: pieces of the body that the application asked for
    sent: Sequence[Message]  #: the answer's body as it came

    @property
    def code(self) -> str:
        """The problem's."""
        return str(json.loads(self.body)["code"])


def call(
    app: ASGIApp,
    method: str,
    target: str,
    *,
    token: str | None = None,
    headers: Mapping[str, str] = {},
    body: Iterable[bytes] = (),
) -> Answered:
    """Return the answer to one call, and how much of its body was read for it."""
    path, _, query = target.partition("?")
    given = {"host": "test"} | ({"authorization": f"Bearer {token}"} if token else {})
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(k.lower().encode(), v.encode()) for k, v in (given | dict(headers)).items()],
        "client": ("192.0.2.7", 4711),
        "server": ("test", 80),
        "state": {},
    }
    pieces = list(body)
    read = 0
    sent: list[Message] = []

    async def receive() -> Message:
        nonlocal read
        read += 1
        if read > len(pieces):
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": pieces[read - 1], "more_body": read < len(pieces)}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(_run(app, scope, receive, send))
    start: dict[str, Any] = dict(sent[0])
    return Answered(
        status=start["status"],
        headers={k.decode().lower(): v.decode() for k, v in start["headers"]},
        body=b"".join(message.get("body", b"") for message in sent[1:]),
        read=read,
        sent=sent[1:],
    )


async def _run(app: ASGIApp, *arguments: Any) -> None:
    await app(*arguments)
