"""How many connections an address, a network and all together may hold, and which give way."""

from __future__ import annotations

import logging
import socket
import ssl
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import pytest
import structlog

from controller.rest.middleware import connection_limits
from controller.rest.middleware.connection_limits import (
    ConnectionLimits,
    CountedConnection,
    LimitedListener,
    build_limits,
)
from controller.rest.middleware.log_throttle import ThrottlingFilter
from controller.rest.server import open_listener
from tests.e2e.calls.raw_connections import (
    ALL_LONG,
    all_of,
    connected,
    is_refused,
    one_of,
    two_ends,
)
from tests.e2e.conftest import Api
from tests.register import ON_ANY_DATABASE
from tests.servers.serving import served

pytestmark = pytest.mark.sqlite


@ON_ANY_DATABASE
def test_one_address_gets_so_many_connections_and_others_are_served(api: Api):
    limits = ConnectionLimits(in_all=1000, per_address=20)
    with served(api.app, deadlines=ALL_LONG, connections=limits) as url, ExitStack() as stack:
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
    limits = ConnectionLimits(in_all=1000, per_address=2)
    listening = served(api.app, deadlines=ALL_LONG, connections=limits, listen="[::]:0")
    with listening as url, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(connected(url, "127.0.0.2"))
        assert is_refused(url, "127.0.0.2")

        assert_served(url, "127.0.0.3")


@ON_ANY_DATABASE
def test_where_ipv6_is_listened_on_a_proxy_is_known_by_its_ipv4_address(api: Api):
    limits = build_limits(100, 2, ["127.0.0.2"], files=4096)
    head = b"PATCH /v1/requests HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 192.0.2.7\r\n"
    with (
        served(
            api.app,
            deadlines=ALL_LONG,
            connections=limits,
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

    def _accept_next(self) -> tuple[socket.socket, tuple[str, int]]:
        here, there = socket.socketpair()
        there.close()
        return here, (next(self.addresses), 1)


class Flooded(Calling):
    """A listener to whom refusing one takes a tenth of a millisecond."""

    addresses = repeat("192.0.2.1")
    now = 0.0

    def _clock(self) -> float:
        return self.now

    def _accept_next(self) -> tuple[socket.socket, tuple[str, int]]:
        self.now += 0.0001
        return super()._accept_next()


@pytest.mark.parametrize(
    ("others_s", "refused_in_a_turn"), [(0.0, 2), (0.0006, 6), (0.1, 10), (3600.0, 10)]
)
def test_refusing_takes_no_longer_than_the_calls_under_way(others_s, refused_in_a_turn):
    refused: list[str] = []
    with Flooded(socket.AF_INET6) as listener:
        listener.set_limits(ConnectionLimits(in_all=100, per_address=0), refused.append)
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
        listener.set_limits(ConnectionLimits(in_all=100, per_address=20), refused.append)
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
    limits = ConnectionLimits(in_all=20, per_address=6)
    server, client = two_ends(tmp_path) if over_tls else (None, None)
    with (
        served(api.app, deadlines=ALL_LONG, connections=limits, tls=server) as url,
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

    def _accept_next(self) -> tuple[socket.socket, tuple[str, int]]:
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
        listener.set_limits(ConnectionLimits(in_all=20, per_address=20))
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
        listener.set_limits(ConnectionLimits(in_all=40, per_address=40))
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
        listener.set_limits(ConnectionLimits(in_all=40, per_address=4))
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
    limits = ConnectionLimits(in_all=20, per_address=20)
    with served(api.app, deadlines=deadlines, connections=limits) as url, ExitStack() as stack:
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
    monkeypatch.setattr(connection_limits, "HANDSHAKE_S", 0.3)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with (
        served(
            api.app,
            deadlines=ALL_LONG,
            connections=ConnectionLimits(in_all=1, per_address=1),
            tls=context,
        ) as url,
        connected(url) as half,
    ):
        half.sendall(b"\x16\x03\x01")
        assert is_refused(url)

        assert all_of(half) == b""


@ON_ANY_DATABASE
def test_a_proxy_that_is_trusted_speaks_for_many(api: Api):
    limits = build_limits(100, 2, ["127.0.0.2", "192.0.2.0/24"], files=4096)
    with served(api.app, deadlines=ALL_LONG, connections=limits) as url, ExitStack() as stack:
        for _ in range(10):
            kept = stack.enter_context(connected(url, "127.0.0.2"))
            kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert one_of(kept).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("files", "in_all"), [(1_048_576, 1000), (1024, 768), (512, 256), (100, 50)]
)
def test_connections_leave_files_for_all_else(files: int, in_all: int):
    assert build_limits(1000, 200, [], files=files).in_all == in_all


#: Serves nobody: its connections take all files that it may open.
OUT_OF_FILES = """
import asyncio, logging, resource, sys
logging.basicConfig(level=logging.DEBUG)
from controller.rest.middleware.log_throttle import throttle_library_logs
from controller.rest.server import open_listener

async def main():
    listener = open_listener("127.0.0.1:0")
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

    shown = [passes("Invalid HTTP request received.") for _ in range(36_000)]

    assert shown.count(True) == 1
    assert passes("Started server process")


@ON_ANY_DATABASE
def test_refused_connections_are_one_line_a_minute(api: Api):
    with structlog.testing.capture_logs() as lines:
        limits = ConnectionLimits(in_all=10, per_address=0)
        with served(api.app, connections=limits) as url:
            assert all(is_refused(url) for _ in range(50))

    refusals = [line for line in lines if line["event"] == "connections_refused"]
    assert [line["reason"] for line in refusals] == ["too many of one address"]


def test_counts_of_closed_connections_do_not_stay():
    with open_listener("127.0.0.1:0") as listener:
        listener.set_limits(ConnectionLimits(in_all=100, per_address=100))
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
