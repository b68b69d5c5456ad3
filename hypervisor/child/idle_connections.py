"""Idle connections to a host, kept for its next background calls. In the child process only."""

from __future__ import annotations

from collections.abc import Callable

import libvirt


class IdleConnections:
    """A pool of idle connections to one host."""

    def __init__(self, opening: Callable[[], libvirt.virConnect]) -> None:
        self._opening = opening
        self._idle: list[libvirt.virConnect] = []

    def take(self) -> libvirt.virConnect:
        """Return an idle connection to the host, or open one."""
        while self._idle:
            conn = self._idle.pop()
            if conn.isAlive():
                return conn
        return self._opening()

    def give_back(self, conn: libvirt.virConnect) -> None:
        """Put a connection to the host back into the pool of idle ones."""
        self._idle.append(conn)
