"""Limits of VM types, which are no resources: they are neither counted nor shared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from registry.db.names import check_int
from registry.errors import UnknownNameError

#: The range in which each limit of a VM can be set. A guest would not start with less, and QEMU
#: or the kernel would not limit more.
LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    "disk_iops": (10, 10_000_000),  #: reads and writes a second, of all its disks
    "disk_mib_s": (1, 100_000),  #: MiB a second, of all its disks
    "net_mbps": (1, 200_000),  #: Mbit a second of its interface, each way
}


def check_limits(limits: Mapping[str, int]) -> dict[str, int]:
    """Return a VM type's limits; raise `InvalidError` for an unknown or impossible one."""
    for name, amount in limits.items():
        if name not in LIMITS:
            raise UnknownNameError(f"limits.{name}", "limit", name, known=tuple(LIMITS))
        check_int(f"limits.{name}", amount, *LIMITS[name])
    return dict(limits)
