"""Pools of host connections and migrators, shared by the threads of a process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hypervisor.connection import HostConnection
from hypervisor.credential import Credential
from hypervisor.errors import HostUnreachableError
from hypervisor.migrator import HostPairMigrator
from hypervisor.move_model import HostEndpoint


@dataclass(slots=True, eq=False)
class _IdleConnection:
    """A connection that is not lent, and since when."""

    connection: HostConnection
    since: float = field(default_factory=time.monotonic)

    @property
    def key(self) -> tuple[str, Credential | None, str | None]:
        """URI, credential and machine by which connections are lent again."""
        return (self.connection.uri, self.connection.credential, self.connection.machine)


class HostConnections:
    """Lends connections by URI, credential and machine, and keeps returned ones for reuse.

    Parameters
    ----------
    limit : int
        Maximum connections, lent and idle. A further one replaces the longest idle one, or waits
        for a return.
    idle_s : float
        Connections idle for longer are closed at the next use of the pool.
    deadline_s : float
        Deadline of calls, and of the wait for a connection.
    """

    def __init__(self, *, limit: int = 16, idle_s: float = 60.0, deadline_s: float = 60.0) -> None:
        self._limit = limit
        self._idle_s = idle_s
        self._deadline_s = deadline_s
        self._changed = threading.Condition()
        self._idle: list[_IdleConnection] = []  #: longest idle first
        self._lent = 0

    @contextmanager
    def use(
        self, uri: str, credential: Credential | None = None, machine: str | None = None
    ) -> Iterator[HostConnection]:
        """Lend a connection to a host, for use by one thread."""
        connection = self._take_connection(uri, credential, machine)
        try:
            yield connection
        finally:
            with self._changed:
                self._lent -= 1
                self._idle.append(_IdleConnection(connection))
                self._changed.notify()

    def close(self) -> None:
        """Close idle connections; lent ones are closed when they are garbage-collected."""
        with self._changed:
            closing, self._idle = self._idle, []
        for idle in closing:
            idle.connection.close()

    def _take_connection(
        self, uri: str, credential: Credential | None, machine: str | None
    ) -> HostConnection:
        """Return an idle connection to a host or a new one; wait while too many are lent."""
        wanted = (uri, credential, machine)
        deadline = time.monotonic() + self._deadline_s
        closing: list[_IdleConnection] = []
        with self._changed:
            while True:
                closing += self._take_expired_connections()
                # The last one used is most likely still alive.
                found = next((each for each in self._idle[::-1] if each.key == wanted), None)
                if found is not None:
                    self._idle.remove(found)
                    break
                if self._lent + len(self._idle) < self._limit:
                    break
                if self._idle:
                    closing.append(self._idle.pop(0))
                    break
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    raise HostUnreachableError(uri, f"all {self._limit} connections are in use")
            self._lent += 1
        for idle in closing:
            idle.connection.close()
        if found:
            return found.connection
        return HostConnection(
            uri, credential=credential, machine=machine, deadline_s=self._deadline_s
        )

    def _take_expired_connections(self) -> list[_IdleConnection]:
        """Remove the connections that are idle for too long, and return them."""
        oldest = time.monotonic() - self._idle_s
        outdated = [idle for idle in self._idle if idle.since < oldest]
        self._idle = [idle for idle in self._idle if idle.since >= oldest]
        return outdated


@dataclass(slots=True, eq=False)
class _IdleMigrator:
    """A migrator that is not lent, and since when."""

    migrator: HostPairMigrator
    since: float = field(default_factory=time.monotonic)


class MigratorPool:
    """Lends migrators by source and destination, and keeps returned ones for reuse.

    Starting one and connecting to its hosts takes about as long as moving a small guest.

    Parameters
    ----------
    limit : int
        Maximum idle migrators; a further one ends the longest idle one.
    idle_s : float
        Migrators idle for longer are ended at the next use, or by `end_idle`.
    deadline_s : float
        See `HostPairMigrator`.
    """

    def __init__(self, *, limit: int = 8, idle_s: float = 60.0, deadline_s: float = 10.0) -> None:
        self._limit = limit
        self._idle_s = idle_s
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._idle: list[_IdleMigrator] = []  #: longest idle first

    @contextmanager
    def use(self, source: HostEndpoint, destination: HostEndpoint) -> Iterator[HostPairMigrator]:
        """Lend a migrator between two hosts to one thread; any exception ends its process."""
        self.end_idle()
        with self._lock:
            ends = (source, destination)
            found = [
                each
                for each in self._idle
                if (each.migrator.source, each.migrator.destination) == ends
            ]
            if found:
                self._idle.remove(found[-1])
        migrator = (
            found[-1].migrator if found else HostPairMigrator(*ends, deadline_s=self._deadline_s)
        )
        try:
            yield migrator
        except BaseException:
            migrator.close()
            raise
        with self._lock:
            self._idle.append(_IdleMigrator(migrator))
        self.end_idle()

    def end_idle(self, *, all_of_them: bool = False) -> None:
        """End migrators that are idle too long or above the limit."""
        oldest = time.monotonic() - self._idle_s
        with self._lock:
            few = [] if all_of_them else self._idle[-self._limit :]
            kept = [each for each in few if each.since >= oldest]
            ending = [each for each in self._idle if each not in kept]
            self._idle = kept
        for each in ending:
            each.migrator.close()

    def close(self) -> None:
        """End all idle migrators between hosts."""
        self.end_idle(all_of_them=True)
