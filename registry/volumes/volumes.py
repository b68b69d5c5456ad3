"""Volumes of tenants: created, attached to VMs, detached and removed.

A volume has no file at first. Its first attachment places it in the pool of the VM's host, where
it stays. Workers change the file and the guest's disk, a step at a time (`registry.tasks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, Select, and_, func, insert, select, update

from registry.audit.changes import VOLUME
from registry.audit.events import record_event, record_events
from registry.catalogue.resources import VOLUMES
from registry.db.clock import db_now
from registry.db.engine import Database, retry_on_rollback
from registry.db.idempotency_keys import store_result
from registry.db.ids import uuid7
from registry.db.locks import lock_hosts, lock_vms
from registry.db.names import check_int, check_new_name
from registry.db.pages import (
    DEFAULT_LIMIT,
    Page,
    check_limit,
    cursor_uuid,
    ids_by_name,
    name_contains,
    page_of,
)
from registry.db.row_conversion import record_of
from registry.db.schema import (
    assignments,
    hosts,
    inventories,
    is_place,
    moves,
    tenants,
    vms,
    volumes,
)
from registry.errors import ConflictError, DuplicateError, NotFoundError
from registry.ledger.volume_changes import change_volume, unbind_volume
from registry.lifecycle import (
    OPEN_MOVES,
    WITH_DOMAIN,
    AssignmentState,
    VmDesired,
    VolumeEvent,
    VolumeState,
)
from registry.records.volumes import MAX_ATTACHED, MAX_OF_TENANT, MAX_SIZE_GIB, Volume
from registry.tenancy.quota_use import check_amounts
from registry.tenancy.tree import key_query, lock_requesting_tenant
from registry.volumes.trouble import volume_trouble

_WAITING = vms.alias("waiting")
_SELECT: Final[Select[Any]] = (
    select(
        volumes,
        tenants.c.name.label("tenant"),
        hosts.c.name.label("host"),
        hosts.c.health,
        hosts.c.last_polled_at,
        hosts.c.pool_silent_since,
        vms.c.name.label("vm"),
        vms.c.observed,
        _WAITING.c.name.label("waiting_vm"),
    )
    .select_from(volumes)
    .join(tenants, tenants.c.id == volumes.c.tenant_id)
    .outerjoin(hosts, hosts.c.id == volumes.c.host_id)
    .outerjoin(vms, vms.c.id == volumes.c.vm_id)
    .outerjoin(_WAITING, _WAITING.c.id == volumes.c.bound_vm_id)
)


class Volumes:
    """Creates, lists, attaches, detaches and removes volumes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @retry_on_rollback
    def create(self, name: str, *, tenant: str, size_gib: int, actor: str) -> Volume:
        """Create a volume without a file, which its first attachment makes.

        Raises
        ------
        InvalidError
            If the size is no whole number of GiB in bounds.
        DuplicateError
            If the tenant has a volume of that name.
        QuotaExceededError
            If the tenant's disk, or its number of volumes, would exceed its quota or one of a group
            above it.
        """
        check_new_name("name", name)
        check_int("size_gib", size_gib, 1, MAX_SIZE_GIB)
        key = uuid7()
        with self._database.write() as connection:
            owner = lock_requesting_tenant(connection, tenant)
            mine = and_(volumes.c.tenant_id == owner, volumes.c.state != VolumeState.REMOVED.value)
            if connection.execute(select(volumes.c.id).where(mine, volumes.c.name == name)).first():
                raise DuplicateError("volume", "name", name)
            count = select(func.count()).select_from(volumes).where(mine)
            if connection.execute(count).scalar_one() >= MAX_OF_TENANT:
                raise ConflictError(
                    f"tenant {tenant} has {MAX_OF_TENANT} volumes, which is the maximum:"
                    " remove some (`fuga volume remove`)"
                )
            check_amounts(connection, owner, {"disk_gib": size_gib, VOLUMES: 1})
            now = db_now(connection)
            connection.execute(
                insert(volumes).values(
                    id=key,
                    tenant_id=owner,
                    name=name,
                    size_gib=size_gib,
                    state=VolumeState.UNPLACED.value,
                    due_at=now,
                    changed_at=now,
                    created_at=now,
                )
            )
            data = {"name": name, "size_gib": size_gib}
            record_event(
                connection, now, actor, "volume_created", "volume", key, tenant=tenant, data=data
            )
            return store_result(connection, _get_volume(connection, key))

    def list(
        self,
        *,
        tenant: str | None = None,
        name: str | None = None,
        search: str | None = None,
        vm_id: UUID | None = None,
        host: str | None = None,
        state: VolumeState | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page[Volume]:
        """Return a page of volumes, oldest first; removed ones only with their ``state``.

        ``search`` is a part of the name.
        """
        query = _SELECT.order_by(volumes.c.id).limit(check_limit(limit) + 1)
        query = query.where(*name_contains(volumes.c.name, search))
        if tenant is not None:
            query = query.where(volumes.c.tenant_id == key_query(tenant))
        if name is not None:
            query = query.where(volumes.c.name == name)
        if vm_id is not None:
            query = query.where(volumes.c.vm_id == vm_id)
        if state is not None:
            query = query.where(volumes.c.state == state.value)
        else:
            query = query.where(volumes.c.state != VolumeState.REMOVED.value)
        if cursor is not None:
            query = query.where(volumes.c.id > cursor_uuid(cursor))
        with self._database.read() as connection:
            if host is not None:
                named = ids_by_name(connection, "host", hosts, host)
                query = query.where(volumes.c.host_id.in_(named))
            found = [_to_volume(row) for row in connection.execute(query)]
        return page_of(found, limit, lambda volume: (volume.id.hex,))

    def get(self, id: UUID) -> Volume:  # noqa: A002 - the contract's name
        """Return a volume, also a removed one, or raise `NotFoundError`."""
        with self._database.read() as connection:
            return _get_volume(connection, id)

    def tenant_of(self, id: UUID) -> str | None:  # noqa: A002
        """Return a volume's tenant or None, in the same time for known and unknown ids."""
        query = select(tenants.c.name).join(volumes, volumes.c.tenant_id == tenants.c.id)
        with self._database.read() as connection:
            return connection.execute(query.where(volumes.c.id == id)).scalar_one_or_none()

    @retry_on_rollback
    def attach(self, id: UUID, vm_id: UUID, *, actor: str) -> Volume:  # noqa: A002
        """Request that a worker attaches a volume to a VM; a repeated call is no error.

        A volume without a file is placed in the pool of the VM's host, and holds its size there.

        Raises
        ------
        ConflictError
            If the volume has another VM or is on another host, or the VM is not built, is deleted
            or moves, or its host has no room for the volume.
        """
        with self._database.write() as connection:
            found = _get_row(connection, id)
            place = _get_place(connection, vm_id, found.tenant_id)
            if place.host_id is not None:
                # Before the VM, in the order of `registry.db.locks`.
                lock_hosts(connection, place.host_id)
            lock_vms(connection, vms.c.id == vm_id)
            row = _lock_row(connection, id)
            if row.vm_id == vm_id and row.state != VolumeState.DETACHING.value:
                return store_result(connection, _get_volume(connection, id))
            _check_attachable(row, vm_id)
            now_there = _get_place(connection, vm_id, row.tenant_id)
            if now_there.host_id != place.host_id:
                raise ConflictError(f"VM {place.name} changed its host just now: repeat the call")
            _check_can_take(connection, row, now_there)
            _carry_out_call(
                connection,
                row,
                VolumeEvent.ATTACH_REQUESTED,
                now=db_now(connection),
                actor=actor,
                data={"vm": str(vm_id), "host": now_there.host},
                vm_id=vm_id,
                assignment_id=now_there.assignment_id,
                host_id=now_there.host_id,
            )
            return store_result(connection, _get_volume(connection, id))

    @retry_on_rollback
    def detach(self, id: UUID, *, actor: str) -> Volume:  # noqa: A002
        """Request that a worker takes a volume from its VM; a repeated call is no error.

        A running guest has `DETACH_TIMEOUT_S` seconds to release the disk, else it keeps it. A VM
        that waits for a host with the volume starts without it.
        """
        with self._database.write() as connection:
            row = _lock_row(connection, id)
            if row.bound_vm_id is not None and row.vm_id is None:
                now = db_now(connection)
                record_events(connection, [unbind_volume(connection, row, now=now, actor=actor)])
            elif (row.state, VolumeEvent.DETACH_REQUESTED) in VOLUME.table:
                event = VolumeEvent.DETACH_REQUESTED
                _carry_out_call(connection, row, event, now=db_now(connection), actor=actor)
            elif row.state == VolumeState.REMOVED.value:
                raise ConflictError(f"volume {row.name} is removed")
            return store_result(connection, _get_volume(connection, id))

    @retry_on_rollback
    def change(self, id: UUID, *, protected: bool, actor: str) -> Volume:  # noqa: A002
        """Protect a volume from removal, or take that back.

        Raises
        ------
        ConflictError
            If it is removed.
        """
        with self._database.write() as connection:
            row = _lock_row(connection, id)
            if row.state in _GOING:
                raise ConflictError(f"volume {row.name} is {row.state}")
            if row.protected != protected:
                mine = update(volumes).where(volumes.c.id == id)
                connection.execute(mine.values(protected=protected))
                now, data = db_now(connection), {"name": row.name, "protected": protected}
                record_event(
                    connection,
                    now,
                    actor,
                    "volume_updated",
                    "volume",
                    id,
                    tenant=row.tenant,
                    data=data,
                )
            return _get_volume(connection, id)

    @retry_on_rollback
    def remove(self, id: UUID, *, actor: str) -> Volume:  # noqa: A002
        """Remove a volume and what is on it; a repeated call is no error.

        Raises
        ------
        ConflictError
            If a VM has it, or waits for a host with it, or it is protected.
        """
        with self._database.write() as connection:
            row = _lock_row(connection, id)
            if row.state not in _GOING:
                if row.protected:
                    raise ConflictError(
                        f"volume {row.name} is protected from removal: `fuga volume set {row.name}"
                        " --no-protected` takes that back"
                    )
                is_busy = (row.state, VolumeEvent.REMOVE_REQUESTED) not in VOLUME.table
                if is_busy or row.bound_vm_id is not None:
                    raise ConflictError(why_busy(row, "removed"))
                event = VolumeEvent.REMOVE_REQUESTED
                _carry_out_call(connection, row, event, now=db_now(connection), actor=actor)
            return store_result(connection, _get_volume(connection, id))


_GOING: Final = (VolumeState.REMOVING.value, VolumeState.REMOVED.value)


def _get_row(connection: Connection, key: UUID) -> Row[Any]:
    """Return the row of a volume with the names of its tenant, host and VM."""
    row = connection.execute(_SELECT.where(volumes.c.id == key)).one_or_none()
    if row is None:
        raise NotFoundError("volume", key)
    return row


def _get_volume(connection: Connection, key: UUID) -> Volume:
    """Return a volume, also a removed one, or raise `NotFoundError`."""
    return _to_volume(_get_row(connection, key))


def _to_volume(row: Row[Any]) -> Volume:
    """Return the record of a volume."""
    return record_of(Volume, row, trouble=volume_trouble(row))


def _lock_row(connection: Connection, key: UUID) -> Row[Any]:
    """Lock a volume, and return its row."""
    lock = select(volumes.c.id).where(volumes.c.id == key).with_for_update(key_share=True)
    connection.execute(lock)
    return _get_row(connection, key)


def lock_volumes_by_name(
    connection: Connection, tenant_id: UUID, names: Sequence[str]
) -> Sequence[Row[Any]]:
    """Lock the volumes of a tenant that have these names, and return their rows."""
    which = and_(
        volumes.c.tenant_id == tenant_id,
        volumes.c.name.in_(names),
        volumes.c.state != VolumeState.REMOVED.value,
    )
    lock = select(volumes.c.id).where(which).order_by(volumes.c.id)
    keys = connection.scalars(lock.with_for_update(key_share=True)).all()
    return connection.execute(_SELECT.where(volumes.c.id.in_(keys))).all()


def _get_place(connection: Connection, vm_id: UUID, tenant_id: UUID) -> Row[Any]:
    """Return a VM of a tenant with its place, or raise `NotFoundError`."""
    query = (
        select(
            vms.c.id,
            vms.c.name,
            vms.c.desired,
            vms.c.observed,
            select(moves.c.id)
            .where(moves.c.vm_id == vms.c.id, moves.c.state.in_(OPEN_MOVES))
            .exists()
            .label("is_to_move"),
            assignments.c.id.label("assignment_id"),
            assignments.c.state,
            assignments.c.host_id,
            hosts.c.name.label("host"),
            hosts.c.shared_pool,
        )
        .select_from(vms)
        .outerjoin(assignments, and_(assignments.c.vm_id == vms.c.id, is_place))
        .outerjoin(hosts, hosts.c.id == assignments.c.host_id)
        .where(vms.c.id == vm_id, vms.c.tenant_id == tenant_id)
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFoundError("VM", vm_id)
    return row


def why_busy(row: Row[Any], what: str) -> str:
    """Return why a volume cannot be attached or removed in its present state."""
    if row.state == VolumeState.DETACHING.value:
        return (
            f"volume {row.name} cannot be {what} while VM {row.vm} releases it: repeat the call"
            " once it is available"
        )
    if row.vm_id is not None:
        return (
            f"volume {row.name} cannot be {what}: VM {row.vm} has it ({row.state});"
            f" detach it first (`fuga volume detach {row.name}`)"
        )
    if row.state == VolumeState.REMOVED.value:
        return f"volume {row.name} is removed"
    if row.waiting_vm is not None:
        return (
            f"volume {row.name} cannot be {what}: VM {row.waiting_vm} waits for a host with it;"
            f" detach it first (`fuga volume detach {row.name}`), or delete the request"
        )
    return f"volume {row.name} cannot be {what} while it is {row.state}: repeat the call later"


def _check_attachable(row: Row[Any], vm_id: UUID) -> None:
    """Raise `ConflictError` unless no VM has or waits with a volume, and no worker changes it."""
    if row.bound_vm_id not in {None, vm_id}:
        raise ConflictError(why_busy(row, "attached"))
    if (row.state, VolumeEvent.ATTACH_REQUESTED) not in VOLUME.table:
        raise ConflictError(why_busy(row, "attached"))


def _check_can_take(connection: Connection, row: Row[Any], place: Row[Any]) -> None:
    """Raise `ConflictError` unless a VM, which is locked, can take a volume."""
    if place.desired == VmDesired.DELETED.value:
        raise ConflictError(f"VM {place.name} is deleted")
    if place.state != AssignmentState.ACTIVE.value or place.observed not in WITH_DOMAIN:
        what = "has no host" if place.state is None else f"is {place.observed}"
        raise ConflictError(f"VM {place.name} {what}: a volume needs a VM that is built")
    if place.is_to_move:
        raise ConflictError(f"VM {place.name} moves: attach the volume when it has arrived")
    if row.host_id is not None and row.host_id != place.host_id:
        pool = select(hosts.c.shared_pool).where(hosts.c.id == row.host_id)
        if place.shared_pool is None or connection.scalar(pool) != place.shared_pool:
            raise ConflictError(
                f"volume {row.name} is on another host than VM {place.name}: attach it to a VM"
                " on that host, or ask an operator to move the VM there (`fuga move`)"
            )
    if row.host_id != place.host_id and not _has_room(connection, place.host_id, row.size_gib):
        raise ConflictError(
            f"the host of VM {place.name} has no room for {row.size_gib} GiB more: attach volume"
            f" {row.name} to a VM on another host, or ask an operator"
        )
    held = select(func.count()).select_from(volumes).where(volumes.c.vm_id == place.id)
    if connection.execute(held).scalar_one() >= MAX_ATTACHED:
        raise ConflictError(
            f"VM {place.name} has {MAX_ATTACHED} volumes, which is the maximum: detach one first"
        )


def _has_room(connection: Connection, host_id: UUID, size_gib: int) -> bool:
    """Return whether the pool of a host, which is locked, has room for a volume."""
    fits = select(inventories.c.host_id).where(
        inventories.c.host_id == host_id,
        inventories.c.resource == "disk_gib",
        inventories.c.committed + size_gib <= inventories.c.capacity,
    )
    return connection.execute(fits).first() is not None


def _carry_out_call(
    connection: Connection,
    row: Row[Any],
    event: VolumeEvent,
    *,
    now: datetime,
    actor: str,
    data: dict[str, Any] | None = None,
    **values: Any,
) -> None:
    """Change the state of a locked volume by a call; what failed before it is over."""
    _, history = change_volume(
        connection, row, event, now=now, actor=actor, data=data, last_error=None, **values
    )
    record_events(connection, [history])
