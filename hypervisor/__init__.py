"""The border to libvirt hosts: plain values in, plain values out, every call bounded.

`HostConnection` is what the rest of the product uses, `SharedHosts` what the monitor uses, which
looks at many hosts. libvirt itself is imported by the child processes alone (`hypervisor.child`).
"""

from hypervisor.connection import HostConnection
from hypervisor.credential import Credential
from hypervisor.errors import (
    HostSilentError,
    HostUnreachableError,
    HypervisorError,
    MoveHangsError,
    MoveRefusedError,
    OperationFailedError,
)
from hypervisor.model import (
    ConsoleExchange,
    ConsoleTail,
    DomainSeen,
    DomainSpec,
    DomainState,
    Guard,
    HostInspection,
    HostReport,
    Limits,
    Mark,
    PoolInspection,
    ProcessorComparison,
    VolumeSeen,
    domain_name,
    seed_name,
    volume_name,
)
from hypervisor.move_model import HostEnd, MoveDone, MoveObstacle, MoveProgress, MoveSpec
from hypervisor.moving import Mover
from hypervisor.pool import HostConnections, Movers
from hypervisor.shared_hosts import SharedHost, SharedHosts

__all__ = [
    "ConsoleExchange",
    "ConsoleTail",
    "Credential",
    "DomainSeen",
    "DomainSpec",
    "DomainState",
    "Guard",
    "HostConnection",
    "HostConnections",
    "HostEnd",
    "HostInspection",
    "HostReport",
    "HostSilentError",
    "HostUnreachableError",
    "HypervisorError",
    "Limits",
    "Mark",
    "MoveDone",
    "MoveHangsError",
    "MoveObstacle",
    "MoveProgress",
    "MoveRefusedError",
    "MoveSpec",
    "Mover",
    "Movers",
    "OperationFailedError",
    "PoolInspection",
    "ProcessorComparison",
    "SharedHost",
    "SharedHosts",
    "VolumeSeen",
    "domain_name",
    "seed_name",
    "volume_name",
]
