"""The broker's URL: what it says of TLS, and that TLS is checked where it says nothing."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from registry.errors import InvalidError

_FILES: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})
_CHECKS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "ssl_cert_reqs": {"required": ssl.CERT_REQUIRED, "none": ssl.CERT_NONE},
        "ssl_check_hostname": {"true": True, "false": False},
    }
)


def broker_at(url: str) -> dict[str, Any]:
    """Return what Celery is told of a broker.

    A `rediss` URL may say ``ssl_ca_certs`` (else whom the system trusts),
    ``ssl_certfile`` and ``ssl_keyfile``; the server's certificate and its name are
    checked unless the URL says otherwise.

    Raises
    ------
    InvalidError
        If the URL says of TLS what means nothing; the password is not quoted.
    """
    parts = urlsplit(url)
    said = dict(parse_qsl(parts.query))
    tls = {name: value for name, value in said.items() if name.startswith("ssl_")}
    if parts.scheme != "rediss":
        if tls:
            raise InvalidError("broker_url", sorted(tls)[0], "rediss:// with what is said of TLS")
        return {"broker_url": url}
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
    return {"broker_url": parts._replace(query=rest).geturl(), "broker_use_ssl": options}
