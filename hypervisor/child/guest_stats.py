"""What only a guest's QEMU knows; one that is frozen delays nobody. In the child process only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import libvirt

from hypervisor.child.background_calls import Question, SpareConnections
from hypervisor.errors import HypervisorError

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
    """

    def __init__(self, spares: SpareConnections) -> None:
        self._spares = spares
        self._open: list[Question[Values]] = []

    def read(self) -> Values:
        """Return what is known in good time; at worst nothing."""
        self._open = [question for question in self._open if question.is_alive()]
        if len(self._open) >= _BLOCKED_AT_MOST:
            return {}
        question = Question(self._spares, _ask)
        if question.is_open_after(_PATIENCE_S):
            self._open.append(question)
            return {}
        try:
            return question.answer()
        except (libvirt.libvirtError, HypervisorError):
            return {}  # a dead host shows in the report itself


def _ask(conn: libvirt.virConnect) -> Values:
    found = conn.getAllDomainStats(_GROUPS, _NOWAIT)
    return {domain.UUIDString(): values for domain, values in found}
