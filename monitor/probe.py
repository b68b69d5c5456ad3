"""What the monitor needs of a host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hypervisor import Credential, HostReport, HostUnreachableError


class HostProbe(Protocol):
    """Reads one host. Raises an error of `hypervisor`, never a libvirt error."""

    def report(self, pool: str) -> HostReport:
        """Look at the host and the pool that we use of it."""

    def close(self) -> None:
        """End what talks to the host."""


#: Makes the probe of the host at a URI, given what opens it (None: nothing of ours).
ProbeFactory = Callable[[str, Credential | None], HostProbe]


@dataclass(frozen=True, slots=True)
class LockedOut:
    """The probe of a host that nothing here opens."""

    uri: str
    reason: str

    def report(self, pool: str) -> HostReport:
        """Say why not."""
        raise HostUnreachableError(self.uri, self.reason)

    def close(self) -> None:
        """End nothing."""
