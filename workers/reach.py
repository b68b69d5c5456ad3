"""How a worker reaches a host: its address and its credential on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hypervisor import Credential, HostConnections, HostUnreachableError
from registry import HostCredentialError
from registry.hosts import HostAccess, HostCredentials
from workers.driver import HostDriver


class OpenedHosts:
    """Lends drivers of hosts; a credential whose files changed opens a new connection."""

    def __init__(self, connections: HostConnections, credentials: HostCredentials) -> None:
        self._connections = connections
        self._credentials = credentials

    @contextmanager
    def use(self, host: HostAccess) -> Iterator[HostDriver]:
        """Lend a driver to one thread."""
        with self._connections.use(host.uri, self._credential(host)) as driver:
            yield driver

    def _credential(self, host: HostAccess) -> Credential | None:
        try:
            files = self._credentials.find(host.uri, host.credential)
        except HostCredentialError as error:
            raise HostUnreachableError(host.uri, str(error)) from error
        if files is None:
            return None
        return Credential(
            name=files.name,
            folder=str(files.folder),
            stamp=files.stamp,
            ssh_host_keys=host.ssh_host_keys,
        )
