"""Ends of certificates, from this process's files and from the servers that it connects to."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import structlog
from cryptography import x509
from prometheus_client import Gauge

from registry import HostCredentialError
from registry.hosts import HostAccessMethod, HostCredentials, access_method_of
from service.metrics import ProcessMetrics
from service.settings import SharedSettings

log: Final = structlog.get_logger(__name__)

#: A certificate that ends sooner has to be replaced.
CERTIFICATES_LAST: Final = timedelta(days=30)
LIBVIRT_TLS_PORT: Final = 16514
_POSTGRES_PORT: Final = 5432
_REDIS_PORT: Final = 6379
_TIMEOUT_S: Final = 3.0
_EVERY_S: Final = 3600.0
#: Delay before the first check, so that a monitor has read its hosts.
_FIRST_S: Final = 60.0
_AT_ONCE: Final = 16
#: PostgreSQL's SSLRequest: its length and its code.
_SSL_REQUEST: Final = struct.pack("!II", 8, 80877103)
#: A file with more authorities is a public collection, some of which have always expired.
_MAX_AUTHORITIES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateEnd:
    """The end of a certificate: its owner, its place, and its end or why that is unknown."""

    of: str
    at: str
    ends_at: datetime | None = None
    problem: str | None = None

    def ends_soon(self, now: datetime) -> bool:
        """Return whether the certificate ends within `CERTIFICATES_LAST` of ``now``."""
        return self.ends_at is not None and self.ends_at - now <= CERTIFICATES_LAST


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsServer:
    """A TLS server to check, and the client certificate for it."""

    of: str
    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    postgres: bool = False

    @property
    def address(self) -> str:
        """The address of the TLS server as ``host:port``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def certificate_files(settings: SharedSettings) -> Iterator[tuple[str, Path]]:
    """Yield the certificate files in a process's settings, each with its purpose."""
    for name, of in (
        ("tls_cert", "API"),
        ("ca", "authority of the API"),
        ("oidc_ca", "authority of the provider"),
    ):
        if (path := getattr(settings, name, None)) is not None:
            yield of, path
    for of, given, names in (
        ("database", settings.database_url, ("sslcert", "sslrootcert")),
        ("broker", settings.broker_url, ("ssl_certfile", "ssl_ca_certs")),
    ):
        if given is None:
            continue
        query = _parse_query(given.get_secret_value())
        for name, whose in zip(names, ("client of the", "authority of the"), strict=True):
            path = query.get(name)
            if path and path != "system":
                yield f"{whose} {of}", Path(path)


def tls_servers(settings: SharedSettings) -> Iterator[TlsServer]:
    """Yield database and broker, if the settings connect to them by TLS."""
    if settings.database_url is not None:
        url = settings.database_url.get_secret_value()
        parts, query = urlsplit(url), _parse_query(url)
        host = parts.hostname or query.get("host", "")
        by_tcp = host and not host.startswith("/") and "," not in host
        if parts.scheme.startswith("postgres") and by_tcp and query.get("sslmode") != "disable":
            yield TlsServer(
                of="database",
                host=host,
                port=parts.port or int(query.get("port", _POSTGRES_PORT)),
                certificate=_optional_path(query.get("sslcert")),
                key=_optional_path(query.get("sslkey")),
                postgres=True,
            )
    if settings.broker_url is not None:
        url = settings.broker_url.get_secret_value()
        parts, query = urlsplit(url), _parse_query(url)
        if parts.scheme == "rediss" and parts.hostname:
            yield TlsServer(
                of="broker",
                host=parts.hostname,
                port=parts.port or _REDIS_PORT,
                certificate=_optional_path(query.get("ssl_certfile")),
                key=_optional_path(query.get("ssl_keyfile")),
            )


