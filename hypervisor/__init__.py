"""Calls to libvirt hosts, with plain values and a deadline each.

Workers use `HostConnection`. The monitor uses `SharedHosts`, which polls many hosts. Only the child
processes import libvirt (`hypervisor.child`).
"""

from hypervisor.connection import HostConnection
from hypervisor.connection_pools import HostConnections, MigratorPool
from hypervisor.credential import Credential
from hypervisor.errors import (
    HostSilentError,
    HostUnreachableError,
    HypervisorError,
    MigrationRefusedError,
    MoveHangsError,
    OperationFailedError,
)
from hypervisor.migrator import HostPairMigrator
from hypervisor.model import (
    ConsoleExchange,
    ConsoleTail,
    DomainSpec,
    DomainState,
    Guard,
    HostDomain,
    HostInspection,
    HostPoll,
    HostVolume,
    Mark,
    PoolInspection,
    ProcessorComparison,
    VmLimits,
    data_volume_name,
    disk_serial,
    domain_name,
    seed_name,
    volume_name,
)
from hypervisor.move_model import (
    HostEndpoint,
    MigrationObstacle,
    MigrationProgress,
    MoveResult,
    MoveSpec,
)
from hypervisor.shared_hosts import SharedHost, SharedHosts

__all__ = [
    "ConsoleExchange",
    "ConsoleTail",
    "Credential",
    "DomainSpec",
    "DomainState",
    "Guard",
    "HostConnection",
    "HostConnections",
    "HostDomain",
    "HostEndpoint",
    "HostInspection",
    "HostPairMigrator",
    "HostPoll",
    "HostSilentError",
    "HostUnreachableError",
    "HostVolume",
    "HypervisorError",
    "Mark",
    "MigrationObstacle",
    "MigrationProgress",
    "MigrationRefusedError",
    "MigratorPool",
    "MoveHangsError",
    "MoveResult",
    "MoveSpec",
    "OperationFailedError",
    "PoolInspection",
    "ProcessorComparison",
    "SharedHost",
    "SharedHosts",
    "VmLimits",
    "data_volume_name",
    "disk_serial",
    "domain_name",
    "seed_name",
    "volume_name",
]
