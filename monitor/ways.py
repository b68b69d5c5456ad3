"""How hosts are reached: what the register center says, and what lies here for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

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


class Ways:
    """Looks at the files of each credential once in a while, however many hosts it opens."""

    def __init__(self, credentials: HostCredentials) -> None:
        self._credentials = credentials
        self._found: dict[tuple[Opening | None, str | None], CredentialFiles | str | None] = {}

    def refresh(self, hosts: Iterable[WatchedHost]) -> set[tuple[Opening | None, str | None]]:
        """Look at the files anew, and return the keys of the credentials that changed."""
        samples = {key_of(host): host for host in hosts}
        found = {key: self._look(host) for key, host in samples.items()}
        changed = {key for key in found if key in self._found and found[key] != self._found[key]}
        self._found = found
        return changed

    def to(self, host: WatchedHost) -> Way:
        """Return the way to a host, by the files as they were looked at last."""
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
    """Return what hosts have in common that the same files open."""
    return opening_of(host.uri), host.credential


def may_stay(before: Way, now: Way) -> bool:
    """Tell whether all that happened is that the credential's files are in disorder."""
    return (
        now.locked_out is not None
        and before.locked_out is None
        and now == replace(before, credential=None, locked_out=now.locked_out)
    )
