"""The listener beside a process's work, asked over TCP and over a Unix socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from service import Check, HttpListener, ListenerError, ProcessMetrics, listening
from service.listener import _HealthHandler, _ListenerServer
from service.version import commit, engine_version

WELL = Check("database", True, "it answers")
ILL = Check("broker", False, "it does not answer")


@contextmanager
def listener(address: str, *checks: Check) -> Iterator[HttpListener]:
    metrics = ProcessMetrics("worker")
    found = HttpListener(address, ready=lambda: checks, metrics=metrics.text)
    try:
        yield found
    finally:
        found.close()


def client(found: HttpListener) -> httpx.Client:
    if found.address.startswith("unix:"):
        transport = httpx.HTTPTransport(uds=found.address.removeprefix("unix:"))
        return httpx.Client(transport=transport, base_url="http://process", timeout=60)
    return httpx.Client(base_url=f"http://{found.address}", timeout=60)


@pytest.mark.parametrize("where", ["127.0.0.1:0", "unix"])
def test_a_process_tells_that_it_lives_is_ready_and_how_it_is(where: str, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/m.sock" if where == "unix" else where
    with listener(address, WELL) as found, client(found) as asking:
        alive, ready = asking.get("/healthz"), asking.get("/readyz?verbose=1")
        metrics, other = asking.get("/metrics"), asking.get("/v1/hosts")

    assert (alive.status_code, alive.json()) == (200, {"status": "ok"})
    assert ready.status_code == 200
    assert ready.json()["checks"] == {"database": {"ok": True, "message": "it answers"}}
    assert metrics.headers["content-type"].startswith("text/plain; version=")
    [info] = [each for each in metrics.text.splitlines() if each.startswith("fuga_build_info{")]
    for label in (
        'process="worker"',
        f'version="{engine_version()}"',
        f'commit="{commit() or ""}"',
    ):
        assert label in info
    assert other.status_code == 404
    assert not (tmp_path / "m.sock").exists()


def test_what_is_missing_is_named_and_the_process_still_lives() -> None:
    with listener("127.0.0.1:0", WELL, ILL) as found, client(found) as asking:
        ready, alive = asking.get("/readyz"), asking.get("/healthz")

    assert ready.status_code == 503
    assert ready.json() == {
        "status": "not_ready",
        "checks": {
            "database": {"ok": True, "message": "it answers"},
            "broker": {"ok": False, "message": "it does not answer"},
        },
    }
    assert alive.status_code == 200


def test_the_socket_of_a_process_that_was_killed_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "m.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))

    with listener(f"unix:{path}", WELL) as found, client(found) as asking:
        assert asking.get("/healthz").status_code == 200


def test_an_address_that_somebody_serves_is_refused(tmp_path: Path) -> None:
    for address in (f"unix:{tmp_path}/m.sock", "127.0.0.1:0"):
        with (
            listener(address, WELL) as first,
            pytest.raises(ListenerError, match="cannot listen on"),
        ):
            HttpListener(first.address, ready=list, metrics=bytes)


@pytest.mark.parametrize("address", ["", "9100", "host:", ":9100", "127.0.0.1:x", "[::1]:70000"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ListenerError, match=r"wanted host:port or unix:PATH"):
        HttpListener(address, ready=list, metrics=bytes)


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")

    with pytest.raises(ListenerError, match="not a socket"):
        HttpListener(f"unix:{tmp_path}/notes", ready=list, metrics=bytes)

    assert (tmp_path / "notes").read_text() == "mine"


def test_without_an_address_nobody_listens() -> None:
    with listening(None, ProcessMetrics("monitor"), ready=list) as found:
        assert found is None


@pytest.mark.parametrize(
    ("error", "logged"), [(BrokenPipeError(), 0), (ConnectionResetError(), 0), (KeyError(), 1)]
)
def test_a_caller_that_went_away_is_no_news(
    error: Exception, logged: int, capfd: pytest.CaptureFixture[str]
) -> None:
    server = _ListenerServer(("127.0.0.1", 0), _HealthHandler)
    with capture_logs() as logs:
        try:
            raise error
        except type(error):
            server.handle_error(None, None)
    server.server_close()

    assert [each["event"] for each in logs] == ["metrics_call_failed"] * logged
    assert capfd.readouterr().err == ""
