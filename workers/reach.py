"""How a worker reaches a host: its address, its machine, its credential on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hypervisor import Credential, HostConnections, HostEnd, HostUnreachableError, Movers
from registry import HostCredentialError
from registry.hosts import HostAccess, HostCredentials
from workers.driver import HostDriver, Mover


class OpenedHosts:
    """Lends drivers of hosts; a credential whose files changed opens a new connection."""

    def __init__(
        self,
        connections: HostConnections,
        credentials: HostCredentials,
        *,
        call_deadline_s: float = 60.0,
    ) -> None:
        self._connections = connections
        self._credentials = credentials
        self._movers = Movers(deadline_s=call_deadline_s)

    @contextmanager
    def use(self, host: HostAccess) -> Iterator[HostDriver]:
        """Lend a driver to one thread."""
        self._movers.end_idle()
        with self._connections.use(host.uri, self._credential(host), host.machine) as driver:
            yield driver

    @contextmanager
    def mover(self, source: HostAccess, destination: HostAccess) -> Iterator[Mover]:
        """Lend what moves VMs from one host to another, to one thread."""
        ends = [
            HostEnd(each.uri, self._credential(each), each.machine)
            for each in (source, destination)
        ]
        with self._movers.use(*ends) as mover:
            yield mover

    def close(self) -> None:
        """End the movers that are kept; the connections are their owner's."""
        self._movers.close()

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
