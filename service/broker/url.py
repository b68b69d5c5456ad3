"""The broker's URL and its TLS options; TLS is verified by default."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from registry import InvalidError

#: Timeout of the broker, which normally answers within milliseconds.
BROKER_TIMEOUT_S: Final = 3.0
_BOUNDED: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "socket_timeout": BROKER_TIMEOUT_S,
        "socket_connect_timeout": BROKER_TIMEOUT_S,
        # For a broker that is away: senders retry, and readers wait elsewhere.
        "max_retries": 1,
        "interval_start": 0,
    }
)
_FILES: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})
_CHECKS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "ssl_cert_reqs": {"required": ssl.CERT_REQUIRED, "none": ssl.CERT_NONE},
        "ssl_check_hostname": {"true": True, "false": False},
    }
)


def broker_config(url: str) -> dict[str, Any]:
    """Return Celery's configuration for a broker: address, TLS and time limits.

    A `rediss` URL may say ``ssl_ca_certs`` (else whom the system trusts),
    ``ssl_certfile`` and ``ssl_keyfile``; the server's certificate and its name are
    checked unless the URL says otherwise.

    Raises
    ------
    InvalidError
        If the URL is not of Redis, or has an invalid TLS option. The message does not contain the
        password.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss"):
        raise InvalidError("broker_url", f"{parts.scheme}://…", "redis:// or rediss://")
    said = dict(parse_qsl(parts.query))
    tls = {name: value for name, value in said.items() if name.startswith("ssl_")}
    if parts.scheme != "rediss":
        if tls:
            raise InvalidError("broker_url", sorted(tls)[0], "rediss:// if TLS options are given")
        return {"broker_url": url, "broker_transport_options": dict(_BOUNDED)}
    options: dict[str, Any] = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
    for name, value in tls.items():
        if name in _FILES:
            options[name] = value
        elif value.lower() in _CHECKS.get(name, {}):
            options[name] = _CHECKS[name][value.lower()]
        else:
            known = sorted(_FILES | set(_CHECKS))
            raise InvalidError("broker_url", f"{name}={value}", f"of TLS: {', '.join(known)}")
    if options["ssl_cert_reqs"] is ssl.CERT_NONE:
        options["ssl_check_hostname"] = False
    rest = urlencode({name: value for name, value in said.items() if name not in tls})
    return {
        "broker_url": parts._replace(query=rest).geturl(),
        "broker_use_ssl": options,
        "broker_transport_options": dict(_BOUNDED),
    }
