"""What a worker must know of a host, as columns of a query."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row

from registry.db.schema import hosts
from registry.records.hosts import HostAccess

HOST_COLUMNS = (
    hosts.c.id.label("host_id"),
    hosts.c.name.label("host_name"),
    hosts.c.uri,
    hosts.c.credential,
    hosts.c.ssh_host_keys,
    hosts.c.health,
    hosts.c.domain_type,
    hosts.c.pool,
    hosts.c.network,
    hosts.c.base_volume,
    hosts.c.memory_backing_mib,
    hosts.c.machine_uuid,
    hosts.c.pool_silent_since,
)


def to_access(row: Row[Any]) -> HostAccess:
    """Return the record for a row with `HOST_COLUMNS`."""
    return HostAccess(
        id=row.host_id,
        name=row.host_name,
        uri=row.uri,
        domain_type=row.domain_type,
        pool=row.pool,
        network=row.network,
        base_volume=row.base_volume,
        memory_backing_mib=row.memory_backing_mib,
        credential=row.credential,
        ssh_host_keys=tuple(row.ssh_host_keys),
        machine=row.machine_uuid,
        pool_silent=row.pool_silent_since is not None,
    )
