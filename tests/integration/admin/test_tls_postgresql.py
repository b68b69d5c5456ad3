"""PostgreSQL over TLS, with certificates on both sides; a server of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

import pytest
from pydantic import SecretStr

from registry import Registry, RegistryUnavailableError, upgrade
from service.certificates import certificate_ends_by_settings
from service.settings import SharedSettings
from tests.raw_sql import raw_sql
from tests.servers.certificates import Authority
from tests.servers.ports import a_quiet_port
from tests.servers.postgres import _FAST, SERVER_USER, postgres_server, why_not

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]


@dataclass(frozen=True)
class TlsServer:
    port: int
    user: str
    database: str
    ours: Authority
    other: Authority

    def url(self, host: str = "127.0.0.1", **said: object) -> str:
        client = self.ours.client(self.user)
        query = {
            "sslmode": "verify-full",
            "sslrootcert": self.ours.certificate,
            "sslcert": client.certificate,
            "sslkey": client.key,
        } | said
        given = urlencode({key: str(value) for key, value in query.items() if value is not None})
        return f"postgresql://{self.user}@{host}:{self.port}/{self.database}?{given}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    folder = tmp_path_factory.mktemp("authorities")
    ours, other = Authority.make(folder / "ours"), Authority.make(folder / "other")
    pair = ours.server()
    # The server's user may not search pytest's folders.
    shared = Path(tempfile.mkdtemp(prefix="fuga-tls-"))
    try:
        shared.chmod(0o755)
        rules = shared / "pg_hba.conf"
        rules.write_text("local all all trust\nhostssl all all 127.0.0.1/32 cert\n")
        for source, name in (
            (pair.certificate, "server.pem"),
            (pair.key, "server.key"),
            (ours.certificate, "ca.pem"),
        ):
            shutil.copy(source, shared / name)
        (shared / "server.key").chmod(0o600)
        if os.geteuid() == 0:
            account = pwd.getpwnam(SERVER_USER)
            os.chown(shared / "server.key", account.pw_uid, account.pw_gid)
        port = a_quiet_port()
        options = (
            f"{_FAST.replace('listen_addresses=', 'listen_addresses=127.0.0.1')} -c port={port}"
            f" -c ssl=on -c hba_file={rules} -c ssl_cert_file={shared}/server.pem"
            f" -c ssl_key_file={shared}/server.key -c ssl_ca_file={shared}/ca.pem"
        )
        with postgres_server(options, port=port) as running:
            yield TlsServer(port, running.user, running.create(), ours, other)
    finally:
        shutil.rmtree(shared)


def test_the_register_center_works_over_tls_with_a_clients_certificate(server: TlsServer) -> None:
    upgrade(server.url())
    registry = Registry.connect(server.url())
    assert registry.check() == []
    registry.close()

    with raw_sql(server.url()) as raw:
        found = raw.rows("SELECT ssl, client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    assert found == [{"ssl": True, "client_dn": f"/CN={server.user}"}]


def test_a_server_that_another_authority_vouches_for_is_refused(server: TlsServer) -> None:
    with pytest.raises(RegistryUnavailableError, match="certificate verify failed"):
        Registry.connect(server.url(sslrootcert=server.other.certificate))


def test_a_server_of_another_name_is_refused(server: TlsServer) -> None:
    with pytest.raises(RegistryUnavailableError, match='does not match host name "localhost"'):
        Registry.connect(server.url("localhost", hostaddr="127.0.0.1"))


def test_a_client_without_a_certificate_is_refused(server: TlsServer) -> None:
    with pytest.raises(RegistryUnavailableError, match="client certificate"):
        Registry.connect(server.url(sslcert="/nowhere", sslkey="/nowhere"))


def test_a_plain_connection_is_refused(server: TlsServer) -> None:
    with pytest.raises(RegistryUnavailableError, match="no encryption"):
        Registry.connect(server.url(sslmode="disable"))


def test_when_the_servers_certificate_ends_is_read_without_a_login(server: TlsServer) -> None:
    settings = SharedSettings(database_url=SecretStr(server.url()))

    found = {each.of: each for each in certificate_ends_by_settings(settings)}

    assert sorted(found) == ["authority of the database", "client of the database", "database"]
    assert found["database"].at == f"127.0.0.1:{server.port}"
    assert all(each.ends_soon(datetime.now(UTC)) for each in found.values())
