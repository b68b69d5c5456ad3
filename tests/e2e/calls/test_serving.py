"""`python -m controller.rest` as a process: it starts, serves, and ends in order."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from registry import Registry
from registry.db import uuid7
from tests.e2e.conftest import a_token
from tests.integration.registry.test_images import add_image
from tests.register import ON_ANY_DATABASE
from tests.servers.ports import a_quiet_port
from tests.servers.running import eventually


def environment(folder: Path, database_url: str, port: int) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("FUGA_")}
    return {
        **inherited,
        "FUGA_STATE_DIR": str(folder),
        "FUGA_DATABASE_URL": database_url,
        "FUGA_LISTEN": f"127.0.0.1:{port}",
    }


def port_in(log: Path) -> int | None:
    """Return where a process listens that was told to take any port, once it says so."""
    for line in log.read_text().splitlines():
        if '"api_started"' in line:
            return int(json.loads(line)["port"])
    return None


COMMAND = (sys.executable, "-m", "controller.rest")


@contextmanager
def a_process(env: dict[str, str], *, files: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run it; perhaps with so many files at most, of which half is what it starts with."""
    limited = [] if files is None else ["prlimit", f"--nofile={files // 2}:{files}"]
    process = subprocess.Popen([*limited, *COMMAND], env=env, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize(
    ("register_url", "number"),
    [
        pytest.param("sqlite", signal.SIGINT, marks=pytest.mark.sqlite),
        pytest.param("postgresql", signal.SIGTERM, marks=pytest.mark.postgresql),
    ],
    indirect=["register_url"],
)
def test_it_serves_until_it_is_told_to_end_and_ends_well(
    register_url: str, tmp_path: Path, number: signal.Signals
):
    registry = Registry.connect(register_url)
    headers = {"Authorization": f"Bearer {a_token(registry, None)}"}
    image = add_image(registry, format="raw")
    registry.images.remove(image.reference, actor="test")
    registry.close()
    port = a_quiet_port()
    url = f"http://127.0.0.1:{port}"
    left_by_a_killed_api = tmp_path / "images" / f"{image.id}.raw"
    left_by_a_killed_api.parent.mkdir()
    left_by_a_killed_api.touch()
    unknown = left_by_a_killed_api.with_name(f"{uuid7()}.raw")
    unknown.touch()

    with a_process(environment(tmp_path, register_url, port)) as process:
        eventually(lambda: answers(f"{url}/readyz"))
        assert (left_by_a_killed_api.exists(), unknown.exists()) == (False, True)
        hosts = httpx.get(f"{url}/v1/hosts", headers=headers)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)

    assert hosts.json() == {"items": [], "next": None}
    assert process.returncode == 0
    assert "api_started" in errors
    assert "api_stopped" in errors
    assert headers["Authorization"].removeprefix("Bearer ") not in errors
    assert "Traceback" not in errors


@ON_ANY_DATABASE
def test_a_thousand_half_sent_requests_leave_it_serving_and_its_log_short(
    register_url: str, tmp_path: Path
):
    Registry.connect(register_url).close()
    port = a_quiet_port()
    env = environment(tmp_path, register_url, port) | {"FUGA_API_CONNECTIONS_PER_ADDRESS": "100"}

    def half_sent(number: int) -> socket.socket:
        source = (f"127.0.2.{number // 90 + 1}", 0)
        half = socket.create_connection(("127.0.0.1", port), timeout=30, source_address=source)
        half.sendall(b"GET /healthz HTTP/1.1\r\nHo")
        return half

    with a_process(env, files=512) as process, ExitStack() as stack:
        eventually(lambda: answers(f"http://127.0.0.1:{port}/readyz"))
        for number in range(1100):
            with suppress(ConnectionError):
                stack.enter_context(half_sent(number))
        eventually(lambda: answers(f"http://127.0.0.1:{port}/healthz"), within_s=30)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)

    assert process.returncode == 0
    assert errors.count("connections_refused") == 1
    assert "out of system resource" not in errors
    assert len(errors.splitlines()) < 100


@ON_ANY_DATABASE
def test_an_address_in_use_is_said_in_one_line(register_url: str, tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = int(other.getsockname()[1])

        done = subprocess.run(
            COMMAND,
            env=environment(tmp_path, register_url, port),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_database_that_was_never_upgraded_is_said_with_what_to_run(tmp_path: Path):
    done = subprocess.run(
        COMMAND,
        env=environment(tmp_path, f"sqlite:///{tmp_path / 'none.db'}", a_quiet_port()),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 1
    assert "fuga db upgrade" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.sqlite
def test_calls_are_answered_while_the_disk_of_the_log_is_full(
    register: Registry, register_url: str, tmp_path: Path
):
    port, token = a_quiet_port(), a_token(register, None)
    url = f"http://127.0.0.1:{port}"
    env = environment(tmp_path, register_url, port)
    with Path("/dev/full").open("w") as log:
        process = subprocess.Popen(COMMAND, env=env, stderr=log)
    try:
        eventually(lambda: answers(f"{url}/readyz"))
        headers = {"Authorization": f"Bearer {token}"}
        for method, path, status in (
            ("GET", "/v1/vms", 200),
            ("GET", "/v1/images/nobody", 404),
            ("POST", "/v1/tenants", 422),
            ("POST", "/v1/nowhere", 404),
        ):
            answer = httpx.request(method, url + path, headers=headers, json={}, timeout=30)
            assert answer.status_code == status
            assert answer.json()
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait()
