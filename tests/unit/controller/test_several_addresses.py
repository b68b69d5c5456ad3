"""Several addresses of one API, over real sockets: one refuses, one hangs, one answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from controller.client import failover
from controller.client.connection import ApiConnection
from controller.client.errors import ApiUnreachableError
from controller.client.http import Client
from controller.session.credentials import find_connection
from tests.fakes.http_api import HttpApi, http_api
from tests.servers.ports import a_quiet_port

VM = {"id": "1", "name": "web-1"}


@contextmanager
def refusing() -> Iterator[str]:
    yield f"http://127.0.0.1:{a_quiet_port()}"


@contextmanager
def not_accepting() -> Iterator[str]:
    """An address whose queue of connections is full: connecting hangs."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def not_answering() -> Iterator[str]:
    """An address that takes calls and answers none, as a process that is stopped."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "_CONNECT_S", 0.3)


@pytest.fixture
def live() -> Iterator[HttpApi]:
    with http_api() as api:
        api.on("GET", "/v1/vms/1", VM)
        api.on("POST", "/v1/requests", VM, status=201)
        api.on("PATCH", "/v1/vms/1", VM)
        yield api


def client(
    *urls: str, timeout_s: float = 60.0, retry_after_s: tuple[float, ...] = (0.0,)
) -> Client:
    connection = ApiConnection(url=urls[0], others=urls[1:], token="secret")
    return Client(connection, timeout_s=timeout_s, retry_after_s=retry_after_s)


CALLS = {
    "GET": lambda api: api.get("vms/1"),
    "POST": lambda api: api.post("requests", {"count": 1}),
    "PATCH": lambda api: api.patch("vms/1", {"labels": {}}),
}


@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize("first", [refusing, not_accepting], ids=["refuses", "hangs"])
def test_a_call_that_was_not_sent_goes_to_the_next_address(
    live: HttpApi, first: Any, method: str
) -> None:
    with first() as url:
        api = client(url, live.url, retry_after_s=())

        assert CALLS[method](api) == VM
        assert api.get("vms/1") == VM

    host = live.url.removeprefix("http://")
    assert {each.headers["Host"] for each in live.asked} == {host}
    assert [each.method for each in live.asked] == [method, "GET"]


@pytest.mark.parametrize(("method", "repeated"), [("GET", True), ("POST", True), ("PATCH", False)])
def test_a_call_that_may_have_been_received_is_repeated_only_where_twice_is_as_good_as_once(
    live: HttpApi, method: str, repeated: bool
) -> None:
    with not_answering() as url:
        # The address that answers has the same time to do so, on a loaded machine, too.
        api = client(url, live.url, timeout_s=3.0)
        if repeated:
            assert CALLS[method](api) == VM
        else:
            with pytest.raises(ApiUnreachableError, match="timed out"):
                CALLS[method](api)

    assert len(live.asked) == (1 if repeated else 0)


def test_an_error_names_each_address_and_its_reason() -> None:
    with (
        refusing() as first,
        not_accepting() as second,
        pytest.raises(ApiUnreachableError) as shown,
    ):
        client(first, second, timeout_s=0.5, retry_after_s=()).get("vms/1")

    said = str(shown.value)
    assert f"at {first} or {second}: " in said
    assert f"{first}: [Errno 111] Connection refused; {second}: timed out" in said


def test_paths_below_an_address_are_its_own(live: HttpApi) -> None:
    live.on("GET", "/fuga/v1/vms/1", VM)
    with refusing() as first:
        api = client(f"{first}/elsewhere", f"{live.url}/fuga")

        assert api.get("vms/1", limit=3) == VM

    assert live.asked[0].query == {"limit": "3"}


@pytest.mark.parametrize(
    ("given", "urls"),
    [
        ("http://a", ("http://a",)),
        ("http://a/, https://b:8732 ,", ("http://a", "https://b:8732")),
        ("http://a,http://a/", ("http://a",)),
    ],
)
def test_addresses_are_given_with_commas(tmp_path: Any, given: str, urls: tuple[str, ...]) -> None:
    environ = {"FUGA_URL": given, "FUGA_TOKEN": "secret", "FUGA_STATE_DIR": str(tmp_path)}

    assert find_connection(environ).urls == urls


def test_a_login_goes_to_the_addresses_that_gave_it_and_to_no_further_one(tmp_path: Any) -> None:
    from controller.session.logins import change_logins, logins_file

    environ = {"HOME": str(tmp_path), "FUGA_STATE_DIR": str(tmp_path)}
    kept = logins_file(environ)
    assert kept is not None
    change_logins(kept, lambda logins: logins.with_login(["http://a", "http://b"], "secret"))

    def token(url: str | None) -> str | None:
        found = environ if url is None else {**environ, "FUGA_URL": url}
        return find_connection(found).token

    assert [token(url) for url in ("http://a", "http://b,http://a", None)] == ["secret"] * 3
    assert token("http://a,http://evil") is None


def test_the_last_address_has_the_time_to_connect_that_was_given() -> None:
    given: list[float] = []

    def hangs(request: httpx.Request) -> httpx.Response:
        given.append(request.extensions["timeout"]["connect"])
        raise httpx.ConnectTimeout("timed out")

    urls = ("http://a", "http://b", "http://c")
    connection = ApiConnection(url=urls[0], others=urls[1:], token="secret")
    api = Client(connection, timeout_s=9.0, retry_after_s=(), transport=httpx.MockTransport(hangs))
    with pytest.raises(ApiUnreachableError):
        api.get("vms/1")

    assert given == [0.3, 0.3, 9.0]


def test_two_calls_that_fail_at_one_address_both_go_to_the_next() -> None:
    called: list[str] = []
    both = threading.Barrier(2, timeout=60)

    def answer(request: httpx.Request) -> httpx.Response:
        called.append(request.url.host)
        if request.url.host == "b":
            return httpx.Response(200, json=VM)
        if called.count("a") <= 2:
            both.wait()
        raise httpx.ConnectError("refused")

    urls = ("http://a", "http://b")
    several = failover.FailoverTransport(urls, httpx.MockTransport(answer))

    def call() -> int:
        return several.handle_request(httpx.Request("GET", "http://a/v1/vms/1")).status_code

    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(call) for _ in range(2)]
    assert [each.result() for each in calls] == [200, 200]

    assert call() == 200
    assert called == ["a", "a", "b", "b", "b"]
