"""The API over TLS: a process with a certificate, and clients that do or do not trust it."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGHUP

import httpx
import pytest

from controller.client.connection import ApiConnection
from controller.client.errors import ApiUnreachableError
from controller.client.http import Client
from registry import Registry
from tests.e2e.calls.test_serving import COMMAND, environment, port_in
from tests.e2e.conftest import a_token
from tests.register import ON_ANY_DATABASE
from tests.servers.certificates import Authority
from tests.servers.running import START_TIME_S, eventually

pytestmark = pytest.mark.sqlite


@dataclass(frozen=True)
class TlsApi:
    process: subprocess.Popen[bytes]
    port: int
    token: str
    ours: Authority
    other: Authority
    log: Path

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def client(self, authority: Authority) -> closing[Client]:
        connection = ApiConnection(url=self.url, token=self.token, ca=str(authority.certificate))
        return closing(Client(connection))

    def shown(self) -> int:
        """The number of the certificate that a new connection is shown."""
        context = ssl.create_default_context(cafile=str(self.ours.certificate))
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
        ):
            found = wrapped.getpeercert()
        assert found
        return int(str(found["serialNumber"]), 16)


@contextmanager
def a_tls_process(env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(COMMAND, env=env, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def api(register_url: str, tmp_path: Path) -> Iterator[TlsApi]:
    ours, other = Authority.make(tmp_path / "ours"), Authority.make(tmp_path / "other")
    pair = ours.server("shown")
    registry = Registry.connect(register_url)
    token = a_token(registry, None)
    registry.close()
    log = tmp_path / "api.log"
    env = environment(tmp_path, register_url, 0) | {
        "FUGA_TLS_CERT": str(pair.certificate),
        "FUGA_TLS_KEY": str(pair.key),
    }
    with a_tls_process(env, log) as process:
        port = eventually(lambda: port_in(log), within_s=START_TIME_S)
        assert port is not None
        found = TlsApi(process, port, token, ours, other, log)
        with found.client(ours) as client:
            eventually(client.ready)
        yield found


@ON_ANY_DATABASE
def test_a_client_that_trusts_its_authority_works_and_no_other(api: TlsApi):
    with api.client(api.ours) as client:
        assert list(client.items("hosts")) == []
    with (
        api.client(api.other) as client,
        pytest.raises(ApiUnreachableError, match=r"(?i)certificate verify failed"),
    ):
        client.get("hosts")
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{api.port}/healthz", timeout=60)


@ON_ANY_DATABASE
def test_a_new_certificate_is_shown_without_dropping_anybody(api: TlsApi):
    before = api.shown()
    with api.client(api.ours) as client:
        client.get("hosts")

        api.ours.server("shown")
        assert api.shown() == before, "not before it is told"
        api.process.send_signal(SIGHUP)
        eventually(lambda: b"certificate_renewed" in api.log.read_bytes())

        assert api.shown() != before
        client.get("hosts")

    (api.ours.folder / "shown.pem").write_text("no certificate")
    renewed = api.shown()
    api.process.send_signal(SIGHUP)
    eventually(lambda: b"certificate_not_renewed" in api.log.read_bytes())
    assert api.shown() == renewed, "a bad one does not replace a good one"


@ON_ANY_DATABASE
def test_files_that_do_not_belong_together_are_said_in_one_line(register_url: str, tmp_path: Path):
    ours = Authority.make(tmp_path / "ours")
    env = environment(tmp_path, register_url, 0) | {
        "FUGA_TLS_CERT": str(ours.server("one").certificate),
        "FUGA_TLS_KEY": str(ours.server("two").key),
    }
    done = subprocess.run(COMMAND, env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "FUGA_TLS_KEY" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_ca_that_cannot_be_read_is_said():
    connection = ApiConnection(url="https://127.0.0.1:1", token=None, ca="/nowhere/ca.pem")
    with pytest.raises(ApiUnreachableError, match=r"FUGA_CA.*/nowhere/ca\.pem"):
        Client(connection)
