"""Callers that send half of something, take nothing, or come by the thousand."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import h11
import pytest
import structlog
from fastapi import FastAPI
from starlette.responses import Response

from controller.rest.middleware import connections
from controller.rest.middleware.connections import (
    Bounds,
    CountedConnection,
    LimitedListener,
    ThrottlingFilter,
    bounds_of,
)
from controller.rest.middleware.http_parser import MAX_HEAD_LINES
from controller.rest.middleware.protocol import Deadlines
from controller.rest.middleware.rate_limits import Rate, RateLimits
from controller.rest.server import listen_on
from tests.e2e.conftest import Api, a_token
from tests.register import ON_ANY_DATABASE
from tests.servers.certificates import Authority
from tests.servers.serving import served

pytestmark = pytest.mark.sqlite

LONG = 600.0
ALL_LONG = Deadlines(
    head_s=LONG, idle_s=LONG, body_s=LONG, unread_s=LONG, answer_s=LONG, goodbye_s=LONG
)
JSON_HEAD = b"POST /v1/requests HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def connected(url: str, source: str = "127.0.0.1") -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=30, source_address=(source, 0))


def is_refused(url: str, source: str = "127.0.0.1") -> bool:
    """Tell whether a connection is closed without a word, as soon as it is there or before."""
    try:
        with connected(url, source) as more:
            return all_of(more) == b""
    except ConnectionResetError:
        return True


def all_of(connection: socket.socket) -> bytes:
    """Return what comes until the other end closes; fails if it does not."""
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def one_of(connection: socket.socket) -> bytes:
    """Return one answer in full."""
    received = b""
    while not (found := re.search(rb"content-length: (\d+)\r\n.*?\r\n\r\n", received, re.S)):
        received += connection.recv(65536)
    while len(received) < found.end() + int(found[1]):
        received += connection.recv(65536)
    return received


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


IN_CHUNKS = b"Transfer-Encoding: chunked\r\n\r\n"
ONE_BYTE = b"1\r\n[\r\n"


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


def two_ends(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return how a server and its clients speak TLS."""
    authority = Authority.make(folder / "authority")
    pair = authority.server()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair.certificate, pair.key)
    return server, ssl.create_default_context(cafile=str(authority.certificate))


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


@ON_ANY_DATABASE
def test_one_address_gets_so_many_connections_and_others_are_served(api: Api):
    bounds = Bounds(in_all=1000, per_address=20)
    with served(api.app, deadlines=ALL_LONG, bounds=bounds) as url, ExitStack() as stack:
        half = [stack.enter_context(connected(url, "127.0.0.2")) for _ in range(20)]
        for each in half:
            each.sendall(b"GET /healthz HTTP/1.1\r\n")
        for _ in range(100):
            assert is_refused(url, "127.0.0.2")

        with connected(url, "127.0.0.3") as honest:
            honest.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert one_of(honest).startswith(b"HTTP/1.1 200")
        half.pop().close()
        assert_served(url, "127.0.0.2")


@ON_ANY_DATABASE
def test_where_ipv6_is_listened_on_addresses_of_ipv4_are_told_apart(api: Api):
    bounds = Bounds(in_all=1000, per_address=2)
    listening = served(api.app, deadlines=ALL_LONG, bounds=bounds, listen="[::]:0")
    with listening as url, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(connected(url, "127.0.0.2"))
        assert is_refused(url, "127.0.0.2")

        assert_served(url, "127.0.0.3")


@ON_ANY_DATABASE
def test_where_ipv6_is_listened_on_a_proxy_is_known_by_its_ipv4_address(api: Api):
    bounds = bounds_of(100, 2, ["127.0.0.2"], files=4096)
    head = b"PATCH /v1/requests HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 192.0.2.7\r\n"
    with (
        served(
            api.app,
            deadlines=ALL_LONG,
            bounds=bounds,
            listen="[::]:0",
            trusted_proxies=["127.0.0.2"],
        ) as url,
        ExitStack() as stack,
    ):
        for _ in range(3):
            kept = stack.enter_context(connected(url, "127.0.0.2"))
            kept.sendall(head + b"Content-Length: 0\r\n\r\n")
            assert one_of(kept).startswith(b"HTTP/1.1 401")

    calls = api.operator.get("/v1/audit").json()["items"]
    assert {call["address"] for call in calls} == {"192.0.2.7"}


class Calling(LimitedListener):
    """A listener to whom callers of these addresses come; no loopback has so many networks."""

    addresses: Iterator[str]

    def _next(self) -> tuple[socket.socket, tuple[str, int]]:
        here, there = socket.socketpair()
        there.close()
        return here, (next(self.addresses), 1)


class Flooded(Calling):
    """A listener to whom refusing one takes a tenth of a millisecond."""

    addresses = repeat("192.0.2.1")
    now = 0.0

    def _clock(self) -> float:
        return self.now

    def _next(self) -> tuple[socket.socket, tuple[str, int]]:
        self.now += 0.0001
        return super()._next()


