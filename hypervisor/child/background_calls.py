"""Calls to a host that may never return, made in threads apart from its poll. Child process only.

No call of libvirt can be cancelled. So each call is made in a thread of its own, on a
connection of its own: of two calls at once on one connection, while an event loop runs,
libvirt's client sometimes does not see the answer to the second until something else arrives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import libvirt

T = TypeVar("T")


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
