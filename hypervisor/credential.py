"""The credential of a host, and its form for libvirt."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

_SSH: Final = frozenset({"ssh", "libssh", "libssh2"})
SSH_PORT: Final = 22
CREDENTIAL_VARIABLE: Final = "HYPERVISOR_CREDENTIAL"  #: environment variable of a child process
#: the same for the destination of a move
DESTINATION_VARIABLE: Final = "HYPERVISOR_CREDENTIAL_OF_DESTINATION"
#: A folder without files: a connection that uses it cannot authenticate.
NO_FILE: Final = "/dev/null/none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """The credential files of a host, in a folder of this machine.

    For TLS ``cacert.pem``, ``clientcert.pem`` and ``clientkey.pem``, for SSH ``id``. The caller has
    checked the files; here only their paths are passed to libvirt.
    """

    name: str
    folder: str = field(repr=False)
    stamp: str = ""  #: changes with the files, so that a changed credential is a different one
    ssh_host_keys: tuple[str, ...] = ()  #: the host must show one of these

    def mask(self, text: str) -> str:
        """Return a text with the credential's folder replaced by its name."""
        for shown in (self.folder, quote(self.folder)):
            text = text.replace(shown, f"credential {self.name}")
        return text

    def to_json(self) -> str:
        """Return the credential as JSON for the child process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Credential:
        """Parse the credential that `to_json` wrote."""
        fields = json.loads(text)
        return cls(**{**fields, "ssh_host_keys": tuple(fields["ssh_host_keys"])})


def is_ssh(uri: str) -> bool:
    """Return whether a libvirt URI uses SSH."""
    return urlsplit(uri).scheme.partition("+")[2] in _SSH


def tls_uri(uri: str, credential: Credential) -> str:
    """Add a TLS credential to a URI without parameters, in libvirt's form."""
    return urlunsplit(urlsplit(uri)._replace(query=f"pkipath={quote(credential.folder)}"))


def ssh_uri(uri: str, *, known_hosts: str, key_file: str) -> str:
    """Add the files of an SSH credential to a URI without parameters, in libvirt's form.

    The client is always libssh, whichever the URI names: it runs in the child process, and takes
    both files from the URI. OpenSSH would take no file of known hosts from there.
    """
    parts = urlsplit(uri)
    scheme = f"{parts.scheme.partition('+')[0]}+libssh"
    query = (
        f"known_hosts={quote(known_hosts)}&known_hosts_verify=normal"
        f"&sshauth=privkey&keyfile={quote(key_file)}"
    )
    return urlunsplit(parts._replace(scheme=scheme, query=query))


def known_hosts(uri: str, keys: tuple[str, ...]) -> str:
    """Return the lines of a known-hosts file for a host with these keys."""
    parts = urlsplit(uri)
    host, port = parts.hostname or "", parts.port or SSH_PORT
    shown = host if port == SSH_PORT else f"[{host}]:{port}"
    return "".join(f"{shown} {key}\n" for key in keys)