@pytest.mark.parametrize(
    ("others_s", "refused_in_a_turn"), [(0.0, 5), (0.0012, 12), (0.1, 30), (3600.0, 30)]
)
def test_refusing_takes_no_longer_than_the_calls_under_way(others_s, refused_in_a_turn):
    refused: list[str] = []
    with Flooded(socket.AF_INET6) as listener:
        listener.set_bounds(Bounds(in_all=100, per_address=0), refused.append)
        for _ in range(3):
            refused.clear()
            with pytest.raises(BlockingIOError):
                listener.accept()
            listener.now += others_s

    assert len(refused) == pytest.approx(refused_in_a_turn, abs=1)


@ON_ANY_DATABASE
def test_one_site_of_ipv6_leaves_connections_to_others(api: Api):
    refused: list[str] = []
    with Calling(socket.AF_INET6) as listener, ExitStack() as stack:
        listener.set_bounds(Bounds(in_all=100, per_address=20), refused.append)
        one_site = (f"2001:db8:7:{network:x}::1" for network in range(200))
        listener.addresses = chain(one_site, ["2001:db8:8::1", "192.0.2.1"])
        accepted: list[str] = []
        while len(accepted) < 77:
            with suppress(BlockingIOError):  # calls under way get their turn
                connection, address = listener.accept()
                stack.enter_context(connection)
                accepted.append(address[0])

    assert accepted[75:] == ["2001:db8:8::1", "192.0.2.1"]
    assert refused == ["too many of one network"] * 125


@ON_ANY_DATABASE
@pytest.mark.parametrize("over_tls", [False, True])
@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /healthz HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"],
    ids=["silent", "half_heads", "idle"],
)
def test_when_all_are_taken_the_longest_waiting_of_the_largest_holder_gives_way(
    api: Api, tmp_path: Path, over_tls: bool, sent: bytes
):
    bounds = Bounds(in_all=20, per_address=6)
    server, client = two_ends(tmp_path) if over_tls else (None, None)
    with (
        served(api.app, deadlines=ALL_LONG, bounds=bounds, tls=server) as url,
        ExitStack() as stack,
    ):

        def open_one(source: str) -> socket.socket:
            plain = stack.enter_context(connected(url, source))
            if client is None or not sent:  # half a handshake
                return plain
            return stack.enter_context(client.wrap_socket(plain, server_hostname="127.0.0.1"))

        held = []
        for source in ("127.0.0.2", "127.0.0.3", "127.0.0.4"):
            for _ in range(6):
                held.append(open_one(source))
                held[-1].sendall(sent)
                if sent.endswith(b"\r\n\r\n"):
                    assert one_of(held[-1]).startswith(b"HTTP/1.1 200 ")
        callers = []
        for number in range(10):
            callers.append(open_one(f"127.0.1.{number + 1}"))
            if client is None or sent:
                callers[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert one_of(callers[-1]).startswith(b"HTTP/1.1 200 ")

        assert all_of(held[0]) == b""
        held[5].settimeout(0.05)
        with pytest.raises(TimeoutError):
            held[5].recv(1)


class Full(LimitedListener):
    """A listener whose connections wait for nobody but callers of these addresses."""

    def take(self, address: str) -> CountedConnection:
        self.address = address
        while True:
            with suppress(BlockingIOError):  # calls under way get their turn
                accepted, _ = self.accept()
                assert isinstance(accepted, CountedConnection)
                return accepted

    def _next(self) -> tuple[socket.socket, tuple[str, int]]:
        here, there = socket.socketpair()
        there.close()
        return here, (self.address, 1)


def refused_by(listener: Full, address: str) -> bool:
    listener.address = address
    try:
        listener.accept()
    except BlockingIOError:
        return True
    return False


def test_a_caller_under_way_gives_way_to_nobody():
    with Full(socket.AF_INET6) as listener, ExitStack() as stack:
        listener.set_bounds(Bounds(in_all=20, per_address=20))
        working = [stack.enter_context(listener.take("192.0.2.1")) for _ in range(19)]
        for each in working:
            each.mark_busy()
        stack.enter_context(listener.take("192.0.2.2"))

        assert refused_by(listener, "192.0.2.2")
        working[7].mark_idle()
        stack.enter_context(listener.take("192.0.2.3"))
        assert listener._of_addresses == {"192.0.2.1": 18, "192.0.2.2": 1, "192.0.2.3": 1}


def test_some_connections_are_kept_for_addresses_without_one():
    with Full(socket.AF_INET6) as listener, ExitStack() as stack:
        listener.set_bounds(Bounds(in_all=40, per_address=40))
        for each in [stack.enter_context(listener.take("192.0.2.1")) for _ in range(38)]:
            each.mark_busy()

        assert refused_by(listener, "192.0.2.1")
        for number in (2, 3):
            stack.enter_context(listener.take(f"192.0.2.{number}"))


@pytest.mark.parametrize(
    "others",
    [
        [f"198.51.100.{number}" for number in range(40)],
        [f"2001:db8:{site:x}::1" for site in range(40)],
        [f"2001:db8:7:{network:x}::1" for network in range(30)]
        + [f"2001:db8:8:{network:x}::1" for network in range(10)],
    ],
    ids=["addresses", "sites", "networks of a site"],
)
def test_many_addresses_with_one_connection_each_keep_no_newcomer_out(others: list[str]):
    with Full(socket.AF_INET6) as listener, ExitStack() as stack:
        listener.set_bounds(Bounds(in_all=40, per_address=4))
        for address in others:
            stack.enter_context(listener.take(address))

        stack.enter_context(listener.take("192.0.2.1"))
        stack.enter_context(listener.take("2001:db8:99::1"))
        assert listener._open == 40


@pytest.mark.parametrize(("others", "stays"), [(2, True), (12, False)])
def test_idle_connections_close_sooner_while_half_of_all_are_taken(
    api: Api, others: int, stays: bool
):
    deadlines = replace(ALL_LONG, crowded_idle_s=0.05)
    bounds = Bounds(in_all=20, per_address=20)
    with served(api.app, deadlines=deadlines, bounds=bounds) as url, ExitStack() as stack:
        for _ in range(others):
            stack.enter_context(connected(url, "127.0.0.2"))
        idle = stack.enter_context(connected(url))
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        one_of(idle)

        idle.settimeout(0.5 if stays else 30)
        if stays:
            with pytest.raises(TimeoutError):
                idle.recv(1)
        else:
            assert idle.recv(1) == b""


@ON_ANY_DATABASE
def test_half_a_handshake_is_counted_and_ends(api: Api, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "HANDSHAKE_S", 0.3)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with (
        served(
            api.app, deadlines=ALL_LONG, bounds=Bounds(in_all=1, per_address=1), tls=context
        ) as url,
        connected(url) as half,
    ):
        half.sendall(b"\x16\x03\x01")
        assert is_refused(url)

        assert all_of(half) == b""


@ON_ANY_DATABASE
def test_a_proxy_that_is_trusted_speaks_for_many(api: Api):
    bounds = bounds_of(100, 2, ["127.0.0.2", "192.0.2.0/24"], files=4096)
    with served(api.app, deadlines=ALL_LONG, bounds=bounds) as url, ExitStack() as stack:
        for _ in range(10):
            kept = stack.enter_context(connected(url, "127.0.0.2"))
            kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert one_of(kept).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("files", "in_all"), [(1_048_576, 1000), (1024, 768), (512, 256), (100, 50)]
)
def test_connections_leave_files_for_all_else(files: int, in_all: int):
    assert bounds_of(1000, 200, [], files=files).in_all == in_all


