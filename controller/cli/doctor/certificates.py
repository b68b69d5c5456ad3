"""What `fuga doctor` finds out about certificates: of processes, servers, hosts and credentials."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from controller.cli.doctor.check_result import CheckResult
from controller.client.errors import ApiError
from controller.session.session import Session
from controller.terminal.errors import CliError
from controller.terminal.times import clock

if TYPE_CHECKING:
    from controller.settings import ControllerSettings
    from registry.hosts import HostCredentials
    from service.certificates import CertificateEnd, TlsServer

_HTTPS_PORT: Final = 443
_NAMED: Final = 10
#: Hosts show these to each other alone, while a VM moves.
_OF_MOVES: Final = "replace QEMU's for moves (/etc/pki/qemu) with it, whose end fuga does not see"
#: The limit of the check at sites with many silent hosts; monitors see these as well.
_WITHIN_S: Final = 30.0


def credential_findings(store: HostCredentials, now: datetime) -> Iterator[CheckResult]:
    """Check the host credentials on this machine."""
    from registry import HostCredentialError  # noqa: PLC0415 - slow; `--help` needs none
    from service.certificates import CERTIFICATES_LAST  # noqa: PLC0415

    for name in store.names():
        about = f"credential {name}"
        access_methods = store.access_methods(name)
        if not access_methods:
            yield CheckResult(about, False, "its folder holds no files for TLS or SSH")
        for access_method in access_methods:
            try:
                store.check(name, access_method)
                ends_at = store.end_of_validity(name) if access_method == "tls" else None
            except HostCredentialError as error:
                yield CheckResult(about, False, f"{access_method}: {error.reason}")
                continue
            if ends_at is None:
                yield CheckResult(about, True, f"{access_method}: valid")
            else:
                well = ends_at - now > CERTIFICATES_LAST
                yield CheckResult(
                    about, well, f"{access_method}: a certificate ends at {clock(ends_at)}"
                )


def certificate_findings(
    session: Session, settings: ControllerSettings, now: datetime
) -> Iterator[CheckResult]:
    """Check when the certificates of settings, their servers and hosts end."""
    from service.certificates import certificate_ends_by_settings, server_certificate_ends  # noqa: PLC0415

    for found in certificate_ends_by_settings(settings):
        yield _certificate_finding(found, now)
    for found in server_certificate_ends(_api_servers(session), _WITHIN_S):
        yield _certificate_finding(found, now)
    yield from _host_certificate_findings(session, settings, now)


def _certificate_finding(found: CertificateEnd, now: datetime) -> CheckResult:
    """Return when a certificate ends; it is wrong if that is soon."""
    about = f"certificate of {found.of}"
    if found.ends_at is None:
        # A server that does not answer is another finding's.
        is_file = Path(found.at).is_absolute()
        return CheckResult(
            about, not is_file, f"not read at {found.at}: {found.problem}", note=True
        )
    return CheckResult(
        about, not found.ends_soon(now), f"{found.at}: ends at {clock(found.ends_at)}"
    )


def _api_servers(session: Session) -> Iterator[TlsServer]:
    from service.certificates import TlsServer  # noqa: PLC0415

    for parts in map(urlsplit, session.connection.urls):
        if parts.scheme == "https" and parts.hostname:
            # The file may have been renewed without a reload.
            port = parts.port or _HTTPS_PORT
            yield TlsServer(of="API (as served)", host=parts.hostname, port=port)


def _host_certificate_findings(
    session: Session, settings: ControllerSettings, now: datetime
) -> Iterator[CheckResult]:
    """Check when the certificates of the hosts' libvirt end."""
    from service.certificates import server_certificate_ends, server_of_host  # noqa: PLC0415

    try:
        hosts = list(session.api.items("hosts"))
    except (ApiError, CliError):  # another finding reports that
        return
    store = settings.resolved_host_credentials()
    servers = [
        server_of_host(
            each["name"],
            each["uri"],
            store.folder / each["credential"] if each.get("credential") else None,
        )
        for each in hosts
        if each["admin"] != "retired"
    ]
    found = list(server_certificate_ends((each for each in servers if each is not None), _WITHIN_S))
    for each in found:
        if each.ends_soon(now):
            ending = _certificate_finding(each, now)
            yield replace(ending, message=f"{ending.message}; {_OF_MOVES}")
    read = [each for each in found if each.ends_at is not None]
    lasting = [each.ends_at for each in read if each.ends_at and not each.ends_soon(now)]
    if lasting:
        count = f"{len(lasting)} of {len(found)} hosts"
        yield CheckResult(
            "certificates of hosts", True, f"{count}: the first ends at {clock(min(lasting))}"
        )
    unread = [each.of.removeprefix("host ") for each in found if each.ends_at is None]
    if unread:
        named = ", ".join(unread[:_NAMED]) + (" …" if len(unread) > _NAMED else "")
        yield CheckResult(
            "certificates of hosts",
            True,
            f"not read from this machine of {len(unread)} hosts: {named}. Monitors read them, too"
            " (fuga_certificate_ends_seconds)",
            note=True,
        )
