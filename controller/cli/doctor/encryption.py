"""Which connections of this machine are encrypted, and whether their peers are verified."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from controller.settings import ControllerSettings

#: The subject of a check, whether it is well, and what was found.
Finding = tuple[str, bool, str]

_ADVICE: Final = "others can read passwords and data on the way"


def encryption_findings(
    settings: ControllerSettings, api_urls: Sequence[str], environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Check whether the connections to API, database and broker are encrypted."""
    yield from map(_api_finding, api_urls)
    database = settings.database_url
    if database is not None:
        yield _database_finding(database.get_secret_value(), environ)
    broker = settings.broker_url
    if broker is not None:
        yield from _broker_findings(broker.get_secret_value())


def is_local(host: str | None) -> bool:
    """Return whether a name or address is this machine's, without a lookup."""
    if not host or host.startswith("/") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _api_finding(url: str) -> Finding:
    about, parts = "connection to API", urlsplit(url)
    if parts.scheme == "https":
        return about, True, "encrypted, server name verified"
    return _unencrypted_finding(
        about, parts.hostname, "set FUGA_TLS_CERT and FUGA_TLS_KEY of `fuga api`"
    )


def _database_finding(url: str, environ: Mapping[str, str]) -> Finding:
    """Check the encryption of the connection to the database, by ``sslmode`` of its URL."""
    about, parts = "connection to database", urlsplit(url)
    if not parts.scheme.startswith("postgres"):
        return about, True, "a local file"
    said = dict(parse_qsl(parts.query))
    mode = said.get("sslmode") or environ.get("PGSSLMODE") or "prefer"
    host = said.get("host") or parts.hostname
    match mode:
        case "verify-full":
            return about, True, "encrypted, server name verified"
        case "verify-ca":
            weakness = "encrypted, but accepts any server with a certificate of that CA"
            return about, is_local(host), f"{weakness}: set sslmode=verify-full to verify its name"
        case "require":
            weakness = "encrypted, but accepts any server"
            return about, is_local(host), f"{weakness}: set sslmode=verify-full and sslrootcert"
        case _:
            return _unencrypted_finding(
                about, host, "set sslmode=verify-full and sslrootcert in the URL"
            )


def _broker_findings(url: str) -> Iterator[Finding]:
    """Check encryption and password of the connection to the broker."""
    about, parts = "connection to broker", urlsplit(url)
    if parts.scheme == "rediss":
        said = dict(parse_qsl(parts.query))
        unchecked = said.get("ssl_cert_reqs") == "none"
        if unchecked or said.get("ssl_check_hostname") == "false":
            yield about, is_local(parts.hostname), "encrypted, but accepts any server"
        else:
            yield about, True, "encrypted, server name verified"
    elif parts.hostname is not None:
        yield _unencrypted_finding(about, parts.hostname, "use rediss:// with ssl_ca_certs")
    if parts.scheme.startswith("redis") and not parts.password and not is_local(parts.hostname):
        yield "broker", False, "anybody who reaches it can use it: the URL has no password"


def _unencrypted_finding(about: str, host: str | None, advice: str) -> Finding:
    if is_local(host):
        return about, True, "not encrypted, local to this machine"
    return about, False, f"not encrypted: {_ADVICE}; {advice}"