#: Serves nobody: its connections take all files that it may open.
OUT_OF_FILES = """
import asyncio, logging, resource, sys
logging.basicConfig(level=logging.DEBUG)
from controller.rest.middleware.connections import throttle_library_logs
from controller.rest.server import listen_on

async def main():
    listener = listen_on("127.0.0.1:0")
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, sock=listener)
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
    throttle_library_logs()
    print(listener.getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()

asyncio.run(main())
"""


def test_a_process_without_files_for_more_connections_says_so_once():
    command = [sys.executable, "-c", OUT_OF_FILES]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        with ExitStack() as stack:
            for _ in range(60):
                stack.enter_context(connected(url))
            threading.Event().wait(2.5)  # it fails to accept at least twice
            _, errors = process.communicate("", timeout=30)

    assert errors.count("out of system resource") == 1


def test_what_strangers_can_have_logged_is_logged_once_a_minute():
    bounded = ThrottlingFilter()

    def passes(text: str) -> bool:
        record = logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, text, (), None)
        return bounded.filter(record)

    told = [passes("Invalid HTTP request received.") for _ in range(36_000)]

    assert told.count(True) == 1
    assert passes("Started server process")


@ON_ANY_DATABASE
def test_refused_connections_are_one_line_a_minute(api: Api):
    with structlog.testing.capture_logs() as lines:
        bounds = Bounds(in_all=10, per_address=0)
        with served(api.app, bounds=bounds) as url:
            assert all(is_refused(url) for _ in range(50))

    refusals = [line for line in lines if line["event"] == "connections_refused"]
    assert [line["reason"] for line in refusals] == ["too many of one address"]


def test_counts_of_closed_connections_do_not_stay():
    with listen_on("127.0.0.1:0") as listener:
        listener.set_bounds(Bounds(in_all=100, per_address=100))
        port = listener.getsockname()[1]
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", port)):
                accepted, _ = listener.accept()
                accepted.close()
                accepted.close()
        _accepted_and_forgotten(listener, port)

        assert (listener._open, dict(listener._of_addresses)) == (0, {})


def _accepted_and_forgotten(listener: LimitedListener, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        listener.accept()


def assert_served(url: str, source: str) -> None:
    """Call until a connection stays: the end of another may take a moment to be seen."""
    for _ in range(200):
        with connected(url, source) as caller:
            try:
                caller.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                if caller.recv(65536).startswith(b"HTTP/1.1 200"):
                    return
            except OSError:
                pass
        threading.Event().wait(0.05)
    pytest.fail("no connection stayed")


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
        def count_stranger(self, address: str) -> float:
            counted.append(address)
            return super().count_stranger(address)

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
