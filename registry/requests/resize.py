"""Changes of the number of VMs of a request."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, and_, insert, select, update

from registry.audit.events import record_event
from registry.db.bulk import chunks, execute_parameters, is_any_of
from registry.db.locks import lock_vms
from registry.db.names import check_int
from registry.db.schema import assignments, is_place, request_networks, requests, vms
from registry.errors import ConflictError, InvalidError
from registry.ledger.deletion import delete_vms
from registry.ledger.request_progress import recompute_states
from registry.lifecycle import FINISHED, VmDesired
from registry.networks.addresses import create_interfaces
from registry.records.requests import Request
from registry.requests.request_spec import MAX_COUNT, vm_rows
from registry.requests.rules import check_hosts_suffice
from registry.requests.vm_names import free_numbers
from registry.usage.borrowed_times import begin_to_borrow, end_to_borrow


def resize(
    connection: Connection,
    request: Request,
    owner: UUID,
    count: int,
    *,
    max_count: int | None,
    remove: Collection[UUID],
    now: datetime,
    actor: str,
) -> None:
    """Set the number of a request's VMs to ``count``.

    The caller holds the lock of the tenant. New VMs wait for a place and get the next numbers. VMs
    are deleted in this order: those in ``remove``, those without a place, the newest of the
    others. `min_count` stays, as it applies to the first round that places the request.

    Up to ``max_count`` VMs (None: as before) may be borrowed beyond ``count``. If ``count``
    increases, borrowed VMs become ordinary ones first; if it decreases, ordinary VMs become
    borrowed ones as far as ``max_count`` allows. Of the borrowed VMs beyond it the newest are
    deleted.
    """
    check_int("count", count, 1, MAX_COUNT)
    most = max(count, max_count or request.max_count or count)
    if max_count is not None:
        check_int("max_count", max_count, count, MAX_COUNT)
    if request.state in FINISHED:
        raise ConflictError(f"request {request.name} is {request.state}")
    lock_vms(connection, _is_wanted_vm(request.id))
    place = select(assignments.c.id).where(assignments.c.vm_id == vms.c.id, is_place)
    rows = connection.execute(
        select(vms.c.id, vms.c.borrowed, place.exists().label("placed"))
        .where(_is_wanted_vm(request.id))
        .order_by(vms.c.id)
    ).all()
    if not rows:
        raise ConflictError(f"all VMs of request {request.name} are being deleted")
    borrowed = [row for row in rows if row.borrowed]
    rows = [row for row in rows if not row.borrowed]
    surplus = len(rows) - count
    promoted = borrowed[: max(0, -surplus)]
    borrowed = borrowed[len(promoted) :]
    named, lent = set(remove), []
    if surplus > 0:
        room = max(0, min(surplus - len(named), most - count))
        placed = [row for row in rows if row.placed and row.id not in named]
        lent = placed[len(placed) - min(room, len(placed)) :]
    lent_ids = {row.id for row in lent}
    rows = [row for row in rows if row.id not in lent_ids]
    _set_borrowed(connection, [row.id for row in promoted], now, borrowed=False)
    _set_borrowed(connection, [row.id for row in lent], now, borrowed=True)
    before = len(rows) + len(lent)
    surplus = len(rows) + len(promoted) - count
    if len(remove) > max(surplus, 0):
        allowed = (
            f"at most the {surplus} by which {before} VMs become {count}"
            if surplus > 0
            else f"none: {count} VMs are to be there, and {before} are; ask for fewer"
        )
        raise InvalidError("remove", len(remove), allowed)
    leaving = _vms_to_remove(rows, remove, surplus)
    borrowed = sorted([*borrowed, *lent], key=lambda row: row.id)
    leaving += [row.id for row in borrowed[most - count :]]
    if surplus < 0 and (request.volumes or request.new_volumes):
        raise ConflictError(
            f"request {request.name} brought volumes, and gets no more VMs: create another request"
        )
    if surplus < 0:
        check_hosts_suffice(request.rules, request.hosts, count)
        add_vms(connection, request, owner, -surplus, now=now)
    connection.execute(
        update(requests)
        .where(requests.c.id == request.id)
        .values(
            count=requests.c.count - before + count,
            max_count=most if most > count else None,
            updated_at=now,
        )
    )
    if before != count or most != (request.max_count or request.count):
        bounds = {} if most == count and request.max_count is None else {"max_count": most}
        record_event(
            connection,
            now,
            actor,
            "request_resized",
            "request",
            request.id,
            tenant=request.tenant,
            data={"from": before, "to": count, **bounds},
        )
    if leaving:
        delete_vms(connection, vms.c.id.in_(leaving), now=now, actor=actor)
    else:
        recompute_states(connection, [request.id], now=now, actor=actor, reason="resized")


def add_vms(
    connection: Connection,
    request: Request | Row[Any],
    owner: UUID,
    count: int,
    *,
    now: datetime,
    borrowed: bool = False,
) -> list[UUID]:
    """Add VMs to a request, each with a MAC address on the request's network; return their ids.

    Numbers continue after the highest ever used. Numbers whose names other VMs or requests of the
    tenant have are skipped.
    """
    names = connection.scalars(select(vms.c.name).where(vms.c.request_id == request.id))
    first = 1 + max((int(name.rpartition("-")[2]) for name in names), default=0)
    numbers = free_numbers(connection, owner, request.name, first, count)
    network_id = connection.scalar(
        select(request_networks.c.network_id).where(request_networks.c.request_id == request.id)
    )
    rows = vm_rows(request, owner, numbers, now=now, borrowed=borrowed)
    connection.execute(insert(vms), execute_parameters(rows))
    keys = [row["id"] for row in rows]
    if borrowed:
        begin_to_borrow(connection, keys, now)
    create_interfaces(connection, keys, network_id)
    return keys


def _set_borrowed(
    connection: Connection, keys: Collection[UUID], now: datetime, *, borrowed: bool
) -> None:
    """Mark VMs as borrowed, or as ordinary ones, whose ends the next sweep withdraws."""
    (begin_to_borrow if borrowed else end_to_borrow)(connection, keys, now)
    for some in chunks(sorted(keys)):
        these = is_any_of(connection, vms.c.id, some)
        connection.execute(update(vms).where(these).values(borrowed=borrowed))


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
