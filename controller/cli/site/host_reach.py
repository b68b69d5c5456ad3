"""`fuga host check`: the name, the ports and the certificate of a host, seen from here."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from controller.cli.doctor.check_result import CheckResult
from controller.cli.doctor.encryption import is_local
from controller.cli.doctor.guests import addresses_of, resolve_name
from controller.terminal.times import clock

_TLS_PORT: Final = 16514
_PLAIN_PORT: Final = 16509
_SSH_PORT: Final = 22
#: The first of those at which a host receives VMs that move.
_MOVES_PORT: Final = 49152
_MOVES: Final = "49152 to 49215"
_CONNECT_S: Final = 3.0
_ENDS_SOON: Final = timedelta(days=30)
#: Where libvirt looks without a credential.
_LIBVIRTS_AUTHORITY: Final = Path("/etc/pki/CA/cacert.pem")
_LIBVIRTS_CLIENT: Final = (
    Path("/etc/pki/libvirt/clientcert.pem"),
    Path("/etc/pki/libvirt/private/clientkey.pem"),
)


def libvirt_port(uri: str) -> int:
    """Return the port of a libvirt URI, by default that of its transport."""
    parts = urlsplit(uri)
    transport = parts.scheme.partition("+")[2]
    known = {"tls": _TLS_PORT, "tcp": _PLAIN_PORT}
    return parts.port or known.get(transport, _SSH_PORT)


def reach_findings(uri: str, credential: Path | None) -> Iterator[CheckResult]:
    """Check a host's name, ports and certificate; ``credential`` is a folder with TLS files."""
    name = urlsplit(uri).hostname
    if not name:
        yield CheckResult("name", True, "a libvirt of this machine: no network is between")
        return
    if not is_local(name):
        found = addresses_of([uri], resolve_name)[uri]
        if not found:
            why = f"{name} does not resolve on this machine within 5 s: add it to DNS or /etc/hosts"
            yield CheckResult("name", False, why)
            return
        shown = ", ".join(sorted({str(each) for each in found}))
        yield CheckResult(
            "name", True, f"{name} is {shown}" if shown != name else f"address {name}"
        )
    port = libvirt_port(uri)
    fault = _connection_fault(name, port)
    if fault is not None:
        yield CheckResult(
            "port", False, f"TCP {port} of {name}: {fault}; {_port_remedy(port, fault)}"
        )
        return
    yield CheckResult("port", True, f"TCP {port} of {name} is open")
    if urlsplit(uri).scheme.endswith("+tls"):
        yield certificate_finding(name, port, credential)
    yield from _open_port_findings(name, port)


def _port_remedy(port: int, fault: str) -> str:
    if fault != "refused":
        return "let the firewalls between this machine and the host pass it"
    if port == _TLS_PORT:
        return "on the host: systemctl enable --now libvirtd-tls.socket (or virtproxyd-tls.socket)"
    return "start what listens there on the host"


def _open_port_findings(name: str, port: int) -> Iterator[CheckResult]:
    """Check that libvirt's plain port is closed, and the ports of moves are not filtered."""
    if port != _PLAIN_PORT and not is_local(name) and _connection_fault(name, _PLAIN_PORT) is None:
        from registry.hosts import OPEN_DANGER  # noqa: PLC0415 - slow; `--help` needs none

        yield CheckResult(
            "plain port",
            False,
            f"TCP {_PLAIN_PORT} is open as well: {OPEN_DANGER}; on the host: systemctl disable"
            " --now libvirtd-tcp.socket (or virtproxyd-tcp.socket)",
        )
    fault = _connection_fault(name, _MOVES_PORT)
    if fault in {None, "refused"}:
        message = f"TCP {_MOVES_PORT} is not filtered from here; hosts need {_MOVES} of each other"
        yield CheckResult("ports of moves", True, message)
    else:
        yield CheckResult(
            "ports of moves",
            True,
            f"TCP {_MOVES_PORT} from here: {fault}. That is well if the other hosts reach {_MOVES}:"
            f" on one of them, nc -vz {name} {_MOVES_PORT} says refused",
            note=True,
        )


def _connection_fault(name: str, port: int) -> str | None:
    """Return the reason why no connection to a port is possible, or None."""
    try:
        socket.create_connection((name, port), _CONNECT_S).close()
    except ConnectionRefusedError:
        return "refused"
    except TimeoutError:
        return f"no answer within {_CONNECT_S:g} s"
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None