def server_of_host(name: str, uri: str, folder: Path | None) -> TlsServer | None:
    """Return the TLS server of a host's libvirt, or None; ``folder`` has the credentials."""
    parts = urlsplit(uri)
    if access_method_of(uri) is not HostAccessMethod.TLS or not parts.hostname:
        return None
    return TlsServer(
        of=f"host {name}",
        host=parts.hostname,
        port=parts.port or LIBVIRT_TLS_PORT,
        certificate=None if folder is None else folder / "clientcert.pem",
        key=None if folder is None else folder / "clientkey.pem",
    )


def file_certificate_end(of: str, path: Path) -> CertificateEnd | None:
    """Return the end of the first certificate in a PEM file; None for a public collection."""
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        return CertificateEnd(of=of, at=str(path), problem=error.strerror or str(error))
    except ValueError:
        return CertificateEnd(of=of, at=str(path), problem="it holds no PEM certificate")
    if len(found) > _MAX_AUTHORITIES:
        return None
    return CertificateEnd(
        of=of, at=str(path), ends_at=min(each.not_valid_after_utc for each in found)
    )


def server_certificate_end(server: TlsServer) -> CertificateEnd | None:
    """Return the end of a server's certificate; None if the server has no TLS.

    The certificate is not verified, so that an expired one can be read.
    """
    ends_at = time.monotonic() + _TIMEOUT_S
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if server.certificate is not None:
        with suppress(OSError, ValueError):  # another check reports these files
            context.load_cert_chain(server.certificate, server.key)
    try:
        with _connect_to_server(server, ends_at) as plain:
            if server.postgres:
                plain.sendall(_SSL_REQUEST)
                if plain.recv(1) != b"S":
                    return None
                plain.settimeout(_remaining_s(ends_at))
            with context.wrap_socket(plain, server_hostname=server.host) as shown:
                der = shown.getpeercert(binary_form=True) or b""
        end = x509.load_der_x509_certificate(der).not_valid_after_utc
    except (OSError, ValueError) as error:
        return CertificateEnd(of=server.of, at=server.address, problem=str(error))
    return CertificateEnd(of=server.of, at=server.address, ends_at=end)


def _connect_to_server(server: TlsServer, ends_at: float) -> socket.socket:
    """Connect to the first address of a server that answers, before ``ends_at``."""
    found = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    for number, (family, kind, protocol, _, address) in enumerate(found, 1):
        plain = socket.socket(family, kind, protocol)
        try:
            plain.settimeout(_remaining_s(ends_at) / (len(found) - number + 1))
            plain.connect(address)
            plain.settimeout(_remaining_s(ends_at))
        except OSError:
            plain.close()
            if number == len(found):
                raise
        else:
            return plain
    raise OSError(f"{server.host} has no address")


def _remaining_s(ends_at: float) -> float:
    """Return the seconds until the time limit of a connection, or raise TimeoutError."""
    if (left_s := ends_at - time.monotonic()) <= 0:
        raise TimeoutError("timed out")
    return left_s


def certificate_ends_by_settings(settings: SharedSettings) -> Iterator[CertificateEnd]:
    """Yield the ends of the certificates of a process, its database and its broker."""
    for of, path in certificate_files(settings):
        if (found := file_certificate_end(of, path)) is not None:
            yield found
    for server in tls_servers(settings):
        if (found := server_certificate_end(server)) is not None:
            yield found


def credential_certificate_ends(store: HostCredentials) -> Iterator[CertificateEnd]:
    """Yield the end of each TLS credential: of its certificate or its authority."""
    for name in store.names():
        if HostAccessMethod.TLS not in store.access_methods(name):
            continue
        of = f"credential {name}"
        try:
            yield CertificateEnd(of=of, at=name, ends_at=store.end_of_validity(name))
        except (HostCredentialError, OSError) as error:
            yield CertificateEnd(of=of, at=name, problem=str(error))


