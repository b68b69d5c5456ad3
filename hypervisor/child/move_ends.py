"""The two hosts of a move, opened. In the child process only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import libvirt

from hypervisor.child import inspection
from hypervisor.child.connect import open_host
from hypervisor.errors import HostUnreachableError, OperationFailedError
from hypervisor.move_model import HostEnd
from hypervisor.xml import domain as domain_xml

#: A host that hangs is given up after interval x (count + 1) seconds.
_KEEPALIVE: Final = (3, 3)


class End:
    """One host: a connection that a move may block, and one for queries during the move."""

    def __init__(self, end: HostEnd) -> None:
        self.uri = end.uri
        self._end = end
        self._opened: dict[str, libvirt.virConnect] = {}
        self._without_shares: libvirt.virConnect | None = None
        self._machine_uuid: tuple[libvirt.virConnect, str | None] | None = None  #: its number

    @property
    def moving(self) -> libvirt.virConnect:
        """The connection that a move has."""
        return self._connection("moving")

    @property
    def for_queries(self) -> libvirt.virConnect:
        """The connection for queries during a move."""
        return self._connection("queries")

    def is_alive(self) -> bool:
        """Return whether no opened connection is known to be broken. Makes no call."""
        return all(_alive(conn) for conn in self._opened.values())

    def machine_uuid(self) -> str | None:
        """Return the UUID of the host's machine, read once per connection."""
        if self._machine_uuid is None or self._machine_uuid[0] is not self.moving:
            found = domain_xml.machine_uuid(self.moving.getCapabilities())
            self._machine_uuid = (self.moving, found)
        return self._machine_uuid[1]

    def keeps_shares(self) -> bool:
        """Return whether it may share processors out."""
        if (
            self._without_shares is not self.moving
            and inspection.shares_are_kept(self.moving) is False
        ):
            self.refused_shares()
        return self._without_shares is not self.moving

    def refused_shares(self) -> None:
        """Remember that it does not, as long as it is the same libvirt that answers."""
        self._without_shares = self.moving

    def close(self) -> None:
        """Drop the connections."""
        opened, self._opened = self._opened, {}
        for conn in opened.values():
            with contextlib.suppress(libvirt.libvirtError):
                conn.close()

    def _connection(self, name: str) -> libvirt.virConnect:
        known = self._opened.get(name)
        if known is not None and _alive(known):
            return known
        try:
            opened = open_host(self._end.uri, self._end.credential, self._end.machine)
            with contextlib.suppress(libvirt.libvirtError):  # the test driver has none
                opened.setKeepAlive(*_KEEPALIVE)
        except libvirt.libvirtError as error:
            raise HostUnreachableError(self.uri, str(error)) from error
        self._opened[name] = opened
        return opened


class Ends:
    """Source and destination."""

    def __init__(self, source: HostEnd, destination: HostEnd) -> None:
        self.source, self.destination = End(source), End(destination)

    def open(self) -> None:
        """Open all connections, before anything is begun. Raises `HostUnreachableError`."""
        for end in (self.source, self.destination):
            for conn in (end.moving, end.for_queries):
                conn.isAlive()

    @contextmanager
    def translating(self, op: str) -> Iterator[None]:
        """Say in our errors what libvirt says in its own."""
        try:
            yield
        except libvirt.libvirtError as error:
            for end in (self.source, self.destination):
                if not end.is_alive():
                    raise HostUnreachableError(end.uri, str(error)) from error
            raise OperationFailedError(op, str(error), error.get_error_code()) from error

    def close(self) -> None:
        """Drop both."""
        self.source.close()
        self.destination.close()


def _alive(conn: libvirt.virConnect) -> bool:
    try:
        return bool(conn.isAlive())
    except libvirt.libvirtError:
        return False
