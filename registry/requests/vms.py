"""VMs: their desired and observed states, and their hosts."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, and_, func, select, update

from registry.db.bulk import is_any_of
from registry.db.clock import db_now
from registry.db.engine import Database, retry_on_rollback
from registry.db.idempotency_keys import store_result
from registry.db.locks import lock_vms
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
    image_copies,
    images,
    interfaces,
    is_place,
    is_vm_arrival,
    moves,
    network_addresses,
    networks,
    power_actions,
    request_images,
    requests,
    spot_preemptions,
    tenants,
    unreleased,
    vm_types,
    vms,
)
from registry.errors import InvalidError, NotFoundError
from registry.ledger.deletion import delete_vms
from registry.ledger.known_states import is_in_state, is_state_unknown
from registry.ledger.power import SHUTDOWN_TIMEOUT_S
from registry.lifecycle import (
    AssignmentState,
    CopyState,
    HostHealth,
    PowerState,
    VmDesiredEvent,
    VmObserved,
    VmState,
)
from registry.records.requests import ImageWait, Power, Vm
from registry.requests.own_labels import changed_labels, label_conditions
from registry.requests.power import request_power_change
from registry.subnets import address_text
from registry.tenancy.tree import key_query, lock_requesting_tenant

_UNBUILT = (AssignmentState.RESERVED.value, AssignmentState.CREATING.value)

_MAC: Final = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")
_ARRIVING = assignments.alias("arriving")
_TO = hosts.alias("to_host")
_SELECT = (
    select(
        vms,
        tenants.c.name.label("tenant"),
        vm_types.c.name.label("vm_type"),
        hosts.c.name.label("host"),
        hosts.c.health.label("host_health"),
        func.coalesce(hosts.c.last_polled_at, hosts.c.created_at).label("host_heard_at"),
        power_actions.c.state.label("power_state"),
        power_actions.c.requested_by,
        power_actions.c.requested_at,
        power_actions.c.timeout_s,
        power_actions.c.force_at,
        power_actions.c.last_error.label("power_error"),
        assignments.c.id.label("assignment_id"),
        assignments.c.state.label("assignment_state"),
        assignments.c.round.label("round"),
        _TO.c.name.label("moving_to"),
        moves.c.id.label("move_id"),
        spot_preemptions.c.ends_at,
        spot_preemptions.c.for_tenant,
        spot_preemptions.c.for_request,
        interfaces.c.mac,
        networks.c.name.label("network"),
        network_addresses.c.address,
        images.c.name.label("image"),
        images.c.revision.label("image_revision"),
        images.c.size_bytes,
        images.c.held_at.is_not(None).label("image_held"),
        image_copies.c.state.label("copy_state"),
        image_copies.c.uploaded_bytes,
    )
    .select_from(vms)
    .join(requests, requests.c.id == vms.c.request_id)
    .join(tenants, tenants.c.id == vms.c.tenant_id)
    .join(vm_types, vm_types.c.id == requests.c.vm_type_id)
    .outerjoin(assignments, and_(assignments.c.vm_id == vms.c.id, is_place))
    .outerjoin(hosts, hosts.c.id == assignments.c.host_id)
    .outerjoin(_ARRIVING, and_(_ARRIVING.c.vm_id == vms.c.id, is_vm_arrival(_ARRIVING)))
    .outerjoin(_TO, _TO.c.id == _ARRIVING.c.host_id)
    .outerjoin(moves, and_(moves.c.vm_id == vms.c.id, moves.c.to_id == _ARRIVING.c.id))
    .outerjoin(spot_preemptions, spot_preemptions.c.vm_id == vms.c.id)
    .outerjoin(power_actions, power_actions.c.vm_id == vms.c.id)
    .outerjoin(interfaces, interfaces.c.vm_id == vms.c.id)
    .outerjoin(networks, networks.c.id == interfaces.c.network_id)
    .outerjoin(network_addresses, network_addresses.c.vm_id == vms.c.id)
    .outerjoin(request_images, request_images.c.request_id == vms.c.request_id)
    .outerjoin(images, images.c.id == request_images.c.image_id)
    .outerjoin(
        image_copies,
        and_(
            image_copies.c.image_id == images.c.id, image_copies.c.host_id == assignments.c.host_id
        ),
    )
)


def _is_on_host(connection: Connection, name: str) -> ColumnElement[bool]:
    """Return the condition that a VM has its place on the host with a name.

    The host's VMs are listed by id. As a part of the query, with its many joins, they would be
    searched last, among all VMs.
    """
    ids = ids_by_name(connection, "host", hosts, name)
    there = select(assignments.c.vm_id).where(assignments.c.host_id.in_(ids), is_place, unreleased)
    return is_any_of(connection, vms.c.id, connection.scalars(there).all())


def _has_address(connection: Connection, address: str) -> ColumnElement[bool]:
    """Return the condition that a VM has an IPv4 address, which several networks may share."""
    try:
        number = int(ipaddress.IPv4Address(address))
    except ValueError:
        raise InvalidError("address", address, "an IPv4 address such as 10.0.0.7") from None
    # By way of the networks, whose key begins the index: their addresses are many.
    given = (
        select(network_addresses.c.vm_id)
        .select_from(networks)
        .join(network_addresses, network_addresses.c.network_id == networks.c.id)
        .where(network_addresses.c.address == number, network_addresses.c.vm_id.is_not(None))
    )
    return is_any_of(connection, vms.c.id, connection.scalars(given).all())


def _has_mac(connection: Connection, mac: str) -> ColumnElement[bool]:
    """Return the condition that a VM has a MAC address."""
    spelled = mac.strip().lower().replace("-", ":")
    if _MAC.fullmatch(spelled) is None:
        raise InvalidError("mac", mac, "a MAC address such as 02:00:5e:10:00:07")
    found = select(interfaces.c.vm_id).where(interfaces.c.mac == spelled)
    return is_any_of(connection, vms.c.id, connection.scalars(found).all())


class Vms:
    """Reads, labels, switches and deletes VMs, which requests create."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list(
        self,
        *,
        tenant: str | None = None,
        request_id: UUID | None = None,
        host: str | None = None,
        name: str | None = None,
        search: str | None = None,
        state: VmState | None = None,
        address: str | None = None,
        mac: str | None = None,
        labels: Sequence[str] = (),
        include_deleted: bool = False,
        deleted_since: datetime | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page[Vm]:
        """Return a page of VMs, oldest first, without deleted ones unless ``include_deleted``.

        With ``deleted_since`` only VMs deleted since then are returned. ``search`` is a part of the
        name. Deleted VMs have no address, but keep their MAC.
        """
        query = _SELECT.order_by(vms.c.id).limit(check_limit(limit) + 1)
        if tenant is not None:  # by its key, in the order of an index
            query = query.where(vms.c.tenant_id == key_query(tenant))
        for column, value in ((vms.c.request_id, request_id), (vms.c.name, name)):
            if value is not None:
                query = query.where(column == value)
        query = query.where(*label_conditions(vms, labels), *name_contains(vms.c.name, search))
        if deleted_since is not None:
            query = query.where(vms.c.deleted_at >= deleted_since)
        elif not include_deleted:
            query = query.where(vms.c.deleted_at.is_(None))
        if cursor is not None:
            query = query.where(vms.c.id > cursor_uuid(cursor))
        with self._database.read() as connection:
            if host is not None:
                query = query.where(_is_on_host(connection, host))
            if address is not None:
                query = query.where(_has_address(connection, address))
            if mac is not None:
                query = query.where(_has_mac(connection, mac))
            if state is not None:
                query = query.where(is_in_state(connection, state))
            found = [_to_vm(row) for row in connection.execute(query)]
        return page_of(found, limit, lambda vm: (vm.id.hex,))

    def get(self, id: UUID) -> Vm:  # noqa: A002 - the contract's name
        """Return a VM, also a deleted one, or raise `NotFoundError`."""
        with self._database.read() as connection:
            return _get_vm(connection, id)

    def tenant_of(self, id: UUID) -> str | None:  # noqa: A002
        """Return a VM's tenant or None, in the same time for known and unknown ids."""
        query = select(tenants.c.name).join(vms, vms.c.tenant_id == tenants.c.id)
        with self._database.read() as connection:
            return connection.execute(query.where(vms.c.id == id)).scalar_one_or_none()

    @retry_on_rollback
    def delete(self, id: UUID, *, actor: str) -> Vm:  # noqa: A002
        """Delete a VM and reduce its request's count; a repeated call is no error.

        The maximum of an elastic request decreases as well, so that it borrows no other VM for it.
        """
        with self._database.write() as connection:
            vm = _get_vm(connection, id)
            elastic = select(requests.c.max_count).where(requests.c.id == vm.request_id)
            if connection.scalar(elastic) is not None:
                # No round lends another VM before this commits.
                lock_requesting_tenant(connection, vm.tenant)
            deleted = delete_vms(connection, vms.c.id == id, now=db_now(connection), actor=actor)
            if deleted:
                vm = _get_vm(connection, id)  # it may have become borrowed before it was locked
                count = requests.c.count - (0 if vm.borrowed else 1)
                # A request whose maximum is its count is not elastic.
                max_count = func.nullif(requests.c.max_count - 1, count)
                connection.execute(
                    update(requests)
                    .where(requests.c.id == vm.request_id)
                    .values(count=count, max_count=max_count)
                )
            return _get_vm(connection, id)

    @retry_on_rollback
    def change_labels(self, id: UUID, changes: Mapping[str, str | None]) -> Vm:  # noqa: A002
        """Change labels of a VM; the value None removes a label."""
        with self._database.write() as connection:
            lock_vms(connection, vms.c.id == id)
            vm = _get_vm(connection, id)
            after = changed_labels(vm.labels, changes)
            connection.execute(update(vms).where(vms.c.id == id).values(labels=after))
            return _get_vm(connection, id)

    @retry_on_rollback
    def change_power(
        self,
        id: UUID,  # noqa: A002
        event: VmDesiredEvent,
        *,
        timeout_s: int = SHUTDOWN_TIMEOUT_S,
        actor: str,
    ) -> Vm:
        """Request a stop, start or reboot of one VM, which a worker carries out.

        Its guest is signalled to shut down and given ``timeout_s``, then it is forced;
        with 0 at once. It raises `ConflictError` if the VM's state does not allow the change.
        """
        with self._database.write() as connection:
            _get_vm(connection, id)
            now = db_now(connection)
            request_power_change(connection, id, event, timeout_s=timeout_s, now=now, actor=actor)
            return store_result(connection, _get_vm(connection, id))


