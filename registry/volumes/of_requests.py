"""Volumes that requests bring for their VMs, existing and new ones, from acceptance on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, and_, func, select, update

from registry.audit.events import event_row, record_events
from registry.catalogue.resources import VOLUMES
from registry.db.bulk import chunks, insert_rows
from registry.db.ids import uuid7
from registry.db.schema import hosts, volumes
from registry.errors import ConflictError, DuplicateError, NotFoundError
from registry.lifecycle import VolumeState
from registry.records.requests import Request
from registry.records.volumes import MAX_OF_TENANT
from registry.volumes.volumes import lock_volumes_by_name, why_busy

#: States of volumes that a request may bring.
_FREE = (VolumeState.UNPLACED.value, VolumeState.AVAILABLE.value)


def new_volume_names(name: str, count: int) -> list[str]:
    """Return the names of a new volume of each VM of a request: of a single VM, the name alone."""
    return [name] if count == 1 else [f"{name}-{number}" for number in range(1, count + 1)]


def check_new_volumes(connection: Connection, owner: UUID, request: Request) -> Mapping[str, int]:
    """Return what the new volumes of a request, whose tenant is locked, add to quotas.

    Raises
    ------
    DuplicateError
        If the tenant has a volume of such a name.
    ConflictError
        If the tenant would have too many volumes.
    """
    names = [
        name for each in request.new_volumes for name in new_volume_names(each.name, request.count)
    ]
    mine = and_(volumes.c.tenant_id == owner, volumes.c.state != VolumeState.REMOVED.value)
    for some in chunks(sorted(names)):
        query = select(volumes.c.name).where(mine, volumes.c.name.in_(some))
        if (known := connection.scalars(query.order_by(volumes.c.name)).first()) is not None:
            raise DuplicateError("volume", "name", known)
    count = select(func.count()).select_from(volumes).where(mine)
    if connection.execute(count).scalar_one() + len(names) > MAX_OF_TENANT:
        raise ConflictError(
            f"tenant {request.tenant} would have more than {MAX_OF_TENANT} volumes, which is the"
            " maximum: remove some (`fuga volume remove`)"
        )
    size_gib = sum(each.size_gib for each in request.new_volumes)
    return {"disk_gib": request.count * size_gib, VOLUMES: len(names)}


def create_new_volumes(
    connection: Connection,
    request: Request,
    owner: UUID,
    vm_ids: Sequence[UUID],
    *,
    now: datetime,
    actor: str,
) -> None:
    """Create the new volumes of a request, one of each kind for each of its VMs, and bind them."""
    rows: list[dict[str, Any]] = [
        {
            "id": uuid7(),
            "tenant_id": owner,
            "name": name,
            "size_gib": each.size_gib,
            "state": VolumeState.UNPLACED.value,
            "bound_vm_id": vm_id,
            "created_by_request": True,
            "due_at": now,
            "changed_at": now,
            "created_at": now,
        }
        for each in request.new_volumes
        for name, vm_id in zip(new_volume_names(each.name, request.count), vm_ids, strict=True)
    ]
    insert_rows(connection, volumes, rows)
    record_events(
        connection,
        [
            event_row(
                now,
                actor,
                "volume_created",
                "volume",
                row["id"],
                tenant=request.tenant,
                data={
                    "name": row["name"],
                    "size_gib": row["size_gib"],
                    "waiting_vm": str(row["bound_vm_id"]),
                },
            )
            for row in rows
        ],
    )


def bind_volumes(
    connection: Connection, request: Request, owner: UUID, vm_id: UUID, *, now: datetime, actor: str
) -> None:
    """Bind the volumes that a request names to its only VM; other requests cannot name them.

    Raises
    ------
    NotFoundError
        If the tenant has no volume of such a name.
    ConflictError
        If a VM has such a volume or waits with it, a worker changes it, or two of them are in
        different pools.
    """
    found = {row.name: row for row in lock_volumes_by_name(connection, owner, request.volumes)}
    for name in request.volumes:
        if name not in found:
            raise NotFoundError("volume", name)
        row = found[name]
        if row.bound_vm_id is not None or row.state not in _FREE:
            raise ConflictError(why_busy(row, "brought by a request"))
    _check_one_pool(connection, [found[name] for name in request.volumes])
    keys = [row.id for row in found.values()]
    connection.execute(update(volumes).where(volumes.c.id.in_(keys)).values(bound_vm_id=vm_id))
    record_events(
        connection,
        [
            event_row(
                now,
                actor,
                "volume_bound",
                "volume",
                row.id,
                tenant=request.tenant,
                data={"name": row.name, "request": request.name, "waiting_vm": str(vm_id)},
            )
            for row in found.values()
        ],
    )


def _check_one_pool(connection: Connection, rows: Sequence[Row[Any]]) -> None:
    """Raise `ConflictError` if two volumes are in different pools."""
    placed = [row for row in rows if row.host_id is not None]
    query = select(hosts.c.id, hosts.c.shared_pool).where(
        hosts.c.id.in_({row.host_id for row in placed})
    )
    pools = {row.id: row.shared_pool or row.id for row in connection.execute(query)}
    for row in placed[1:]:
        if pools[row.host_id] != pools[placed[0].host_id]:
            raise ConflictError(
                f"volumes {placed[0].name} and {row.name} are in different pools, and no host"
                " reaches both: bring one of them"
            )
