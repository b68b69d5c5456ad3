"""The answer that streams events (server-sent events)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from controller.rest.middleware.callers import CREDENTIALS, Caller
from controller.rest.middleware.peer_addresses import address_of
from controller.rest.middleware.streams import register_stream, release_permit
from controller.rest.streams.feed import (
    NO_DATABASE,
    SHUTDOWN,
    EventFeed,
    EventFilter,
    StreamListener,
)
from controller.rest.streams.permits import StreamPermits
from registry import RegistryError

MEDIA_TYPE: Final = "text/event-stream"
#: Interval of comments without news, after which a vanished caller loses its place.
BEAT_S: Final = 15.0
#: Maximum duration of a stream: streams are rebalanced among processes that often.
LASTS_S: Final = 3600.0
#: The shortest time between messages that say only that there are new events.
BRIEF_EVERY_S: Final = 1.0
_OLD: Final = "the stream is an hour old; connect again"


class EventStream(StreamingResponse):
    """Sends events until the caller disconnects, its token ends, or the API stops.

    Parameters
    ----------
    feed, permits
        The feed and the stream limits of the process.
    caller : Caller
        The caller of the stream.
    wanted : EventFilter
        Selects the events.
    after : int, optional
        The last event that the caller knows; None: only future events.
    brief : bool
        Whether to report only that there are new events.
    """

    media_type = MEDIA_TYPE

    def __init__(
        self,
        feed: EventFeed,
        permits: StreamPermits,
        caller: Caller,
        wanted: EventFilter,
        *,
        after: int | None,
        brief: bool,
    ) -> None:
        super().__init__(self._sse_messages(), headers={"X-Accel-Buffering": "no"})
        self._feed, self._permits, self._caller = feed, permits, caller
        self._wanted, self._after, self._brief = wanted, after, brief
        self._listener = StreamListener("")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream. Raises `RateLimitedError` before it begins."""
        address = address_of(scope)
        self._listener.secret = _token_secret(scope)
        self._permits.take(self._caller, address)
        try:
            await self._feed.join(self._listener)
            try:
                release_permit(scope)
                register_stream(scope, lambda: self._listener.end(SHUTDOWN))
                await super().__call__(scope, receive, send)
            finally:
                self._feed.leave(self._listener)
        finally:
            self._permits.give_back(self._caller, address)

    async def _sse_messages(self) -> AsyncIterator[bytes]:
        """Yield the messages of the stream: its beginning, events or comments, and its end."""
        clock = asyncio.get_running_loop().time
        ends_at = clock() + LASTS_S
        after = self._feed.upto if self._after is None else self._after
        yield _sse_message({"after": after}, kind="begin", number=after)
        while True:
            self._listener.woken.clear()
            if self._listener.ends is None and clock() > ends_at:
                self._listener.end(_OLD)
            if self._listener.ends is not None:
                yield _sse_message({"reason": self._listener.ends}, kind="end")
                return
            if self._brief:
                is_due = self._feed.has_matching(self._wanted, after) is not False
                after = max(after, self._feed.upto)
                if is_due:
                    yield _sse_message({"after": after}, kind="changed", number=after)
                    await asyncio.sleep(BRIEF_EVERY_S)
                    continue
            else:
                try:
                    found, after = await self._feed.events_after(self._wanted, after)
                except RegistryError:
                    self._listener.end(NO_DATABASE)
                    continue
                for number, text in found:
                    yield b"id: %d\ndata: %s\n\n" % (number, text)
                if found:
                    continue  # there may be more
            if not self._listener.woken.is_set():
                try:
                    await asyncio.wait_for(self._listener.woken.wait(), BEAT_S)
                except TimeoutError:
                    yield b": still here\nid: %d\n\n" % after


def _sse_message(data: object, *, kind: str, number: int | None = None) -> bytes:
    id_line = "" if number is None else f"id: {number}\n"
    return f"{id_line}event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def _token_secret(scope: Scope) -> str:
    """Return the token in a call's Authorization header; empty if there is none."""
    given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
    found = CREDENTIALS.fullmatch(given.strip())
    return found[1] if found else ""
