"""The credential of a host, and its form for libvirt. Plain values, without libvirt."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

_SSH: Final = frozenset({"ssh", "libssh", "libssh2"})
SSH_PORT: Final = 22
CREDENTIAL_VARIABLE: Final = "HYPERVISOR_CREDENTIAL"  #: which passes it to a child
DESTINATION_VARIABLE: Final = "HYPERVISOR_CREDENTIAL_OF_DESTINATION"  #: the same, of a move
#: A folder without files: a connection that uses it cannot authenticate.
NO_FILE: Final = "/dev/null/none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """Files that open hosts, in a folder of this machine.

    For TLS ``cacert.pem``, ``clientcert.pem`` and ``clientkey.pem``, for SSH ``id``. The
    caller that makes one has checked them; here they are only named to libvirt.
    """

    name: str
    folder: str = field(repr=False)
    stamp: str = ""  #: another one makes it another credential: its files have changed
    ssh_host_keys: tuple[str, ...] = ()  #: of which the host must show one

    def mask(self, text: str) -> str:
        """Return a text without the folder: it may come from libvirt and be shown."""
        for shown in (self.folder, quote(self.folder)):
            text = text.replace(shown, f"credential {self.name}")
        return text

    def to_json(self) -> str:
        """Return it for the child process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Credential:
        """Read it back."""
        fields = json.loads(text)
        return cls(**{**fields, "ssh_host_keys": tuple(fields["ssh_host_keys"])})


def is_ssh(uri: str) -> bool:
    """Return whether a host is reached by SSH."""
    return urlsplit(uri).scheme.partition("+")[2] in _SSH


def tls_uri(uri: str, credential: Credential) -> str:
    """Return the URI with credential for libvirt, for a URI without parameters."""
    return urlunsplit(urlsplit(uri)._replace(query=f"pkipath={quote(credential.folder)}"))


def ssh_uri(uri: str, *, known_hosts: str, key_file: str) -> str:
    """Return the URI with credential for libvirt, for a URI without parameters.

    Always by libssh, whichever client the URI names: it runs in the child process, and
    takes both files from the URI. OpenSSH would take no file of known hosts from there.
    """
    parts = urlsplit(uri)
    scheme = f"{parts.scheme.partition('+')[0]}+libssh"
    query = (
        f"known_hosts={quote(known_hosts)}&known_hosts_verify=normal"
        f"&sshauth=privkey&keyfile={quote(key_file)}"
    )
    return urlunsplit(parts._replace(scheme=scheme, query=query))


def known_hosts(uri: str, keys: tuple[str, ...]) -> str:
    """Return the lines that know a host by these keys."""
    parts = urlsplit(uri)
    host, port = parts.hostname or "", parts.port or SSH_PORT
    shown = host if port == SSH_PORT else f"[{host}]:{port}"
    return "".join(f"{shown} {key}\n" for key in keys)
