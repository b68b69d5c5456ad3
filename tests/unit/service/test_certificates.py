"""When certificates end, read from files and from servers with certificates made here."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from controller.cli.doctor.certificates import certificate_findings
from controller.client.connection import ApiConnection
from controller.settings import ControllerSettings
from registry.hosts import HostCredentials
from service import ProcessMetrics, certificates
from service.certificates import (
    CertificateEnd,
    CertificateWatch,
    TlsServer,
    certificate_ends_by_settings,
    credential_certificate_ends,
    file_certificate_end,
    server_certificate_end,
    server_certificate_ends,
    server_of_host,
)
from tests.servers.certificates import Authority

SSL_REQUEST = b"\0\0\0\x08\x04\xd2\x16\x2f"


@contextmanager
def tls_server(
    authority: Authority, *, asks: bytes = b"", version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> Iterator[int]:
    """Serve TLS on a free port to those who show a certificate of the authority."""
    pair = authority.server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = version
    context.load_cert_chain(pair.certificate, pair.key)
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            with plain, suppress(OSError):
                if asks:
                    assert plain.recv(64) == asks
                    plain.sendall(b"S")
                context.wrap_socket(plain, server_side=True).close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(60)


def days_left(found: CertificateEnd | None) -> int | None:
    assert found is not None
    return None if found.ends_at is None else round((found.ends_at - datetime.now(UTC)).days)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("certificates") / "ours", days=20)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("asks", [b"", SSL_REQUEST], ids=["tls", "postgresql"])
def test_a_server_that_demands_a_certificate_shows_when_its_own_ends(
    ours: Authority, asks: bytes, version: ssl.TLSVersion
) -> None:
    client = ours.client("fuga")
    with tls_server(ours, asks=asks, version=version) as port:
        server = TlsServer(
            of="x",
            host="127.0.0.1",
            port=port,
            certificate=client.certificate,
            key=client.key,
            postgres=bool(asks),
        )
        assert days_left(server_certificate_end(server)) == 19


def test_every_certificate_that_settings_name_is_looked_at(ours: Authority, tmp_path: Path) -> None:
    long = Authority.make(tmp_path / "long", days=400)
    client, api = ours.client("fuga"), long.server("api")
    query = f"sslcert={client.certificate}&sslkey={client.key}&sslrootcert={ours.certificate}"
    broker = f"ssl_certfile={client.certificate}&ssl_keyfile={client.key}"
    with tls_server(ours, asks=SSL_REQUEST) as database, tls_server(ours) as redis:
        settings = ControllerSettings(
            tls_cert=api.certificate,
            tls_key=api.key,
            ca=long.certificate,
            oidc_ca=ours.certificate,
            database_url=SecretStr(f"postgresql://fuga@127.0.0.1:{database}/fuga?{query}"),
            broker_url=SecretStr(
                f"rediss://:secret@127.0.0.1:{redis}/0?ssl_ca_certs={ours.certificate}&{broker}"
            ),
        )
        found = {each.of: each for each in certificate_ends_by_settings(settings)}

    assert {of: days_left(each) for of, each in found.items()} == {
        "API": 399,
        "authority of the API": 399,
        "authority of the provider": 19,
        "client of the database": 19,
        "authority of the database": 19,
        "client of the broker": 19,
        "authority of the broker": 19,
        "database": 19,
        "broker": 19,
    }
    soon = {of for of, each in found.items() if each.ends_soon(datetime.now(UTC))}
    assert soon == found.keys() - {"API", "authority of the API"}
    assert "secret" not in str(found)


def test_of_an_authority_before_its_successor_in_one_file_the_first_end_counts(
    ours: Authority, tmp_path: Path
) -> None:
    long = Authority.make(tmp_path / "long", days=400)
    both, bundle, none = (tmp_path / name for name in ("both.pem", "bundle.pem", "none.pem"))
    both.write_bytes(long.certificate.read_bytes() + ours.certificate.read_bytes())
    bundle.write_bytes(ours.certificate.read_bytes() * 21)
    none.write_text("hello")

    assert days_left(file_certificate_end("x", both)) == 19
    assert file_certificate_end("x", bundle) is None
    for path, why in ((none, "no PEM certificate"), (tmp_path / "gone.pem", "No such file")):
        found = file_certificate_end("x", path)
        assert found is not None
        assert found.problem is not None
        assert why in found.problem


def test_hosts_credentials_and_what_their_libvirt_shows_are_looked_at(
    ours: Authority, tmp_path: Path
) -> None:
    store = HostCredentials(tmp_path / "credentials")
    folder = store.folder / "site"
    folder.mkdir(parents=True, mode=0o700)
    client = ours.client("fuga")
    for source, name in (
        (ours.certificate, "cacert.pem"),
        (client.certificate, "clientcert.pem"),
        (client.key, "clientkey.pem"),
    ):
        shutil.copy(source, folder / name)
    with tls_server(ours) as port, socket.create_server(("127.0.0.1", 0)) as silent:
        closed = silent.getsockname()[1]
        silent.close()
        servers = [
            server_of_host(name, uri, folder)
            for name, uri in (
                ("a", f"qemu+tls://127.0.0.1:{port}/system"),
                ("off", f"qemu+tls://127.0.0.1:{closed}/system"),
                ("ssh", "qemu+ssh://root@127.0.0.1/system"),
            )
        ]
        known = (each for each in servers if each is not None)
        found = sorted(server_certificate_ends(known, 60), key=lambda each: each.of)

    assert [(each.of, days_left(each)) for each in found] == [("host a", 19), ("host off", None)]
    assert [(each.of, days_left(each)) for each in credential_certificate_ends(store)] == [
        ("credential site", 19)
    ]


def test_metrics_have_the_first_end_of_all_hosts_and_keep_what_a_silent_server_showed() -> None:
    now = datetime.now(UTC)
    shown: dict[str, int | None] = {"host a": 400, "host b": 20, "database": 300}

    def look() -> Iterator[CertificateEnd]:
        for of, days in shown.items():
            ends_at = None if days is None else now + timedelta(days=days)
            yield CertificateEnd(of=of, at="there", ends_at=ends_at)

    metrics = ProcessMetrics("monitor")
    watch = CertificateWatch(look, metrics, now=now.timestamp)

    def series() -> dict[str, float]:
        lines = metrics.text().decode().splitlines()
        found = [each for each in lines if each.startswith("fuga_certificate_ends_seconds{")]
        return {each.split('"')[1]: float(each.rpartition(" ")[2]) / 86400 for each in found}

    with capture_logs() as logs:
        watch.check()
    assert series() == {"hosts": 20, "database": 300}
    assert [(each["event"], each["of"]) for each in logs] == [("certificate_ends_soon", "host b")]

    shown.update({"host b": None, "database": None})
    watch.check()
    assert series() == {"hosts": 20, "database": 300}
    del shown["host b"]
    watch.check()
    assert series() == {"hosts": 400, "database": 300}


def test_a_look_at_thousands_of_silent_hosts_ends_in_time_and_leaves_none_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over, looked = threading.Event(), []

    def silent(server: TlsServer) -> None:
        looked.append(server)
        over.wait(60)

    monkeypatch.setattr(certificates, "server_certificate_end", silent)
    hosts = [TlsServer(of=f"host {each}", host="192.0.2.1", port=1) for each in range(2000)]
    try:
        found = list(server_certificate_ends(hosts, 0.2))
    finally:
        over.set()
    for thread in threading.enumerate():
        if thread.name.startswith("certificates"):
            thread.join(60)

    assert {each.of for each in found} == {each.of for each in hosts}
    assert {each.problem for each in found} == {"no answer in time"}
    assert len(looked) == certificates._AT_ONCE


def test_the_time_of_a_server_counts_from_its_connection_to_the_end_of_the_handshake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed = [0.0]
    clock = SimpleNamespace(monotonic=lambda: passed[0], time=time.time)
    monkeypatch.setattr(certificates, "time", clock)
    listener = socket.create_server(("127.0.0.1", 0))

    def slow() -> None:
        plain, _ = listener.accept()
        plain.recv(64)
        passed[0] = certificates._TIMEOUT_S + 1
        plain.sendall(b"S")
        with plain, suppress(OSError):
            assert plain.recv(64) == b"", "a handshake began after the time was over"

    thread = threading.Thread(target=slow, daemon=True)
    thread.start()
    port = listener.getsockname()[1]
    with listener:
        found = server_certificate_end(
            TlsServer(of="x", host="127.0.0.1", port=port, postgres=True)
        )
        thread.join(60)

    assert found == CertificateEnd(of="x", at=f"127.0.0.1:{port}", problem="timed out")


def test_the_first_look_waits_until_a_monitor_knows_its_hosts() -> None:
    did: list[Any] = []

    class Over(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            did.append(timeout)
            return len(did) > 2

        def is_set(self) -> bool:
            return len(did) > 2

    def look() -> Iterator[CertificateEnd]:
        did.append("look")
        yield from ()

    CertificateWatch(look, ProcessMetrics("monitor")).run(Over())

    assert did == [60.0, "look", 3600.0]


def test_doctor_says_of_a_hosts_certificate_that_qemus_is_replaced_with_it(ours: Authority) -> None:
    with tls_server(ours) as port:
        host = {"name": "h1", "uri": f"qemu+tls://127.0.0.1:{port}/system", "admin": "active"}
        session: Any = SimpleNamespace(
            connection=ApiConnection(url="http://127.0.0.1:1", token=None),
            api=SimpleNamespace(items=lambda _: [host]),
        )
        findings = list(certificate_findings(session, ControllerSettings(), datetime.now(UTC)))

    [found] = [each for each in findings if each.about == "certificate of host h1"]
    assert not found.well
    assert "replace QEMU's for moves (/etc/pki/qemu) with it" in found.message


def test_doctor_looks_at_each_address_of_the_api(ours: Authority) -> None:
    with tls_server(ours) as one, tls_server(ours) as other:
        urls = [f"https://127.0.0.1:{port}" for port in (one, other)]
        session: Any = SimpleNamespace(
            connection=ApiConnection(url=urls[0], others=(urls[1],), token=None),
            api=SimpleNamespace(items=lambda _: []),
        )
        findings = list(certificate_findings(session, ControllerSettings(), datetime.now(UTC)))

    served = [each.message for each in findings if each.about == "certificate of API (as served)"]
    assert sorted(each.partition(": ")[0] for each in served) == sorted(
        url.removeprefix("https://") for url in urls
    )
