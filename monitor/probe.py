"""The interface to a host that the monitor needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hypervisor import Credential, HostPoll, HostUnreachableError


class HostProbe(Protocol):
    """Reads one host. Raises an error of `hypervisor`, never a libvirt error."""

    def report(self, pool: str) -> HostPoll:
        """Poll the host and its storage pool."""

    def close(self) -> None:
        """Close the connection to the host."""


#: Makes the probe of the host at a URI, given what opens it (None: nothing of ours).
ProbeFactory = Callable[[str, Credential | None], HostProbe]


@dataclass(frozen=True, slots=True)
class LockedOutProbe:
    """The probe of a host without a usable credential."""

    uri: str
    reason: str

    def report(self, pool: str) -> HostPoll:
        """Raise the reason."""
        raise HostUnreachableError(self.uri, self.reason)

    def close(self) -> None:
        """Do nothing."""
