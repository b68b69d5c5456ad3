"""Calls to a host that may never return, made in threads apart from its poll. Child process only.

No call of libvirt can be cancelled. So each call is made in a thread of its own, on a
connection of its own: of two calls at once on one connection, while an event loop runs,
libvirt's client sometimes does not see the answer to the second until something else arrives.
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
    """Connections to one host, kept for the next who asks."""

    def __init__(self, opening: Callable[[], libvirt.virConnect]) -> None:
        self._opening = opening
        self._idle: list[libvirt.virConnect] = []

    def take(self) -> libvirt.virConnect:
        """Return an unused connection; the call on it may never return."""
        while self._idle:
            conn = self._idle.pop()
            if conn.isAlive():
                return conn
        return self._opening()

    def give_back(self, conn: libvirt.virConnect) -> None:
        """Keep one that is not used any more."""
        self._idle.append(conn)


class BackgroundCall(threading.Thread, Generic[T]):
    """One question, begun at once. Its connection is lost with it, unless it is answered."""

    def __init__(self, spares: SpareConnections, call: Callable[[libvirt.virConnect], T]) -> None:
        super().__init__(name="aside", daemon=True)
        self._spares = spares
        self._ask = call
        self._answer: list[T] = []
        self._error: Exception | None = None
        self.start()

    def run(self) -> None:
        """Ask, and keep what comes of it."""
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
        """Wait for an answer; return whether there still is none."""
        self.join(patience_s)
        return self.is_alive()

    def answer(self) -> T:
        """Return the answer that came, or raise what came instead of it."""
        if self._error is not None:
            raise self._error
        return self._answer[0]


class FileQuestion:
    """Questions about files in any pool of a host, one at a time.

    A pool whose storage hangs keeps a thread of the host's libvirtd, so no second question is
    asked while one is open. A question that takes longer than its caller waits goes on, and
    answers the next caller who asks the same.
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
        """Return whether a question is open on a connection, which nothing else may use then."""
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
