"""Checks of libvirt URIs, as some parameters (``command=``, ``netcat=``) run programs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from registry.errors import UriRefusedError

#: names and addresses that libvirt passes to ssh or to a resolver, without characters of
#: options or of a shell
_HOST: Final = re.compile(
    r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*"
)
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_PATH: Final = re.compile(r"(/[A-Za-z0-9._-]+)*/?")
_LOCAL_TRANSPORTS: Final = frozenset({"", "unix"})
MAX_LENGTH: Final = 1024


class HostAccessMethod(StrEnum):
    """How a host is reached, which decides the credential's files."""

    TLS = "tls"
    SSH = "ssh"


_OPENINGS: Final = {
    "tls": HostAccessMethod.TLS,
    "ssh": HostAccessMethod.SSH,
    "libssh": HostAccessMethod.SSH,
    "libssh2": HostAccessMethod.SSH,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UriPolicy:
    """The schemes, hosts and parameters that an operator's URI may use."""

    schemes: frozenset[str]
    parameters: frozenset[str]


#: port of a libvirtd that listens on TCP without TLS
OPEN_DANGER: Final = (
    "anyone who reaches the port is root on the host, and all traffic can be read on the way"
)

DEFAULT_URI_POLICY: Final = UriPolicy(
    schemes=frozenset({"qemu+tls", "qemu+ssh", "qemu+libssh", "qemu+libssh2"}),
    parameters=frozenset(),
)


def access_method_of(uri: str) -> HostAccessMethod | None:
    """Return the access method of a host's checked libvirt URI; None if it needs no credential."""
    return _OPENINGS.get(urlsplit(uri).scheme.partition("+")[2])


def is_unprotected(uri: str) -> bool:
    """Return whether a libvirt URI uses TCP without TLS, which accepts every connection."""
    return uri.partition(":")[0].endswith("+tcp")


def check_uri(uri: str, policy: UriPolicy = DEFAULT_URI_POLICY) -> str:
    """Return a host's libvirt URI, or raise `UriRefusedError` with the reason."""
    if len(uri) > MAX_LENGTH:
        raise UriRefusedError(f"{uri[:64]}…", f"longer than {MAX_LENGTH} characters")
    if any(ord(char) <= 0x20 or ord(char) >= 0x7F for char in uri):
        # urlsplit would drop some of them silently, libvirt would not
        raise UriRefusedError(uri, "spaces, control characters and non-ASCII are not allowed")
    if any(char in uri for char in "\\\"'<>^`{|}"):
        raise UriRefusedError(uri, "a character that no URI may hold unescaped")
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError as error:
        raise UriRefusedError(uri, str(error)) from error
    scheme = uri.partition(":")[0]
    if scheme not in policy.schemes:
        allowed = ", ".join(sorted(policy.schemes)) or "none"
        why = f"scheme {scheme!r} is not allowed; allowed: {allowed}"
        if is_unprotected(uri):
            why += f". Clients are not authenticated there: {OPEN_DANGER}"
        raise UriRefusedError(uri, why)
    if "#" in uri:
        raise UriRefusedError(uri, "it has a fragment")
    if port == 0:
        raise UriRefusedError(uri, "port 0")
    _check_uri_authority(uri, scheme, parts)
    _check_uri_path(uri, parts.path)
    _check_uri_query(uri, parts.query, policy)
    return uri


def _check_uri_authority(uri: str, scheme: str, parts: SplitResult) -> None:
    """Check the user, host and port of a libvirt URI, or raise `UriRefusedError`."""
    userinfo, at, _ = parts.netloc.rpartition("@")
    if ":" in userinfo:
        raise UriRefusedError(uri.replace(userinfo, "…"), "it carries a password")
    if at and not _USER.fullmatch(userinfo):
        raise UriRefusedError(uri, "the user name is not plain")
    host = parts.hostname or ""
    if host.startswith("-"):
        raise UriRefusedError(uri, "the host starts with '-', which ssh takes for an option")
    if host and not _HOST.fullmatch(host):
        raise UriRefusedError(uri, "the host is neither a name nor an address")
    remote = scheme.partition("+")[2] not in _LOCAL_TRANSPORTS
    if remote and not host:
        raise UriRefusedError(uri, "it names no host")


def _check_uri_path(uri: str, path: str) -> None:
    """Check the path of a libvirt URI, or raise `UriRefusedError`."""
    if not _PATH.fullmatch(path) or ".." in path:
        raise UriRefusedError(uri, "its path is not plain, as /system is")
    if len(path) > 1 and path.endswith("/"):
        raise UriRefusedError(uri, f"libvirt knows no path {path}; without its last slash it does")


def _check_uri_query(uri: str, query: str, policy: UriPolicy) -> None:
    """Check that a libvirt URI has allowed parameters only, or raise `UriRefusedError`."""
    # libvirt splits at ';' as well as at '&'
    for field in query.replace(";", "&").split("&") if query else ():
        pairs = parse_qsl(field, keep_blank_values=True)
        if not pairs:
            raise UriRefusedError(uri, "an empty parameter")
        for name, value in pairs:
            if name not in policy.parameters:
                allowed = ", ".join(sorted(policy.parameters)) or "none"
                raise UriRefusedError(uri, f"parameter {name!r} is not allowed; allowed: {allowed}")
            if any(ord(char) < 0x20 or ord(char) == 0x7F for char in value):
                raise UriRefusedError(uri, f"a control character in parameter {name!r}")
