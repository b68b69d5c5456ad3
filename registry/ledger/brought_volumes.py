"""Volumes that requests bring for VMs that wait for a place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, select

from registry.db.bulk import chunks
from registry.db.schema import hosts, vms, volumes
from registry.lifecycle import HostAdmin, VolumeState
from registry.records.cluster import BroughtVolumes


def brought_volumes(
    connection: Connection, waits: ColumnElement[bool]
) -> Mapping[UUID, Mapping[UUID, BroughtVolumes]]:
    """Return the volumes that waiting VMs are to start with, by request and VM."""
    query = (
        select(
            volumes.c.bound_vm_id,
            volumes.c.name,
            volumes.c.size_gib,
            volumes.c.state,
            vms.c.request_id,
            hosts.c.name.label("host"),
            hosts.c.shared_pool,
        )
        .select_from(volumes)
        .join(vms, vms.c.id == volumes.c.bound_vm_id)
        .outerjoin(hosts, hosts.c.id == volumes.c.host_id)
        .where(volumes.c.bound_vm_id.is_not(None), waits)
        .order_by(volumes.c.bound_vm_id, volumes.c.name)
    )
    rows = connection.execute(query).all()
    if not rows:
        return {}
    pools = {row.shared_pool for row in rows if row.shared_pool is not None}
    seeing = _hosts_of_pools(connection, pools) if pools else {}
    by_vm: defaultdict[tuple[UUID, UUID], list[Any]] = defaultdict(list)
    for row in rows:
        by_vm[row.request_id, row.bound_vm_id].append(row)
    found: defaultdict[UUID, dict[UUID, BroughtVolumes]] = defaultdict(dict)
    for (request_id, vm_id), its in by_vm.items():
        found[request_id][vm_id] = _brought_by_vm(its, seeing)
    return found


def _hosts_of_pools(
    connection: Connection, pools: Collection[str]
) -> Mapping[str, tuple[str, ...]]:
    """Return the names of the hosts that see each of these shared pools."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for some in chunks(sorted(pools)):
        query = select(hosts.c.name, hosts.c.shared_pool).where(
            hosts.c.shared_pool.in_(some), hosts.c.admin != HostAdmin.RETIRED.value
        )
        for row in connection.execute(query.order_by(hosts.c.name)):
            found[row.shared_pool].append(row.name)
    return {pool: tuple(names) for pool, names in found.items()}


def _brought_by_vm(
    rows: Collection[Row[Any]], seeing: Mapping[str, tuple[str, ...]]
) -> BroughtVolumes:
    """Return the volumes of one VM from their rows."""
    with_file = [row for row in rows if row.host is not None]
    reached: set[str] | None = None
    for row in with_file:
        its = {row.host} if row.shared_pool is None else set(seeing.get(row.shared_pool, ()))
        reached = its if reached is None else reached & its
    leaving = VolumeState.WITHDRAWING.value
    return BroughtVolumes(
        names=tuple(row.name for row in with_file),
        hosts=None if reached is None else tuple(sorted(reached)),
        disk_gib=sum(row.size_gib for row in rows if row.host is None),
        leaving=tuple(row.name for row in rows if row.state == leaving),
    )
