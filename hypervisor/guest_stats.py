"""What only a guest's QEMU knows; one that is frozen delays nobody. In the child process only."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

import libvirt

_NOWAIT: Final = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
_GROUPS: Final = libvirt.VIR_DOMAIN_STATS_BALLOON | libvirt.VIR_DOMAIN_STATS_BLOCK

#: What all guests of a host together may take to answer.
_PATIENCE_S: Final = 2.0
_BLOCKED_AT_MOST: Final = 2

Values = Mapping[str, Mapping[str, Any]]  #: by UUID of the domain


class GuestStatistics:
    """Asks every guest's QEMU for its memory and its disks' sizes.

    NOWAIT skips a guest that another call is busy with, but the first call to ask a frozen
    QEMU blocks until that is destroyed or wakes. So it is made in a thread of its own; while
    it hangs, it keeps the guest busy, and the next call skips it. (The processor times of
    these statistics ask QEMU too; `virDomainGetInfo` has them without.)

    The thread has a connection of its own: of two calls at once on one connection, with an
    event loop beside them, libvirt's client sometimes does not see the answer to the second
    until something else arrives.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._idle: libvirt.virConnect | None = None
        self._blocked: list[threading.Thread] = []

    def read(self) -> Values:
        """Return what is known in good time; at worst nothing."""
        self._blocked = [thread for thread in self._blocked if thread.is_alive()]
        if len(self._blocked) >= _BLOCKED_AT_MOST:
            return {}
        question = _Question(self._uri, self._idle)
        self._idle = None
        question.start()
        question.join(_PATIENCE_S)
        if question.is_alive():
            self._blocked.append(question)
            return {}
        self._idle = question.conn
        return question.answer


class _Question(threading.Thread):
    """One call, which may never end. Its connection is lost with it, or left in `conn`."""

    def __init__(self, uri: str, conn: libvirt.virConnect | None) -> None:
        super().__init__(name="guest-statistics", daemon=True)
        self._uri = uri
        self.conn = conn
        self.answer: Values = {}

    def run(self) -> None:
        try:
            if self.conn is None or not self.conn.isAlive():
                self.conn = libvirt.open(self._uri)
            found = self.conn.getAllDomainStats(_GROUPS, _NOWAIT)
        except libvirt.libvirtError:
            self.conn = None  # a dead host shows in the report itself
        else:
            self.answer = {domain.UUIDString(): values for domain, values in found}
