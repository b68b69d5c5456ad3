"""uvicorn's HTTP protocol, with time limits.

Uvicorn waits for ever for the rest of a header or a body, and for a client that does not read its
answer. Here each phase of a call has a time limit as a whole. A client that exceeds it gets an
error answer, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import fcntl
import sys
import termios
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, Final, cast

import h11
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.h11_impl import H11Protocol

from controller.rest.middleware.bodies import MAX_BODY_BYTES
from controller.rest.middleware.connection_limits import CountedConnection
from controller.rest.middleware.http_parser import BoundedConnection
from controller.rest.middleware.rate_limits import RateLimits
from controller.rest.middleware.streams import end_stream
from controller.rest.problems.documents import CONNECTION_KINDS, MEDIA_TYPE, ProblemAnswer

_TICK_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Time limits of the phases of an HTTP call."""

    head_s: float = 10.0  #: from a connection, or a head's first byte, to the head's end
    #: Between calls. httpx keeps connections for 5 s, nginx and load balancers for 60 s: the side
    #: that closes first must be the caller, or a call meets a connection that is just being closed.
    idle_s: float = 75.0
    crowded_idle_s: float = 10.0  #: the same while half of all connections are taken
    body_s: float = 30.0  #: of a body that comes slower than this:
    body_bytes_per_s: int = 16 * 1024
    unread_s: float = 5.0  #: for the rest of a body that is not read any more
    answer_s: float = 30.0  #: for the next part of an answer, while it is taken slower than this:
    answer_bytes_per_s: int = 16 * 1024
    goodbye_s: float = 5.0  #: the same for what is left of one when the connection closes


class _AwaitedPhase(Enum):
    """The phase of a call that a connection waits for its peer to send."""

    NOTHING = auto()  #: it is our turn, or uvicorn's own timer runs
    HEAD = auto()
    BODY = auto()
    REST = auto()  #: of a body whose call is answered already
    GOODBYE = auto()


