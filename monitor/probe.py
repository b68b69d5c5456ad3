"""What the monitor needs of a host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from hypervisor import HostReport


class HostProbe(Protocol):
    """Reads one host. Raises an error of `hypervisor`, never a libvirt error."""

    def report(self, pool: str) -> HostReport:
        """Look at the host and the pool that we use of it."""

    def close(self) -> None:
        """End what talks to the host."""


#: Makes the probe of the host at a URI.
ProbeFactory = Callable[[str], HostProbe]
