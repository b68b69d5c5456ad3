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

from hypervisor.errors import OperationFailedError

T = TypeVar("T")
_OPEN_WAIT_S: Final = 1.0  #: for a question that an earlier caller gave up
_FRESH_S: Final = 60.0  #: how long the late answer to a question about files is used


class SpareConnections:
    """A pool of idle connections to one host."""

    def __init__(self, opening: Callable[[], libvirt.virConnect]) -> None:
        self._opening = opening
        self._idle: list[libvirt.virConnect] = []

    def take(self) -> libvirt.virConnect:
        """Return an idle connection, or open one."""
        while self._idle:
            conn = self._idle.pop()
            if conn.isAlive():
                return conn
        return self._opening()

    def give_back(self, conn: libvirt.virConnect) -> None:
        """Return a connection to the pool."""
        self._idle.append(conn)


class BackgroundCall(threading.Thread, Generic[T]):
    """One call in a thread, started at once. Its connection is reused only if the call returns."""

    def __init__(self, spares: SpareConnections, call: Callable[[libvirt.virConnect], T]) -> None:
        super().__init__(name="aside", daemon=True)
        self._spares = spares
        self._ask = call
        self._answer: list[T] = []
        self._error: Exception | None = None
        self.start()

    def run(self) -> None:
        """Make the call; keep its result or its error."""
        try:
            conn = self._spares.take()
            try:
                self._answer.append(self._ask(conn))
            finally:
                if conn.isAlive():
                    self._spares.give_back(conn)
        except Exception as error:  # any error is raised to the caller
            self._error = error

    def is_open_after(self, patience_s: float) -> bool:
        """Wait for the result; return whether the call still runs."""
        self.join(patience_s)
        return self.is_alive()

    def answer(self) -> T:
        """Return the result, or raise the error of the call."""
        if self._error is not None:
            raise self._error
        return self._answer[0]


class FileQuestion:
    """Reads files in any pool of a host in the background, one reading at a time.

    A call to a pool whose storage hangs keeps a thread of the host's libvirtd, so no second
    reading begins while one is under way. A reading that takes longer than its caller waits
    goes on; the next caller with the same key gets its result.
    """

    def __init__(self) -> None:
        self._call: BackgroundCall[Any] | None = None
        self._conn: libvirt.virConnect | None = None
        self._key: Hashable = None
        self._reading = ""
        self._ended_at = 0.0

    def ask(
        self,
        conn: libvirt.virConnect,
        key: Hashable,
        question: Callable[[Callable[[str], None]], T],
        patience_s: float,
    ) -> T:
        """Return the answer to a question, which calls its argument with what it reads.

        Raises `OperationFailedError`, which names that: there is no answer yet.
        """
        until = time.monotonic() + patience_s
        if self._call is not None and self._call.is_open_after(min(patience_s, _OPEN_WAIT_S)):
            raise self._no_answer()
        if self._key != key or time.monotonic() - self._ended_at > _FRESH_S:
            self._call = None

        def run(_: libvirt.virConnect) -> T:
            try:
                return question(self._read)
            finally:
                self._ended_at = time.monotonic()

        if self._call is None:
            self._key, self._conn, self._reading = key, conn, "the host"
            self._call = BackgroundCall(SpareConnections(lambda: conn), run)
            if self._call.is_open_after(max(0.0, until - time.monotonic())):
                raise self._no_answer()
        call, self._call = self._call, None
        self._conn = None
        return call.answer()  # type: ignore[no-any-return]

    def keeps(self, conn: libvirt.virConnect) -> bool:
        """Return whether a question is open on a connection, which is then in use."""
        return self._conn is conn

    def _read(self, what: str) -> None:
        self._reading = what

    def _no_answer(self) -> OperationFailedError:
        return OperationFailedError(
            "remove",
            f"{self._reading} has not answered yet, and may hold what rests on the VM's files:"
            " bring that storage back. Or end the wait on the host: `umount -fl` the folder, and"
            " `virsh pool-destroy` the pool, which deletes no file",
        )
