"""How hosts are reached: their settings, and the credentials on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from hypervisor import Credential
from monitor.translate import to_credential
from registry import HostCredentialError
from registry.hosts import CredentialFiles, HostCredentials, Opening, WatchedHost, opening_of


@dataclass(frozen=True, slots=True)
class Way:
    """The way to a host, or why there is none."""

    uri: str
    pool: str
    named: str | None
    ssh_host_keys: tuple[str, ...]
    credential: Credential | None
    locked_out: str | None = None

    @property
    def folder(self) -> Path | None:
        """The folder of the files that open the host, if any."""
        return None if self.credential is None else Path(self.credential.folder)


class Ways:
    """Checks the files of each credential regularly, however many hosts it opens."""

    def __init__(self, credentials: HostCredentials) -> None:
        self._credentials = credentials
        self._found: dict[tuple[Opening | None, str | None], CredentialFiles | str | None] = {}

    def refresh(self, hosts: Iterable[WatchedHost]) -> set[tuple[Opening | None, str | None]]:
        """Check the files again, and return the keys of changed credentials."""
        samples = {key_of(host): host for host in hosts}
        found = {key: self._look(host) for key, host in samples.items()}
        changed = {key for key in found if key in self._found and found[key] != self._found[key]}
        self._found = found
        return changed

    def to(self, host: WatchedHost) -> Way:
        """Return the way to a host, by the last check of the files."""
        key = key_of(host)
        if key not in self._found:
            self._found[key] = self._look(host)
        found = self._found[key]
        if isinstance(found, str):
            return Way(host.uri, host.pool, host.credential, host.ssh_host_keys, None, found)
        opened_by = to_credential(found, host)
        return Way(host.uri, host.pool, host.credential, host.ssh_host_keys, opened_by)

    def _look(self, host: WatchedHost) -> CredentialFiles | str | None:
        try:
            return self._credentials.find(host.uri, host.credential)
        except HostCredentialError as error:
            return str(error)


def key_of(host: WatchedHost) -> tuple[Opening | None, str | None]:
    """Return the key that hosts with the same files share."""
    return opening_of(host.uri), host.credential


def may_stay(before: Way, now: Way) -> bool:
    """Return whether the only change is that the credential's files are unusable."""
    return (
        now.locked_out is not None
        and before.locked_out is None
        and now == replace(before, credential=None, locked_out=now.locked_out)
    )
