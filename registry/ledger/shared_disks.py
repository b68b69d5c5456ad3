"""Disks in shared pools: their names, their use, and those kept for VMs without a host.

A volume is named after the assignment that made it. In a pool that several hosts see it outlives
that assignment: a VM that moves, or starts elsewhere after its host was fenced, goes on with it.
`assignments.disk_of` has the assignment in the name of the disk, and a row of
`preserved_disks` has the disk of a VM without a host. Other volumes belong to no VM.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    delete,
    exists,
    func,
    insert,
    not_,
    or_,
    select,
)

from registry.db.bulk import chunks, is_any_of
from registry.db.host_access import HOST_COLUMNS, to_host_access
from registry.db.schema import assignments, host_fences, hosts, preserved_disks, unreleased, vms
from registry.lifecycle import AssignmentState, FenceState, HostAdmin, HostHealth, VmDesired
from registry.records.hosts import HostAccess

#: Prefix of the host label: hosts with the same value see one pool.
SHARED_POOL_LABEL: Final = "shared_pool="


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptDisk:
    """A disk of a VM that has no host."""

    shared_pool: str
    disk_of: UUID
    generation: int

    @property
    def label(self) -> str:
        """The label of hosts whose shared pool has the disk."""
        return SHARED_POOL_LABEL + self.shared_pool


def shared_pool_of(labels: Iterable[str]) -> str | None:
    """Return the shared pool in a host's labels, or None."""
    found = (each for each in labels if each.startswith(SHARED_POOL_LABEL))
    return next((each.removeprefix(SHARED_POOL_LABEL) for each in found), None)


def disk_name_of(row: Row[Any]) -> UUID:
    """Return the assignment id in the name of an assignment's disk: its own or an earlier one's."""
    found: UUID = row.disk_of or row.id
    return found


def disks_in_use(connection: Connection, names: Collection[UUID]) -> set[UUID]:
    """Return the assignments whose disks later assignments use, or that are kept for VMs.

    An assignment's use of its own disk is not listed.
    """
    found: set[UUID] = set()
    for some in chunks(sorted(names)):
        used = select(assignments.c.disk_of).where(
            is_any_of(connection, assignments.c.disk_of, some), unreleased
        )
        kept = select(preserved_disks.c.disk_of).where(
            is_any_of(connection, preserved_disks.c.disk_of, some)
        )
        for query in (used, kept):
            found.update(connection.scalars(query))
    return found


def is_disk_needed(connection: Connection, row: Row[Any]) -> bool:
    """Return whether the disk of an assignment's row must outlive the assignment."""
    name = disk_name_of(row)
    others = select(assignments.c.id).where(
        assignments.c.vm_id == row.vm_id,
        assignments.c.id != row.id,
        unreleased,
        or_(assignments.c.disk_of == name, assignments.c.id == name),
    )
    kept = select(preserved_disks.c.vm_id).where(
        preserved_disks.c.vm_id == row.vm_id, preserved_disks.c.disk_of == name
    )
    return any(connection.execute(query).first() is not None for query in (others, kept))


def keep_disks(connection: Connection, host_id: UUID, *, now: datetime) -> str | None:
    """Keep the disks of VMs of a host that is off, in its shared pool; return the pool.

    It returns None and keeps nothing if the host shares no pool. VMs that were being built have no
    data.
    """
    pool: str | None
    pool = connection.scalars(select(hosts.c.shared_pool).where(hosts.c.id == host_id)).one()
    if pool is None:
        return None
    built = select(
        assignments.c.vm_id,
        func.coalesce(assignments.c.disk_of, assignments.c.id).label("disk_of"),
        func.coalesce(assignments.c.disk_generation, assignments.c.generation).label(
            "disk_generation"
        ),
    ).where(assignments.c.host_id == host_id, assignments.c.state == AssignmentState.ACTIVE.value)
    wanted = built.join(vms, vms.c.id == assignments.c.vm_id).where(
        vms.c.desired != VmDesired.DELETED.value
    )
    rows = [
        {**row._mapping, "shared_pool": pool, "kept_at": now} for row in connection.execute(wanted)
    ]
    delete_kept_disks(connection, [row["vm_id"] for row in rows])
    if rows:
        connection.execute(insert(preserved_disks), rows)
    return pool


def delete_kept_disks(connection: Connection, vm_ids: Collection[UUID]) -> None:
    """Delete the records of kept disks of VMs that run again or are deleted."""
    for some in chunks(sorted(vm_ids)):
        connection.execute(
            delete(preserved_disks).where(is_any_of(connection, preserved_disks.c.vm_id, some))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSharing:
    """The hosts that see one pool."""

    #: number of hosts that are not retired; each offers an even share of the pool's disk
    hosts: int
    speaker: UUID | None  #: the first host that is up, which reports stray volumes


def sharing_of_pools(connection: Connection, pools: Collection[str]) -> dict[str, PoolSharing]:
    """Return the hosts that share each of these pools, by pool."""
    if not pools:
        return {}
    query = (
        select(hosts.c.id, hosts.c.shared_pool, hosts.c.health)
        .where(hosts.c.shared_pool.in_(sorted(pools)), hosts.c.admin != HostAdmin.RETIRED.value)
        .order_by(hosts.c.id)
    )
    seeing: dict[str, list[Any]] = {}
    for row in connection.execute(query):
        seeing.setdefault(row.shared_pool, []).append(row)
    return {
        pool: PoolSharing(
            hosts=len(rows),
            speaker=next((row.id for row in rows if row.health == HostHealth.UP.value), None),
        )
        for pool, rows in seeing.items()
    }


def machine_of_host() -> ColumnElement[Any]:
    """Return the id of the first host with the machine of a host: itself or an earlier one."""
    return func.coalesce(hosts.c.same_machine_as, hosts.c.id)


def read_pool_neighbours(connection: Connection, row: Row[Any]) -> tuple[HostAccess, ...]:
    """Return the other machines that see the pool of a host, in order.

    The row has the host's `shared_pool` and `machine`; without a shared pool nothing is queried.

    A second name of the host's machine is left out: the deletion of the file finds its users, and
    the leftover itself would be one of them. A fenced host that has not answered since is off, so
    its guests use no file.
    """
    if row.shared_pool is None:
        return ()
    is_off = exists().where(
        host_fences.c.host_id == hosts.c.id,
        host_fences.c.state == FenceState.FENCED.value,
        or_(hosts.c.last_polled_at.is_(None), hosts.c.last_polled_at < host_fences.c.fenced_at),
    )
    others: Select[Any] = select(*HOST_COLUMNS).where(
        hosts.c.shared_pool == row.shared_pool,
        machine_of_host() != row.machine,
        hosts.c.admin != HostAdmin.RETIRED.value,
        not_(is_off),
    )
    found = connection.execute(others.order_by(hosts.c.id))
    return tuple(to_host_access(each) for each in found)