def certificate_finding(name: str, port: int, credential: Path | None) -> CheckResult:
    """Verify the certificate that a host presents against the expected authority."""
    about = "certificate"
    try:
        context = _tls_context(credential)
    except OSError as error:
        where = "credential" if credential else str(_LIBVIRTS_AUTHORITY.parent)
        why = f"the files of the {where} cannot be used: {error.strerror or error}"
        return CheckResult(about, False, f"not looked at: {why}")
    try:
        shown, by_common_name = _accepted_certificate(name, port, context)
    except ssl.SSLCertVerificationError as error:
        advice = "sign one for the name in the URI, by the authority in cacert.pem"
        return CheckResult(about, False, f"the host's is refused: {error.verify_message}; {advice}")
    except (OSError, ValueError) as error:
        return CheckResult(about, False, f"no TLS with {name}:{port}: {_error_reason(error)}")
    return _expiry_finding(about, shown, by_common_name=by_common_name)


def own_name_finding(uri: str, credential: Path | None, own: str) -> CheckResult | None:
    """Check that a host's certificate contains the name that the host itself reports.

    Other hosts reach it by that name when VMs move. The function returns None if the certificate
    has the name, or if `certificate_finding` refuses the certificate.
    """
    parts = urlsplit(uri)
    name = parts.hostname
    if not name or not parts.scheme.endswith("+tls") or own.lower() == name:
        return None
    try:
        _accepted_certificate(name, libvirt_port(uri), _tls_context(credential))
    except (OSError, ValueError):
        return None
    try:
        _accepted_certificate(name, libvirt_port(uri), _tls_context(credential), by=own)
    except ssl.SSLCertVerificationError:
        message = (
            f"the host calls itself {own}, which its certificate does not name, and other hosts"
            " reach it by that name when VMs move. If QEMU's certificate lacks it, too, moves to"
            " this host fail: sign both for it as well, or set migration_host in its qemu.conf to"
            " what they name"
        )
        return CheckResult("own name", True, message, note=True)
    except (OSError, ValueError):
        return None
    return None


def _tls_context(credential: Path | None) -> ssl.SSLContext:
    """Return a context with libvirt's authority and client certificate, as libvirt would use."""
    authority, client = _LIBVIRTS_AUTHORITY, _LIBVIRTS_CLIENT
    if credential is not None:
        authority = credential / "cacert.pem"
        client = (credential / "clientcert.pem", credential / "clientkey.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority)
    context.load_cert_chain(*client)
    return context


def _accepted_certificate(
    name: str, port: int, context: ssl.SSLContext, *, by: str | None = None
) -> tuple[Mapping[str, Any], bool]:
    """Return the verified certificate, and whether only its common name has the host's name.

    ``by`` is the name that it must have, by default ``name``.
    """
    context.hostname_checks_common_name = False
    try:
        return _fetch_certificate(name, port, context, by or name), False
    except ssl.SSLCertVerificationError:
        context.hostname_checks_common_name = True
        shown = _fetch_certificate(name, port, context, by or name)
        if _is_common_name_accepted(shown):
            return shown, True
        raise


def _fetch_certificate(name: str, port: int, context: ssl.SSLContext, by: str) -> Mapping[str, Any]:
    with (
        socket.create_connection((name, port), _CONNECT_S) as plain,
        context.wrap_socket(plain, server_hostname=by) as secured,
    ):
        return secured.getpeercert() or {}


def _is_common_name_accepted(shown: Mapping[str, Any]) -> bool:
    """Return whether GnuTLS, and so libvirt, accepts the common name as the host's name.

    OpenSSL is less strict: it accepts one of several, and one together with IP addresses.
    """
    others = {kind for kind, _ in shown.get("subjectAltName", ())}
    common = [pair for part in shown["subject"] for pair in part if pair[0] == "commonName"]
    return len(common) == 1 and not others & {"DNS", "IP Address"}


def _expiry_finding(about: str, shown: Mapping[str, Any], *, by_common_name: bool) -> CheckResult:
    """Return when a host's certificate ends; it is wrong if that is soon."""
    ends_at = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(shown["notAfter"])), UTC)
    left = ends_at - datetime.now(UTC)
    message = f"the host's names it, and ends at {clock(ends_at)}, in {left.days} days"
    if left <= _ENDS_SOON:
        return CheckResult(about, False, f"{message}: sign a new one before")
    if by_common_name:
        message += (
            "; in its common name alone, which libvirt takes and other programs refuse: give the"
            " next one a subjectAltName"
        )
    return CheckResult(about, True, message, note=by_common_name)


def _error_reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_CONNECT_S:g} s"
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
