"""The broker over TLS, with certificates on both sides and users with passwords: a real Redis."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

import pytest
from celery import Celery
from pydantic import SecretStr

from service.certificates import TlsServer, server_certificate_end
from service.settings import SharedSettings, celery_config
from tests.servers.certificates import Authority
from tests.servers.ports import a_quiet_port
from tests.servers.running import eventually

pytestmark = [
    pytest.mark.sqlite,
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server here"),
]

PASSWORD = "pass-word-of-fuga"


@dataclass(frozen=True)
class TlsRedis:
    port: int
    ours: Authority
    other: Authority

    def app(
        self, user: str = f"fuga:{PASSWORD}", host: str = "127.0.0.1", **said: object
    ) -> Celery:
        client = self.ours.client("fuga")
        query = {
            "ssl_ca_certs": self.ours.certificate,
            "ssl_certfile": client.certificate,
            "ssl_keyfile": client.key,
        } | said
        given = urlencode({key: str(value) for key, value in query.items() if value is not None})
        url = f"rediss://{user}@{host}:{self.port}/0?{given}"
        app = Celery("test", set_as_current=False)
        app.conf.update(celery_config(SharedSettings(broker_url=SecretStr(url))))
        return app


def ping(app: Celery) -> bool:
    with app.connection_for_write() as connection:
        return bool(connection.default_channel.client.ping())


def why_not(app: Celery) -> str:
    """Return what is said when it does not answer."""
    with pytest.raises(Exception, match=r".") as refused:  # whatever class the driver takes
        ping(app)
    return str(refused.value)


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsRedis]:
    folder = tmp_path_factory.mktemp("redis")
    ours, other = Authority.make(folder / "ours"), Authority.make(folder / "other")
    pair = ours.server()
    users = folder / "users.acl"
    users.write_text(f"user default off\nuser fuga on >{PASSWORD} ~* &* +@all -@dangerous +info\n")
    port = a_quiet_port()
    command = [
        "redis-server", "--port", "0", "--bind", "127.0.0.1", "--tls-port", str(port),
        "--tls-cert-file", str(pair.certificate), "--tls-key-file", str(pair.key),
        "--tls-ca-cert-file", str(ours.certificate), "--tls-auth-clients", "yes",
        "--aclfile", str(users), "--save", "", "--appendonly", "no", "--dir", str(folder),
    ]  # fmt: skip
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: "Ready to accept connections" in log.read_text())
        yield TlsRedis(port, ours, other)
    finally:
        process.kill()
        process.wait()


def test_a_task_goes_through_and_comes_out_as_json(redis: TlsRedis) -> None:
    app = redis.app()
    app.send_task("workers.nothing", args=["0199"], expires=600)

    with app.connection_for_read() as connection, connection.SimpleQueue("fuga") as queue:
        message = queue.get(block=True, timeout=60)
        assert message.content_type == "application/json"
        assert message.payload[0] == ["0199"]
        message.ack()


def test_a_server_that_another_authority_vouches_for_is_refused(redis: TlsRedis) -> None:
    said = why_not(redis.app(ssl_ca_certs=redis.other.certificate))

    assert "certificate verify failed" in said.lower()
    assert PASSWORD not in said


def test_a_server_of_another_name_is_refused(redis: TlsRedis) -> None:
    assert "mismatch" in why_not(redis.app(host="localhost")).lower()


def test_a_client_without_a_certificate_is_refused(redis: TlsRedis) -> None:
    assert why_not(redis.app(ssl_certfile=None, ssl_keyfile=None))


@pytest.mark.parametrize("user", ["fuga:wrong", "default:", "other:secret"])
def test_who_has_no_password_is_refused(redis: TlsRedis, user: str) -> None:
    assert "password" in why_not(redis.app(user)).lower()


def test_the_system_s_authorities_do_not_vouch_for_ours(redis: TlsRedis, tmp_path: Path) -> None:
    assert "certificate verify failed" in why_not(redis.app(ssl_ca_certs=None)).lower()


def test_when_the_servers_certificate_ends_is_read_without_a_login(redis: TlsRedis) -> None:
    client = redis.ours.client("fuga")
    server = TlsServer(
        of="broker",
        host="127.0.0.1",
        port=redis.port,
        certificate=client.certificate,
        key=client.key,
    )

    found = server_certificate_end(server)

    assert found is not None
    assert found.ends_soon(datetime.now(UTC))
