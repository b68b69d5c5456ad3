"""Credentials of hosts: files that an operator provides, one folder for each credential.

A host's row has only the credential's name. Certificates and keys stay in
the folder, on the machines of monitors and workers. libvirt reads them, and neither
they nor their paths are stored, shown or logged.
"""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final

from registry.errors import HostCredentialError
from registry.hosts.uris import HostAccessMethod, access_method_of


def end_of_validity(authority: Path, certificate: Path, key: Path) -> datetime:
    """Return the earliest expiry of a certificate and its authorities.

    Raises
    ------
    OSError
        If the files do not match, or one of them is invalid (`ssl.SSLError`).

    Notes
    -----
    It makes a TLS handshake with itself in memory, so the real verification reports
    errors and reads the dates.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    server.load_verify_locations(authority)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    client.load_cert_chain(certificate, key)

    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)]
    shaking = list(ends)
    while shaking:
        for end in list(shaking):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            shaking.remove(end)
    shown = ends[1].getpeercert() or {}
    dates = [found["notAfter"] for found in (shown, *server.get_ca_certs())]
    return datetime.fromtimestamp(min(ssl.cert_time_to_seconds(str(date)) for date in dates), UTC)


@dataclass(frozen=True, slots=True)
class _CredentialFile:
    """A file of a credential: its name, and whether only its owner may read it."""

    name: str
    private: bool = False


#: Names that libvirt knows, and for SSH that of `ssh-keygen -f id`.
FILES: Final[Mapping[HostAccessMethod, tuple[_CredentialFile, ...]]] = MappingProxyType(
    {
        HostAccessMethod.TLS: (
            _CredentialFile("cacert.pem"),
            _CredentialFile("clientcert.pem"),
            _CredentialFile("clientkey.pem", private=True),
        ),
        HostAccessMethod.SSH: (_CredentialFile("id", private=True),),
    }
)
_OTHERS_WRITE: Final = 0o022
_OTHERS_ANYTHING: Final = 0o077
_GROUP_READS: Final = 0o040


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialFiles:
    """A credential whose files passed the checks."""

    name: str
    folder: Path = field(repr=False)
    stamp: str  #: changes when a file does


class HostCredentials:
    """The folder of all credentials on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> tuple[str, ...]:
        """Return the names of the hosts' credentials on this machine; () without a folder."""
        try:
            return tuple(sorted(each.name for each in self.folder.iterdir() if each.is_dir()))
        except FileNotFoundError:
            return ()

    def find(self, uri: str, name: str | None) -> CredentialFiles | None:
        """Return the credential for a host's checked URI; None if the URI needs none of ours.

        Raises
        ------
        HostCredentialError
            If the credential does not exist or fails its checks.
        """
        access_method = access_method_of(uri)
        if access_method is None or (name is None and access_method is HostAccessMethod.TLS):
            return None
        if name is None:
            raise HostCredentialError(
                "-", "SSH needs one: `fuga host set HOST --credential NAME` names it"
            )
        return self.check(name, access_method)

    def check(self, name: str, access_method: HostAccessMethod) -> CredentialFiles:
        """Return a host's credential if its files exist and only their owner can use them."""
        folder = self.folder / name
        for each in (self.folder, folder):
            _check_folder(name, each)
        stamps = [_check_file(name, folder, file) for file in FILES[access_method]]
        return CredentialFiles(name=name, folder=folder, stamp=" ".join(stamps))

    def access_methods(self, name: str) -> tuple[HostAccessMethod, ...]:
        """Return the access methods to hosts for which a credential has files."""
        folder = self.folder / name
        return tuple(
            access_method
            for access_method, files in FILES.items()
            if any((folder / file.name).exists() for file in files)
        )

    def end_of_validity(self, name: str) -> datetime:
        """Return when the certificates of a host's credential end.

        Raises
        ------
        HostCredentialError
            If they do not match each other or their key.
        """
        folder = self.folder / name
        try:
            return end_of_validity(*(folder / file.name for file in FILES[HostAccessMethod.TLS]))
        except ssl.SSLCertVerificationError as error:
            raise HostCredentialError(
                name, f"clientcert.pem is not good for cacert.pem: {error.verify_message}"
            ) from None
        except ssl.SSLError as error:
            raise HostCredentialError(
                name,
                "cacert.pem, clientcert.pem and clientkey.pem do not fit each other:"
                f" {error.reason or 'one of them is no PEM file'}",
            ) from None


def _check_folder(name: str, folder: Path) -> None:
    """Check that a credential's folder exists and that no other user can change it."""
    try:
        mode = folder.stat().st_mode
    except FileNotFoundError:
        raise HostCredentialError(
            name, "it is not in the folder of credentials here (FUGA_HOST_CREDENTIALS)"
        ) from None
    except OSError as error:
        raise HostCredentialError(name, f"its folder cannot be read: {error.strerror}") from None
    if mode & _OTHERS_WRITE:
        raise HostCredentialError(
            name, "its folder, or that of all credentials, can be written by others: chmod go-w"
        )


def _check_file(name: str, folder: Path, file: _CredentialFile) -> str:
    """Check a file of a credential, and return a stamp that changes with its content."""
    path = folder / file.name
    try:
        found = path.stat()
    except FileNotFoundError:
        raise HostCredentialError(name, f"{file.name} is missing") from None
    except OSError as error:
        raise HostCredentialError(name, f"{file.name} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode) or found.st_size == 0:
        raise HostCredentialError(name, f"{file.name} is empty, or no file")
    if not os.access(path, os.R_OK):
        raise HostCredentialError(name, f"{file.name} cannot be read by this process's user")
    # The service's group may read files of root, such as root:fuga 0640.
    ours = _GROUP_READS if found.st_uid == 0 else 0
    forbidden = _OTHERS_ANYTHING & ~ours if file.private else _OTHERS_WRITE
    if found.st_mode & forbidden:
        verb = "read" if file.private else "changed"
        raise HostCredentialError(
            name,
            f"{file.name} can be {verb} by others (mode {stat.S_IMODE(found.st_mode):04o}):"
            f" chmod {'600' if file.private else 'go-w'}",
        )
    return f"{found.st_mtime_ns}/{found.st_ino}/{found.st_size}"