class BoundedProtocol(H11Protocol):
    """One HTTP/1.1 connection, with a time limit for each phase of a call."""

    def __init__(self, *given: Any, deadlines: Deadlines, limits: RateLimits, **more: Any) -> None:
        super().__init__(*given, **more)
        self.conn: h11.Connection = BoundedConnection()
        self._served_by = self.app
        self.app = self._serve_call
        self._body_awaited = False
        self._socket: Any = None
        self._connection: CountedConnection | None = None
        self.timeout_keep_alive = deadlines.idle_s  # type: ignore[assignment]  # any number does
        self._deadlines = deadlines
        self._limits = limits
        self._refused = False  #: what was sent is no HTTP that is served; nothing more is read
        self._missing = _AwaitedPhase.NOTHING
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._received = 0
        self._seen = 0
        self._patience_s = 0.0

    # ---- called by asyncio and uvicorn

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the head of the first call."""
        super().connection_made(transport)
        self._socket = transport.get_extra_info("socket")  # TLS forgets it when it closes
        found = getattr(self._socket, "_sock", None)
        self._connection = found if isinstance(found, CountedConnection) else None
        self._update_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers of a connection that was lost."""
        self._missing = _AwaitedPhase.NOTHING
        for timer in (self._timer, self._stalled):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, unless the connection is refused or its body discarded."""
        self._received += len(data)
        if not self._refused and not self._is_cut_off():
            self._parse_bytes(data)
        if self._missing is _AwaitedPhase.REST and self._received - self._seen > MAX_BODY_BYTES:
            self.transport.abort()

    def on_response_complete(self) -> None:
        """Set the idle time limit and wait for the next call."""
        crowded = self._connection is not None and self._connection.is_crowded()
        deadlines = self._deadlines
        idle_s = min(deadlines.idle_s, deadlines.crowded_idle_s) if crowded else deadlines.idle_s
        self.timeout_keep_alive = idle_s  # type: ignore[assignment]  # any number does
        super().on_response_complete()
        self._update_timer()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, because it was idle for too long."""
        super().timeout_keep_alive_handler()
        self._update_timer()

    def shutdown(self) -> None:
        """Close the connection once its current call is answered."""
        super().shutdown()
        if self.cycle is not None and not self.cycle.response_complete:
            end_stream(cast(Scope, self.cycle.scope))
        if self._refused:  # the answer that is still due is a refusal
            self.transport.close()
        self._update_timer()

    def pause_writing(self) -> None:
        """Start the time limit of a caller that does not read its answer."""
        super().pause_writing()
        self._mark_connection()
        self._limit_answer_time(self._deadlines.answer_s)

    def resume_writing(self) -> None:
        """End the wait: the caller reads again."""
        super().resume_writing()
        self._mark_connection()
        if self._stalled is not None and self._missing is not _AwaitedPhase.GOODBYE:
            self._stalled.cancel()
            self._stalled = None

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP, or a header that is too large.

        It counts as a call without a token. After too many, the refusal is delayed and the
        connection no longer read. So the client's next call waits, or uses another of the
        connections that its address may have.
        """
        self._refused = True
        status, detail = self._bounded_parser.refusal, self._bounded_parser.refusal_detail
        address = self.client[0] if self.client else "unknown"
        if not self._limits.count_tokenless_call(address):
            self._refuse_call(status, detail)
        elif self._end_call():
            self.flow.pause_reading()
            self._update_timer()
            self._start_timer(self._limits.refused_after_s, self._refuse_call, status, detail)

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing, because any unknown caller can request another protocol."""

    # ---- bodies in chunks

    @property
    def _bounded_parser(self) -> BoundedConnection:
        return cast(BoundedConnection, self.conn)

    def _is_cut_off(self) -> bool:
        """Return whether the rest of a body is discarded: its call is answered."""
        return (
            self.cycle is not None
            and self.cycle.response_complete
            and self._bounded_parser.in_chunks
        )

    def _parse_bytes(self, data: bytes) -> None:
        """Parse received bytes; stop reading while more wait than may be parsed now."""
        if self._body_awaited:
            self._bounded_parser.grant_chunks()
        super().data_received(data)
        if self._bounded_parser.in_chunks and len(self.conn.trailing_data[0]) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        self._update_timer()

    async def _serve_call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application; parse chunks of a body as it reads them."""

        async def next_message() -> Message:
            if scope is not self.scope or not self._bounded_parser.in_chunks:
                return await receive()
            await asyncio.sleep(0)  # other calls get their turn between two parts of a body
            self._body_awaited = True
            try:
                if self._bounded_parser.in_chunks and not self.transport.is_closing():
                    self._bounded_parser.grant_chunks()
                    self.handle_events()
                    self._update_timer()
                return await receive()
            finally:
                self._body_awaited = False

        await self._served_by(scope, next_message, send)

    # ---- time limits

    def _update_timer(self) -> None:
        """Start the time limit of the phase for which the connection now waits."""
        self._mark_connection()
        missing = self._awaited_phase()
        if missing is self._missing:
            return  # its timer continues
        self._missing = missing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._seen = self._received
        match missing:
            case _AwaitedPhase.HEAD:
                self._start_timer(self._deadlines.head_s, self._end_slow_call)
            case _AwaitedPhase.BODY:
                self._patience_s = self._deadlines.body_s
                self._start_timer(min(_TICK_S, self._deadlines.body_s), self._check_body_rate)
            case _AwaitedPhase.REST:
                self._start_timer(self._deadlines.unread_s, self.transport.abort)
            case _AwaitedPhase.GOODBYE:
                self._limit_answer_time(self._deadlines.goodbye_s)

    def _mark_connection(self) -> None:
        """Mark the connection as idle, or as busy while its caller waits for an answer."""
        if self._connection is None:
            return
        cycle = self.cycle
        called = cycle is not None and not cycle.response_complete and not cycle.more_body
        if called and not self._refused and not self.flow.write_paused:
            self._connection.mark_busy()
        else:
            self._connection.mark_idle()

    def _start_timer(self, seconds: float, then: Any, *given: Any) -> None:
        """Start the timer of the awaited phase."""
        self._timer = self.loop.call_later(seconds, then, *given)

    def _awaited_phase(self) -> _AwaitedPhase:
        """Return which phase of the call the connection waits for its peer to send."""
        if self.transport.is_closing():
            return _AwaitedPhase.GOODBYE
        if self._refused:
            return _AwaitedPhase.NOTHING
        if self.cycle is not None and not self.cycle.response_complete:
            return _AwaitedPhase.BODY if self.cycle.more_body else _AwaitedPhase.NOTHING
        if self.conn.their_state is h11.SEND_BODY:
            return _AwaitedPhase.REST
        idle = self.timeout_keep_alive_task is not None
        return _AwaitedPhase.NOTHING if idle else _AwaitedPhase.HEAD

    def _check_body_rate(self) -> None:
        """Reduce the time left for a body by a second, and add time for the bytes received."""
        came, self._seen = self._received - self._seen, self._received
        tick_s = min(_TICK_S, self._deadlines.body_s)
        if not self.flow.read_paused:  # else the application is not reading
            self._patience_s -= tick_s
        earned_s = came / self._deadlines.body_bytes_per_s
        self._patience_s = min(self._deadlines.body_s, self._patience_s + earned_s)
        if self._patience_s <= 0:
            self._end_slow_call()
        else:
            self._start_timer(tick_s, self._check_body_rate)

    def _limit_answer_time(self, seconds: float) -> None:
        """Close the connection after a time limit, unless the caller reads fast enough."""
        if self._stalled is not None:
            self._stalled.cancel()
        enough = seconds * self._deadlines.answer_bytes_per_s
        self._stalled = self.loop.call_later(
            seconds, self._check_answer_rate, seconds, self._unsent_bytes() - enough
        )

    def _check_answer_rate(self, seconds: float, at_most: float) -> None:
        """Abort the connection if its peer has read too little of the answer."""
        left = self._unsent_bytes()
        if left and left <= at_most:
            self._limit_answer_time(seconds)
        else:
            self.transport.abort()

    def _unsent_bytes(self) -> int:
        """Return the number of bytes that the peer has not received, here or in the kernel.

        The kernel takes many at once and then none for long, however steadily they are read.
        A TLS transport counts only those that it has not passed on.
        """
        under = getattr(getattr(self.transport, "_ssl_protocol", None), "_transport", None)
        handed_on: int = 0 if under is None else under.get_write_buffer_size()
        in_kernel = 0
        if self._socket is not None and self._socket.fileno() >= 0:
            with suppress(OSError):
                queued = fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, bytes(4))
                in_kernel = int.from_bytes(queued, sys.byteorder)
        return self.transport.get_write_buffer_size() + handed_on + in_kernel

    def _end_slow_call(self) -> None:
        """Answer 408 to a call whose head or body comes too slowly; close an idle connection."""
        if self._missing is _AwaitedPhase.HEAD and not self.conn.trailing_data[0]:
            self.transport.close()  # it never sent a request
            self._update_timer()
            return
        self._refuse_call(HTTPStatus.REQUEST_TIMEOUT)

    def _refuse_call(self, status: HTTPStatus, detail: str | None = None) -> None:
        """Answer in place of the application, unless an answer has begun, and close."""
        if not self._end_call():
            return
        kind = CONNECTION_KINDS[status]
        problem = ProblemAnswer(kind=kind, detail=detail or kind.title)
        body = bytes(problem.response().body)
        headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=status, headers=headers, reason=status.phrase.encode()),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self._update_timer()

    def _end_call(self) -> bool:
        """End the call under way. Return False if its answer has begun: the connection is gone."""
        if self.cycle is None or self.cycle.response_complete:
            return True
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        if self.cycle.response_started:
            self.transport.abort()
            return False
        return True