def _get_vm(connection: Connection, key: UUID) -> Vm:
    """Return a VM, also a deleted one, or raise `NotFoundError`."""
    row = connection.execute(_SELECT.where(vms.c.id == key)).one_or_none()
    if row is None:
        raise NotFoundError("VM", key)
    return _to_vm(row)


def _to_vm(row: Row[Any]) -> Vm:
    """Return the record of a VM from its row, which joins assignment, host, image and power."""
    return record_of(
        Vm,
        row,
        power=_to_power(row),
        address=address_text(row.address) if row.address is not None else None,
        waits_for_image=_to_image_wait(row),
        ending_for=None if row.ends_at is None else f"{row.for_tenant}/{row.for_request}",
        unknown_since=row.host_heard_at
        if is_state_unknown(row.host_health, row.observed)
        else None,
        paused_since=row.paused_since if row.observed == VmObserved.RUNNING.value else None,
    )


def _to_image_wait(row: Row[Any]) -> ImageWait | None:
    """Return the image for which a VM's build waits, or None."""
    present = row.copy_state in {None, CopyState.PRESENT.value}
    if present or row.assignment_state not in _UNBUILT:
        return None
    return record_of(
        ImageWait,
        row,
        image=f"{row.image}:{row.image_revision}",
        state=CopyState(row.copy_state),
        held=row.image_held,
    )


def _to_power(row: Row[Any]) -> Power | None:
    """Return a VM's pending power change from its row, or None."""
    if row.power_state is None:
        return None
    return record_of(
        Power,
        row,
        state=PowerState(row.power_state),
        waits_for=_wait_reason(row),
        last_error=row.power_error,
    )


def _wait_reason(row: Row[Any]) -> str | None:
    """Return why workers cannot carry out a VM's power change yet, or None."""
    if row.host_health != HostHealth.UP.value:
        return f"its host is {row.host_health}"
    if row.assignment_state == AssignmentState.QUARANTINED.value:
        return "its build failed and is being cleared away"
    if row.observed == VmObserved.ABSENT.value:
        return "it is still being built"
    if row.observed == VmObserved.LOST.value:
        return "its host does not know it any more"
    return None
