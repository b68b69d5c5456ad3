"""The border to libvirt hosts: plain values in, plain values out, every call bounded.

`HostConnection` is what the rest of the product uses. libvirt itself is imported by
the child processes alone (``python -m hypervisor.child``), never in this process.
"""

from hypervisor.connection import HostConnection
from hypervisor.credential import Credential
from hypervisor.errors import HostUnreachableError, HypervisorError, OperationFailedError
from hypervisor.model import (
    ConsoleExchange,
    ConsoleTail,
    DomainSeen,
    DomainSpec,
    DomainState,
    HostReport,
    Mark,
    VolumeSeen,
    domain_name,
    seed_name,
    volume_name,
)
from hypervisor.pool import HostConnections

__all__ = [
    "ConsoleExchange",
    "ConsoleTail",
    "Credential",
    "DomainSeen",
    "DomainSpec",
    "DomainState",
    "HostConnection",
    "HostConnections",
    "HostReport",
    "HostUnreachableError",
    "HypervisorError",
    "Mark",
    "OperationFailedError",
    "VolumeSeen",
    "domain_name",
    "seed_name",
    "volume_name",
]