def server_certificate_ends(
    servers: Iterable[TlsServer], within_s: float
) -> Iterator[CertificateEnd]:
    """Yield the ends of many servers' certificates, in any order, within a time limit.

    Nothing is queued in the pool, as the process would wait for it at its end.
    """
    ends_at = time.monotonic() + within_s
    rest = iter(servers)
    checks: dict[Future[CertificateEnd | None], TlsServer] = {}
    pool = ThreadPoolExecutor(_AT_ONCE, "certificates")
    try:
        while (left_s := ends_at - time.monotonic()) > 0:
            for server in islice(rest, _AT_ONCE - len(checks)):
                checks[pool.submit(server_certificate_end, server)] = server
            done, _ = wait(checks, left_s, FIRST_COMPLETED)
            if not done:
                break
            for each in done:
                del checks[each]
                if (found := each.result()) is not None:
                    yield found
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    for server in (*checks.values(), *rest):
        yield CertificateEnd(of=server.of, at=server.address, problem="no answer in time")


class CertificateWatch:
    """Checks all certificates of a process regularly, for its metrics and its log."""

    def __init__(
        self,
        read_ends: Callable[[], Iterable[CertificateEnd]],
        metrics: ProcessMetrics,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._read_ends = read_ends
        self._now = now
        self._gauge = Gauge(
            "fuga_certificate_ends_seconds",
            "Time until a certificate ends; of all hosts', the first (the log names them).",
            ["of"],
            registry=metrics.registry,
        )
        self._ends: dict[tuple[str, str], datetime] = {}

    def check(self) -> None:
        """Read the ends of all certificates, for the metrics; log those that end soon.

        A silent server keeps its last known end.
        """
        now = datetime.fromtimestamp(self._now(), UTC)
        ends: dict[tuple[str, str], datetime] = {}
        for found in self._read_ends():
            key = (found.of, found.at)
            ends_at = found.ends_at or self._ends.get(key)
            if ends_at is not None:
                ends[key] = ends_at
            if found.ends_at is not None and found.ends_soon(now):
                said = found.ends_at.isoformat()
                log.warning("certificate_ends_soon", of=found.of, at=found.at, ends_at=said)
        self._ends = ends
        first: dict[str, datetime] = {}
        for (of, _), ends_at in ends.items():
            # One series for all hosts: 12,500 would be too many.
            kind = "hosts" if of.startswith("host ") else of
            first[kind] = min(first.get(kind, ends_at), ends_at)
        self._gauge.clear()
        for kind, ends_at in first.items():
            self._gauge.labels(kind).set_function(self._seconds_until(ends_at))

    def run(self, over: threading.Event) -> None:
        """Check the certificates every hour until ``over`` is set."""
        wait_s = _FIRST_S
        while not over.wait(wait_s):
            wait_s = _EVERY_S
            try:
                self.check()
            except Exception:
                if not over.is_set():  # an ending process can start no threads
                    log.exception("certificates_not_read")

    def _seconds_until(self, ends_at: datetime) -> Callable[[], float]:
        """Return a function that gives the seconds until a certificate's end."""
        end = ends_at.timestamp()
        return lambda: end - self._now()


@contextmanager
def watching_certificates(
    settings: SharedSettings,
    metrics: ProcessMetrics,
    more: Callable[[], Iterable[CertificateEnd]] = tuple,
) -> Iterator[None]:
    """Watch the certificates of a process until the block ends."""

    def check() -> Iterator[CertificateEnd]:
        yield from certificate_ends_by_settings(settings)
        yield from more()

    over = threading.Event()
    watch = CertificateWatch(check, metrics)
    threading.Thread(target=watch.run, args=(over,), name="certificates", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _parse_query(url: str) -> Mapping[str, str]:
    """Return the parameters of a URL; of a repeated one the last value."""
    return {name: values[-1] for name, values in parse_qs(urlsplit(url).query).items()}


def _optional_path(text: str | None) -> Path | None:
    """Return a path in a URL's parameter, or None."""
    return None if text is None else Path(text)
