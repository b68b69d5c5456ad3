"""Connections to the two hosts of a move. In the child process only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import libvirt

from hypervisor.child import inspection
from hypervisor.child.connect import open_host
from hypervisor.errors import HostUnreachableError, OperationFailedError
from hypervisor.move_model import HostEndpoint
from hypervisor.xml import domain as domain_xml

#: A hung host counts as lost after interval x (count + 1) seconds.
_KEEPALIVE: Final = (3, 3)


class MoveHost:
    """One host of a move: a connection that the move may block, and one for other queries."""

    def __init__(self, endpoint: HostEndpoint) -> None:
        self.uri = endpoint.uri
        self._endpoint = endpoint
        self._opened: dict[str, libvirt.virConnect] = {}
        self._without_shares: libvirt.virConnect | None = None
        self._machine_uuid: tuple[libvirt.virConnect, str | None] | None = None  #: its number

    @property
    def for_move(self) -> libvirt.virConnect:
        """The connection for the move, which may block it."""
        return self._connection("moving")

    @property
    def for_queries(self) -> libvirt.virConnect:
        """The connection for queries during a move."""
        return self._connection("queries")

    def is_alive(self) -> bool:
        """Return whether no open connection is known to be broken; no call is made."""
        return all(_is_alive(conn) for conn in self._opened.values())

    def machine_uuid(self) -> str | None:
        """Return the UUID of the host's machine, read once per connection."""
        if self._machine_uuid is None or self._machine_uuid[0] is not self.for_move:
            found = domain_xml.machine_uuid(self.for_move.getCapabilities())
            self._machine_uuid = (self.for_move, found)
        return self._machine_uuid[1]

    def may_have_cpu_shares(self) -> bool:
        """Return whether the host's cgroups may have CPU shares."""
        if (
            self._without_shares is not self.for_move
            and inspection.has_cpu_shares(self.for_move) is False
        ):
            self.record_shares_refused()
        return self._without_shares is not self.for_move

    def record_shares_refused(self) -> None:
        """Remember for this connection that the host refuses CPU shares."""
        self._without_shares = self.for_move

    def close(self) -> None:
        """Close the connections to this host of the move."""
        opened, self._opened = self._opened, {}
        for conn in opened.values():
            with contextlib.suppress(libvirt.libvirtError):
                conn.close()

    def _connection(self, name: str) -> libvirt.virConnect:
        """Return the named connection to the host; open it first if it is missing or broken."""
        known = self._opened.get(name)
        if known is not None and _is_alive(known):
            return known
        try:
            opened = open_host(
                self._endpoint.uri, self._endpoint.credential, self._endpoint.machine
            )
            with contextlib.suppress(libvirt.libvirtError):  # the test driver has none
                opened.setKeepAlive(*_KEEPALIVE)
        except libvirt.libvirtError as error:
            raise HostUnreachableError(self.uri, str(error)) from error
        self._opened[name] = opened
        return opened


class MoveHosts:
    """Source and destination of a move."""

    def __init__(self, source: HostEndpoint, destination: HostEndpoint) -> None:
        self.source, self.destination = MoveHost(source), MoveHost(destination)

    def open(self) -> None:
        """Open all connections to both hosts of a move. Raises `HostUnreachableError`."""
        for host in (self.source, self.destination):
            for conn in (host.for_move, host.for_queries):
                conn.isAlive()

    @contextmanager
    def translate_errors(self, op: str) -> Iterator[None]:
        """Raise errors of this package in place of libvirt's errors of a move."""
        try:
            yield
        except libvirt.libvirtError as error:
            for host in (self.source, self.destination):
                if not host.is_alive():
                    raise HostUnreachableError(host.uri, str(error)) from error
            raise OperationFailedError(op, str(error), error.get_error_code()) from error

    def close(self) -> None:
        """Drop the connections to both hosts."""
        self.source.close()
        self.destination.close()


def _is_alive(conn: libvirt.virConnect) -> bool:
    """Return whether a connection to libvirt is not known to be broken."""
    try:
        return bool(conn.isAlive())
    except libvirt.libvirtError:
        return False
