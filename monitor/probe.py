"""The monitor's interface to a host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hypervisor import Credential, HostPoll, HostUnreachableError


class HostProbe(Protocol):
    """Polls one host. Raises errors of `hypervisor`, never a libvirt error."""

    def report(self, pool: str) -> HostPoll:
        """Poll the host and its storage pool."""

    def close(self) -> None:
        """Close the connection to the host."""


#: Makes the probe of a host from its URI and credential (None: the one that libvirt finds).
ProbeFactory = Callable[[str, Credential | None], HostProbe]


@dataclass(frozen=True, slots=True)
class LockedOutProbe:
    """The probe of a host without a usable credential."""

    uri: str
    reason: str

    def report(self, pool: str) -> HostPoll:
        """Raise `HostUnreachableError` with the reason why the host's credential is unusable."""
        raise HostUnreachableError(self.uri, self.reason)

    def close(self) -> None:
        """Do nothing, as no connection to the host is open."""
