"""Calls to a host that may never return, in threads of their own. In the child process only.

libvirt calls cannot be cancelled, so each call has its own thread. Each has its own connection as
well: with two calls at once on one connection, libvirt's client sometimes does not see the second
answer until something else arrives.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, TypeVar

import libvirt

from hypervisor.child.idle_connections import IdleConnections
from hypervisor.errors import OperationFailedError

T = TypeVar("T")
_OPEN_WAIT_S: Final = 1.0  #: for a query that an earlier caller gave up
_FRESH_S: Final = 60.0  #: how long the late result of a query is used


class BackgroundCall(threading.Thread, Generic[T]):
    """One call in a thread, started at once; its connection is reused only if the call returns."""

    def __init__(
        self, connections: IdleConnections, call: Callable[[libvirt.virConnect], T]
    ) -> None:
        super().__init__(name="background-call", daemon=True)
        self._connections = connections
        self._call = call
        self._result: list[T] = []
        self._error: Exception | None = None
        self.start()

    def run(self) -> None:
        """Make the call to libvirt in this thread, and store its result or its error."""
        try:
            conn = self._connections.take()
            try:
                self._result.append(self._call(conn))
            finally:
                if conn.isAlive():
                    self._connections.give_back(conn)
        except Exception as error:  # any error is raised to the caller
            self._error = error

    def is_running_after(self, patience_s: float) -> bool:
        """Wait for the result of the call; return whether it still runs."""
        self.join(patience_s)
        return self.is_alive()

    def result(self) -> T:
        """Return the result of the call to libvirt, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._result[0]


class FileQuery:
    """Runs queries about files in any pool of a host in the background, one at a time.

    A call to a pool whose storage hangs keeps a thread of the host's libvirtd, so no second
    query begins while one is under way. A query that takes longer than its caller waits goes
    on; the next caller with the same key gets its result.
    """

    def __init__(self) -> None:
        self._call: BackgroundCall[Any] | None = None
        self._conn: libvirt.virConnect | None = None
        self._key: Hashable = None
        self._reading = ""
        self._ended_at = 0.0

    def run(
        self,
        conn: libvirt.virConnect,
        key: Hashable,
        query: Callable[[Callable[[str], None]], T],
        patience_s: float,
    ) -> T:
        """Run a query about files in the background, and return its result.

        ``query`` receives a function, which it calls with the name of each file or pool before it
        reads that. Raises `OperationFailedError` with the last name if the result is late.
        """
        until = time.monotonic() + patience_s
        if self._call is not None and self._call.is_running_after(min(patience_s, _OPEN_WAIT_S)):
            raise self._no_answer_error()
        if self._key != key or time.monotonic() - self._ended_at > _FRESH_S:
            self._call = None

        def run_query(_: libvirt.virConnect) -> T:
            try:
                return query(self._record_reading)
            finally:
                self._ended_at = time.monotonic()

        if self._call is None:
            self._key, self._conn, self._reading = key, conn, "the host"
            self._call = BackgroundCall(IdleConnections(lambda: conn), run_query)
            if self._call.is_running_after(max(0.0, until - time.monotonic())):
                raise self._no_answer_error()
        call, self._call = self._call, None
        self._conn = None
        return call.result()  # type: ignore[no-any-return]

    def occupies(self, conn: libvirt.virConnect) -> bool:
        """Return whether a running query about files uses a connection."""
        return self._conn is conn

    def _record_reading(self, what: str) -> None:
        """Record which file or pool a query reads now, for the error if it hangs."""
        self._reading = what

    def _no_answer_error(self) -> OperationFailedError:
        """Return the error that storage of the host does not answer, with advice."""
        return OperationFailedError(
            "remove",
            f"{self._reading} has not answered yet, and may hold what rests on the VM's files:"
            " bring that storage back. Or end the wait on the host: `umount -fl` the folder, and"
            " `virsh pool-destroy` the pool, which deletes no file",
        )
