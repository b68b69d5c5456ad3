"""Drivers of hosts, opened with the credentials of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hypervisor import Credential, HostConnections, HostEndpoint, HostUnreachableError, MigratorPool
from registry import HostCredentialError
from registry.hosts import HostAccess, HostCredentials
from workers.driver import HostDriver, Migrator


class LibvirtHostDrivers:
    """Lends drivers and migrators of hosts.

    A credential whose files changed opens a new connection.
    """

    def __init__(
        self,
        connections: HostConnections,
        credentials: HostCredentials,
        *,
        call_deadline_s: float = 60.0,
    ) -> None:
        self._connections = connections
        self._credentials = credentials
        self._migrators = MigratorPool(deadline_s=call_deadline_s)

    @contextmanager
    def use(self, host: HostAccess) -> Iterator[HostDriver]:
        """Lend a driver of a host, for use by one thread."""
        self._migrators.end_idle()
        with self._connections.use(host.uri, self._credential(host), host.machine) as driver:
            yield driver

    @contextmanager
    def migrator(self, source: HostAccess, destination: HostAccess) -> Iterator[Migrator]:
        """Lend a migrator from ``source`` to ``destination``, for use by one thread."""
        ends = [
            HostEndpoint(each.uri, self._credential(each), each.machine)
            for each in (source, destination)
        ]
        with self._migrators.use(*ends) as migrator:
            yield migrator

    def close(self) -> None:
        """End the idle migrators; the owner of the hosts' connections closes those."""
        self._migrators.close()

    def _credential(self, host: HostAccess) -> Credential | None:
        """Return the credential of a host with its files; None if the URI needs none."""
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
