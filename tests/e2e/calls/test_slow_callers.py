"""Callers that send half of something, take nothing, or send what is no HTTP."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import h11
import pytest
from fastapi import FastAPI
from starlette.responses import Response

from controller.rest.middleware.http_parser import MAX_HEAD_LINES
from controller.rest.middleware.protocol import Deadlines
from controller.rest.middleware.rate_limits import Rate, RateLimits
from tests.e2e.calls.raw_connections import (
    ALL_LONG,
    IN_CHUNKS,
    JSON_HEAD,
    LONG,
    ONE_BYTE,
    all_of,
    connected,
    one_of,
    two_ends,
)
from tests.e2e.conftest import Api, a_token
from tests.register import ON_ANY_DATABASE
from tests.servers.serving import served

pytestmark = pytest.mark.sqlite


@ON_ANY_DATABASE
def test_half_a_head_is_answered_408_and_closed(api: Api):
    with served(api.app, deadlines=Deadlines(head_s=0.2)) as url, connected(url) as half:
        half.sendall(b"GET /healthz HTTP/1.1\r\nHost")

        answer = all_of(half)

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"too_slow"' in answer


@ON_ANY_DATABASE
def test_a_head_that_comes_byte_by_byte_gains_no_time(api: Api):
    ended = threading.Event()

    def trickle(connection: socket.socket) -> None:
        try:
            while not ended.wait(0.02):
                connection.sendall(b"a")
        except OSError:
            pass

    with served(api.app, deadlines=Deadlines(head_s=0.3)) as url, connected(url) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        sender = threading.Thread(target=trickle, args=(slow,))
        sender.start()
        try:
            answer = all_of(slow)
        finally:
            ended.set()
            sender.join()

    assert b"408" in answer or answer == b""  # it was closed while bytes still came


@ON_ANY_DATABASE
def test_a_connection_that_asks_for_nothing_is_closed(api: Api):
    with served(api.app, deadlines=Deadlines(head_s=0.2)) as url, connected(url) as silent:
        assert all_of(silent) == b""


@ON_ANY_DATABASE
def test_who_asked_once_gains_no_time_for_half_of_the_next_head(api: Api):
    deadlines = Deadlines(head_s=0.3, idle_s=LONG)
    with served(api.app, deadlines=deadlines) as url, connected(url) as kept:
        kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert one_of(kept).startswith(b"HTTP/1.1 200")
        kept.sendall(b"GET /heal")

        assert all_of(kept).startswith(b"HTTP/1.1 408 ")


@ON_ANY_DATABASE
def test_half_a_body_is_answered_408_and_closed(api: Api):
    token = a_token(api.registry, "a", "slow").encode()
    with served(api.app, deadlines=Deadlines(body_s=0.2)) as url, connected(url) as half:
        head = JSON_HEAD + b"Authorization: Bearer " + token + b"\r\nContent-Length: 100\r\n\r\n"
        half.sendall(head + b'{"vm_type"')

        answer = all_of(half)

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"too_slow"' in answer


@ON_ANY_DATABASE
def test_a_body_that_comes_at_a_fair_rate_has_all_the_time_it_needs(api: Api):
    token = a_token(api.registry, "a", "fair").encode()
    content = b'{"vm_type": "small", "count": 1}'
    fair = Deadlines(body_s=0.3, body_bytes_per_s=10)
    with served(api.app, deadlines=fair) as url, connected(url) as caller:
        head = JSON_HEAD + b"Authorization: Bearer " + token
        caller.sendall(head + b"\r\nContent-Length: %d\r\n\r\n" % (len(content) + 40))
        waited = threading.Event()
        for at in range(0, 40, 4):
            waited.wait(0.1)  # ten times: thrice as long as one that sends nothing may take
            caller.sendall(b" " * 4)
            assert at < 40
        caller.sendall(content)

        assert one_of(caller).startswith(b"HTTP/1.1 201 ")


@ON_ANY_DATABASE
def test_the_rest_of_a_body_that_nobody_takes_is_bounded(api: Api):
    with served(api.app, deadlines=ALL_LONG) as url, connected(url) as flood:
        flood.sendall(JSON_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        assert one_of(flood).startswith(b"HTTP/1.1 401 ")
        chunk = b"10000\r\n" + b"[" * 65536 + b"\r\n"

        sent = sent_until_closed(flood, chunk)

    assert sent < 64 << 20


@ON_ANY_DATABASE
def test_who_waits_with_the_rest_of_such_a_body_is_closed(api: Api):
    deadlines = Deadlines(unread_s=0.2, idle_s=LONG)
    with served(api.app, deadlines=deadlines) as url, connected(url) as flood:
        flood.sendall(JSON_HEAD + b"Content-Length: 100\r\n\r\n[[[")

        assert all_of(flood).startswith(b"HTTP/1.1 401 ")


@ON_ANY_DATABASE
def test_after_a_small_body_that_nobody_took_the_connection_serves_on(api: Api):
    with served(api.app) as url, connected(url) as caller:
        for _ in range(3):
            caller.sendall(JSON_HEAD + b"Content-Length: 4\r\n\r\n[[")
            assert one_of(caller).startswith(b"HTTP/1.1 401 ")
            caller.sendall(b"[[")


@contextmanager
def to_a_server(
    api: Api, folder: Path, *, over_tls: bool, deadlines: Deadlines = ALL_LONG
) -> Iterator[Callable[[], socket.socket]]:
    """Serve; give what connects."""
    server, client = two_ends(folder) if over_tls else (None, None)
    with served(api.app, deadlines=deadlines, tls=server) as url, ExitStack() as stack:

        def connect() -> socket.socket:
            plain = stack.enter_context(connected(url))
            if client is None:
                return plain
            return stack.enter_context(client.wrap_socket(plain, server_hostname="127.0.0.1"))

        yield connect


@contextmanager
def parsed_events(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """Gather what h11 makes of what it gets."""
    events: list[object] = []
    original = h11.Connection.next_event

    def next_event(connection: h11.Connection) -> object:
        event = original(connection)
        events.append(event)
        return event

    with monkeypatch.context() as patched:
        patched.setattr(h11.Connection, "next_event", next_event)
        yield events


@ON_ANY_DATABASE
@pytest.mark.parametrize("over_tls", [False, True])
@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /healthz HTTP/1.1\r\nHost: x\r\n", b"405"),
        (b"POST /nothing HTTP/1.1\r\nHost: x\r\n", b"404"),
        (JSON_HEAD, b"401"),
    ],
)
def test_chunks_of_an_answered_call_are_not_parsed_and_the_connection_closes(
    api: Api,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    over_tls: bool,
    head: bytes,
    status: bytes,
):
    with (
        parsed_events(monkeypatch) as events,
        to_a_server(api, tmp_path, over_tls=over_tls) as connect,
    ):
        flood = connect()
        flood.sendall(head + IN_CHUNKS + ONE_BYTE * 10_000)
        answer = one_of(flood)
        sent = sent_until_closed(flood, ONE_BYTE * 1_000)

    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"\r\nconnection: close\r\n" in answer
    assert len(events) < 20
    assert sent < 64 << 20


@ON_ANY_DATABASE
@pytest.mark.parametrize("over_tls", [False, True])
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (ONE_BYTE * 10_000, b"more than 256 chunks"),
        (b"1;" + b"a" * 4_000 + b"\r\n[\r\n0\r\n\r\n", b"the line before a chunk is longer"),
        (b"1\r\n[\r\n0\r\n" + b"a: b\r\n" * 2_000 + b"\r\n", b"its trailers are longer"),
    ],
    ids=["chunks", "extension", "trailers"],
)
def test_a_body_whose_chunks_cost_more_than_they_bring_is_refused_with_a_reason(
    api: Api,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    over_tls: bool,
    body: bytes,
    reason: bytes,
):
    token = a_token(api.registry, "a", "chunks").encode()
    head = JSON_HEAD + b"Authorization: Bearer " + token + b"\r\n"
    with (
        parsed_events(monkeypatch) as events,
        to_a_server(api, tmp_path, over_tls=over_tls) as connect,
    ):
        caller = connect()
        caller.sendall(head + IN_CHUNKS + body)
        answer = all_of(caller)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert reason in answer
    assert len(events) < 300


@ON_ANY_DATABASE
@pytest.mark.parametrize("over_tls", [False, True])
def test_bodies_in_usual_chunks_are_read_and_the_connection_serves_on(
    api: Api, tmp_path: Path, over_tls: bool
):
    token = a_token(api.registry, "a", "chunks").encode()
    head = JSON_HEAD + b"Authorization: Bearer " + token + b"\r\n"
    content = b'{"vm_type": "small", "count": 1}'
    few = b"".join(b"1;x=y\r\n%c\r\n" % byte for byte in content)
    many = b"".join(b"400\r\n%s\r\n" % (b" " * 1024) for _ in range(200)) + few
    with to_a_server(api, tmp_path, over_tls=over_tls) as connect:
        caller = connect()
        for chunks in (few, many, few):
            caller.sendall(head + IN_CHUNKS + chunks)
            caller.sendall(b"0\r\nChecksum: none\r\n\r\n")
            assert one_of(caller).startswith(b"HTTP/1.1 201 ")
        caller.sendall(b"DELETE /healthz HTTP/1.1\r\nHost: x\r\n" + IN_CHUNKS + b"0\r\n\r\n")
        assert one_of(caller).startswith(b"HTTP/1.1 405 ")
        caller.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert one_of(caller).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("then", [b"keep-alive", b"close"])
@pytest.mark.parametrize("over_tls", [False, True])
def test_who_takes_a_long_answer_slowly_but_steadily_gets_all_of_it(
    tmp_path: Path, then: bytes, over_tls: bool
):
    length = 8 << 20  # more than the kernels of both ends keep
    app = FastAPI()
    app.add_route("/long", lambda _: Response(b"x" * length))
    fair = Deadlines(idle_s=0.1, goodbye_s=0.5, answer_s=0.5, answer_bytes_per_s=2)
    server, client = two_ends(tmp_path) if over_tls else (None, None)
    taken, waited = 0, threading.Event()
    with served(app, deadlines=fair, tls=server) as url, ExitStack() as stack:
        slow = stack.enter_context(with_little_room(url))
        if client is not None:
            slow = stack.enter_context(client.wrap_socket(slow, server_hostname="127.0.0.1"))
        slow.sendall(b"GET /long HTTP/1.1\r\nHost: x\r\nConnection: " + then + b"\r\n\r\n")
        while piece := slow.recv(1 << 16):
            taken += len(piece)
            waited.wait(len(piece) / 4_000_000)

    assert taken > length


def with_little_room(url: str) -> socket.socket:
    """Connect so that little of what is not read yet is on its way."""
    host, _, port = url.removeprefix("http://").partition(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    connection.settimeout(30)
    connection.connect((host, int(port)))
    return connection


@ON_ANY_DATABASE
def test_who_does_not_take_an_answer_is_closed(api: Api):
    deadlines = Deadlines(answer_s=0.3, goodbye_s=0.3)
    with served(api.app, deadlines=deadlines) as url, connected(url) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

        assert sent_until_closed(deaf, b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 50)


def sent_until_closed(connection: socket.socket, piece: bytes) -> int:
    """Send until the other end closes; fail if it waits for ever, or takes all there is."""
    sent = 0
    for _ in range(100_000):
        try:
            connection.sendall(piece)
        except (ConnectionResetError, BrokenPipeError, ssl.SSLError):
            return sent or 1
        sent += len(piece)
    pytest.fail(f"it took {sent} bytes")


@ON_ANY_DATABASE
@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"nonsense\r\n\r\n", b"400", b"not_http"),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * MAX_HEAD_LINES + b"\r\n",
            b"431",
            b"head_too_large",
        ),
        (b"GET /" + b"a" * 20_000, b"431", b"head_too_large"),
        (
            b"GET /healthz?" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
            b"431",
            b"head_too_large",
        ),
        (
            b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 60_000 + b"\r\n\r\n",
            b"431",
            b"head_too_large",
        ),
        (
            JSON_HEAD + b"Connection: close\r\nContent-Length: 20000\r\n\r\n" + b"a" * 20_000,
            b"401",
            b"unauthorized",
        ),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", b"400", b"not_http"),
        (
            JSON_HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"400",
            b"not_http",
        ),
    ],
)
def test_what_is_no_http_or_too_much_of_it_is_a_problem(
    api: Api, sent: bytes, status: bytes, code: bytes
):
    with served(api.app, deadlines=ALL_LONG) as url, connected(url) as caller:
        caller.sendall(sent)

        answer = all_of(caller)

    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b'"' + code + b'"' in answer


@ON_ANY_DATABASE
def test_many_fields_in_a_second_head_of_one_packet_are_refused_too(api: Api):
    one = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
    with served(api.app, deadlines=ALL_LONG) as url, connected(url) as caller:
        caller.sendall(one + b"\r\n" + one + b"a: b\r\n" * 200 + b"\r\n")

        answer = all_of(caller)

    assert answer.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 431" in answer


NO_HTTP = {
    "request line": b"one two three four\r\n\r\n",
    "header fields": b"GET /healthz HTTP/1.1\r\n" + b"a: b\r\n" * 2_000 + b"\r\n",
    "trailers": JSON_HEAD + IN_CHUNKS + b"1\r\n[\r\n0\r\n" + b"a: b\r\n" * 2_000 + b"\r\n",
}


@ON_ANY_DATABASE
@pytest.mark.parametrize("sent", NO_HTTP.values(), ids=NO_HTTP)
def test_what_is_no_http_counts_like_a_call_without_a_token(api: Api, sent: bytes):
    counted = []

    class Counting(RateLimits):
        def count_tokenless_call(self, address: str) -> float:
            counted.append(address)
            return super().count_tokenless_call(address)

    with served(api.app, limits=Counting()) as url, connected(url, "127.0.0.9") as caller:
        caller.sendall(sent)
        answer = all_of(caller)

    assert re.match(rb"HTTP/1.1 4(00|31) ", answer)
    assert counted == ["127.0.0.9"]


@ON_ANY_DATABASE
@pytest.mark.parametrize("sent", NO_HTTP.values(), ids=NO_HTTP)
def test_who_sends_too_much_that_is_no_http_is_answered_late(api: Api, sent: bytes):
    rate = Rate(per_s=1e-6, burst=1)
    limits = RateLimits(strangers=rate, refused_after_s=LONG)
    with ExitStack() as stack:
        url = stack.enter_context(served(api.app, limits=limits))
        first, second, other = (
            stack.enter_context(connected(url, source))
            for source in ("127.0.0.9", "127.0.0.9", "127.0.0.10")
        )
        first.sendall(sent)
        assert all_of(first).startswith(b"HTTP/1.1 4")

        second.sendall(sent)
        other.sendall(sent)

        assert all_of(other).startswith(b"HTTP/1.1 4")  # another address has not to wait
        second.setblocking(False)
        with pytest.raises(BlockingIOError):
            second.recv(1)


@ON_ANY_DATABASE
def test_a_late_refusal_comes_and_ends_the_connection(api: Api):
    limits = RateLimits(strangers=Rate(per_s=1e-6, burst=1), refused_after_s=0.2)
    with served(api.app, limits=limits, deadlines=ALL_LONG) as url:
        for _ in range(2):
            with connected(url) as caller:
                caller.sendall(NO_HTTP["request line"])
                answer = all_of(caller)

    assert answer.startswith(b"HTTP/1.1 400 ")
