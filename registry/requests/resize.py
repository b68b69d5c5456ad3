"""Changes of the number of VMs of a request."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, and_, insert, select, update

from registry.audit.events import record_event
from registry.db.bulk import execute_parameters
from registry.db.locks import lock_vms
from registry.db.names import check_int
from registry.db.schema import assignments, is_place, request_networks, requests, vms
from registry.errors import ConflictError, InvalidError
from registry.ledger.deletion import delete_vms
from registry.ledger.request_progress import recompute_states
from registry.lifecycle import FINISHED, VmDesired
from registry.networks.addresses import create_interfaces
from registry.records.requests import Request
from registry.requests.request_spec import vm_rows
from registry.requests.rules import check_hosts_suffice
from registry.requests.vm_names import free_numbers


def resize(
    connection: Connection,
    request: Request,
    owner: UUID,
    count: int,
    *,
    max_count: int,
    remove: Collection[UUID],
    now: datetime,
    actor: str,
) -> None:
    """Set the number of a request's VMs to ``count``.

    The caller holds the lock of the tenant. New VMs wait for a place and get the next numbers. VMs
    are deleted in this order: those in ``remove``, those without a place, the newest of the
    others. `min_count` stays, as it applies to the first round that places the request.
    """
    check_int("count", count, 1, max_count)
    if request.state in FINISHED:
        raise ConflictError(f"request {request.name} is {request.state}")
    lock_vms(connection, _is_wanted_vm(request.id))
    place = select(assignments.c.id).where(assignments.c.vm_id == vms.c.id, is_place)
    rows = connection.execute(
        select(vms.c.id, place.exists().label("placed"))
        .where(_is_wanted_vm(request.id))
        .order_by(vms.c.id)
    ).all()
    if not rows:
        raise ConflictError(f"all VMs of request {request.name} are being deleted")
    surplus = len(rows) - count
    if len(remove) > max(surplus, 0):
        allowed = (
            f"at most the {surplus} by which {len(rows)} VMs become {count}"
            if surplus > 0
            else f"none: {count} VMs are to be there, and {len(rows)} are; ask for fewer"
        )
        raise InvalidError("remove", len(remove), allowed)
    leaving = _vms_to_remove(rows, remove, surplus)
    if surplus < 0:
        check_hosts_suffice(request.rules, request.hosts, count)
        _add_vms(connection, request, owner, -surplus, now=now)
    connection.execute(
        update(requests)
        .where(requests.c.id == request.id)
        .values(count=requests.c.count - surplus, updated_at=now)
    )
    if surplus:
        record_event(
            connection,
            now,
            actor,
            "request_resized",
            "request",
            request.id,
            tenant=request.tenant,
            data={"from": len(rows), "to": count},
        )
    if leaving:
        delete_vms(connection, vms.c.id.in_(leaving), now=now, actor=actor)
    else:
        recompute_states(connection, [request.id], now=now, actor=actor, reason="resized")


def _add_vms(
    connection: Connection, request: Request, owner: UUID, count: int, *, now: datetime
) -> None:
    """Add VMs to a request, each with a MAC address on the request's network.

    Numbers continue after the highest ever used. Numbers whose names other VMs or requests of the
    tenant have are skipped.
    """
    names = connection.scalars(select(vms.c.name).where(vms.c.request_id == request.id))
    first = 1 + max((int(name.rpartition("-")[2]) for name in names), default=0)
    numbers = free_numbers(connection, owner, request.name, first, count)
    network_id = connection.scalar(
        select(request_networks.c.network_id).where(request_networks.c.request_id == request.id)
    )
    rows = vm_rows(request, owner, numbers, now=now)
    connection.execute(insert(vms), execute_parameters(rows))
    create_interfaces(connection, [row["id"] for row in rows], network_id)


def _is_wanted_vm(request_id: UUID) -> Any:
    """Return the condition for VMs of a request that are not deleted."""
    return and_(vms.c.request_id == request_id, vms.c.desired != VmDesired.DELETED.value)


def _vms_to_remove(
    rows: Collection[Row[Any]], remove: Collection[UUID], surplus: int
) -> list[UUID]:
    """Return which VMs of a request to delete: those named, then unplaced ones, then the newest."""
    unknown = set(remove) - {row.id for row in rows}
    if unknown:
        raise InvalidError("remove", str(min(unknown)), "ids of VMs of this request")
    if surplus <= 0:
        return []
    named = set(remove)
    rest = [row for row in rows if row.id not in named]
    rest.sort(key=lambda row: (row.placed, -row.id.int))
    return [*named, *(row.id for row in rest[: surplus - len(named)])]
