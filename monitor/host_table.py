"""The table of known hosts, updated by changes, and which of them this monitor polls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from uuid import UUID

from hypervisor import Credential
from monitor.host_shards import rendezvous_rank
from monitor.translate import to_credential
from registry import HostCredentialError, Registry
from registry.hosts import (
    CredentialFiles,
    HostAccessMethod,
    HostCredentials,
    WatchedHost,
    access_method_of,
)


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Settings of a connection to a host; ``locked_out`` says why none is possible."""

    uri: str
    pool: str
    named: str | None
    ssh_host_keys: tuple[str, ...]
    credential: Credential | None
    locked_out: str | None = None

    @property
    def folder(self) -> Path | None:
        """The folder of the connection's credential files, if any."""
        return None if self.credential is None else Path(self.credential.folder)


class CredentialChecks:
    """Checks the files of each credential once, however many hosts use it."""

    def __init__(self, credentials: HostCredentials) -> None:
        self._credentials = credentials
        self._found: dict[
            tuple[HostAccessMethod | None, str | None], CredentialFiles | str | None
        ] = {}

    def refresh(
        self, hosts: Iterable[WatchedHost]
    ) -> set[tuple[HostAccessMethod | None, str | None]]:
        """Check the files of all hosts' credentials again; return the keys of changed ones."""
        samples = {credential_key(host): host for host in hosts}
        found = {key: self._find_files(host) for key, host in samples.items()}
        changed = {key for key in found if key in self._found and found[key] != self._found[key]}
        self._found = found
        return changed

    def connection_settings(self, host: WatchedHost) -> ConnectionSettings:
        """Return the connection settings of a host, by the last check of its files."""
        key = credential_key(host)
        if key not in self._found:
            self._found[key] = self._find_files(host)
        found = self._found[key]
        if isinstance(found, str):
            return ConnectionSettings(
                host.uri, host.pool, host.credential, host.ssh_host_keys, None, found
            )
        opened_by = to_credential(found, host)
        return ConnectionSettings(
            host.uri, host.pool, host.credential, host.ssh_host_keys, opened_by
        )

    def _find_files(self, host: WatchedHost) -> CredentialFiles | str | None:
        """Return a host's credential files, None if it needs none, or why they are unusable."""
        try:
            return self._credentials.find(host.uri, host.credential)
        except HostCredentialError as error:
            return str(error)


def credential_key(host: WatchedHost) -> tuple[HostAccessMethod | None, str | None]:
    """Return the key of a host's credential; hosts with the same files share it."""
    return access_method_of(host.uri), host.credential


def may_keep_connection(before: ConnectionSettings, now: ConnectionSettings) -> bool:
    """Return whether an open connection may stay: only its credential files became unusable."""
    return (
        now.locked_out is not None
        and before.locked_out is None
        and now == replace(before, credential=None, locked_out=now.locked_out)
    )


#: Interval of full reads, which find unannounced changes (a restored register center).
_REREAD_EVERY_S: Final = 300.0


class HostTable:
    """The table of all hosts that are not retired.

    One monitor polls a host. While the host is in trouble a second monitor polls it, too: the first
    may be cut off, and a host is down only if neither reaches it.
    """

    def __init__(
        self, registry: Registry, key: UUID, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.hosts: dict[UUID, WatchedHost] = {}
        self._registry = registry
        self._key = key
        self._monotonic = monotonic
        self._peers: frozenset[UUID] = frozenset()
        self._ranks: dict[UUID, int] = {}
        self._in_trouble: frozenset[UUID] = frozenset()
        self._cursor = 0
        self._read_at: float | None = None

    def find_changed_hosts(self, peers: frozenset[UUID]) -> set[UUID]:
        """Read changes of hosts since the last call; return the ids of changed hosts."""
        failing_hosts = self._registry.watched_hosts.failing_hosts()
        changed = self._read_changes() | (failing_hosts ^ self._in_trouble)
        self._in_trouble = failing_hosts
        if peers != self._peers:
            self._peers, self._ranks = peers, {}
            changed |= self.hosts.keys()
        return changed

    def is_polled_here(self, key: UUID) -> bool:
        """Return whether this monitor polls a host."""
        if key not in self.hosts:
            return False
        if key not in self._ranks:
            self._ranks[key] = rendezvous_rank(key, self._key, self._peers)
        return self._ranks[key] <= (1 if key in self._in_trouble else 0)

    def _read_changes(self) -> set[UUID]:
        """Read hosts that changed, or at times all; return the ids of those that differ."""
        now = self._monotonic()
        if self._read_at is None or now - self._read_at > _REREAD_EVERY_S:
            read = self._registry.watched_hosts.all()
            before, self.hosts = self.hosts, {host.id: host for host in read.hosts}
            self._read_at = now
            changed = {host.id for host in read.hosts if before.get(host.id) != host}
            changed |= before.keys() - self.hosts.keys()
        else:
            read = self._registry.watched_hosts.changed_since(self._cursor)
            for key in read.gone:
                self.hosts.pop(key, None)
            self.hosts |= {host.id: host for host in read.hosts}
            changed = {host.id for host in read.hosts} | read.gone
        self._cursor = read.cursor
        return changed
