"""The states of requests, which are computed from the states of their VMs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    case,
    func,
    literal_column,
    or_,
    select,
    update,
)

from registry.audit.changes import REQUEST
from registry.audit.events import record_events
from registry.db.bulk import chunks, is_any_of, update_rows
from registry.db.schema import assignments, hosts, is_place, request_access, requests, tenants, vms
from registry.ledger.known_states import IS_UNKNOWN, RUNS
from registry.ledger.placeable import requests_lacking_places, waiting_requests
from registry.lifecycle import FINISHED, RequestEvent, RequestState, VmDesired, VmObserved

_OTHER_ASSIGNMENTS = assignments.alias("other_assignments")
_OTHERS = select(_OTHER_ASSIGNMENTS.c.id).where(_OTHER_ASSIGNMENTS.c.vm_id == vms.c.id)
_ARRIVES = _OTHERS.where(_OTHER_ASSIGNMENTS.c.state == literal_column("'arriving'")).exists()
_LEAVES = _OTHERS.where(_OTHER_ASSIGNMENTS.c.state == literal_column("'leaving'")).exists()
#: A VM whose source is gone during a move counts as placed, as it may have arrived.
_PLACED = or_(assignments.c.id.is_not(None), _ARRIVES)
_HELD = or_(_PLACED, _LEAVES)
#: A borrowed VM without a place is about to end.
_WANTED = and_(vms.c.desired != VmDesired.DELETED.value, or_(~vms.c.borrowed, _HELD))


def _count_if(condition: Any) -> Any:
    """Return the SQL count of rows that meet a condition."""
    return func.sum(case((condition, 1), else_=0))


def vm_tally_query(which: ColumnElement[bool] | None = None) -> Select[Any]:
    """Return the query that counts VMs by progress, one row per request; ``which`` filters VMs."""
    query = (
        select(
            vms.c.request_id,
            _count_if(_WANTED).label("wanted"),
            _count_if(and_(_WANTED, _PLACED)).label("placed"),
            _count_if(_HELD).label("held"),
            func.max(vms.c.generation).label("ever"),
            _count_if(
                and_(
                    vms.c.desired == VmDesired.RUNNING.value,
                    vms.c.observed == VmObserved.ABSENT.value,
                    ~vms.c.borrowed,
                    ~_PLACED,
                )
            ).label("waiting"),
        )
        .select_from(vms)
        .outerjoin(assignments, and_(assignments.c.vm_id == vms.c.id, is_place))
        .group_by(vms.c.request_id)
    )
    if which is not None:
        query = query.where(which)
    return query


def vm_counts_query(which: ColumnElement[bool]) -> Select[Any]:
    """Return the query for the VM counts that requests show; ``which`` filters VMs.

    VMs that are being deleted are counted apart from those that the request wants.
    """
    return (
        select(
            vms.c.request_id,
            _count_if(_WANTED).label("wanted"),
            _count_if(and_(_WANTED, _PLACED)).label("placed"),
            _count_if(and_(_WANTED, RUNS)).label("running"),
            _count_if(and_(_WANTED, IS_UNKNOWN)).label("unknown"),
            _count_if(and_(~_WANTED, _HELD)).label("leaving"),
            _count_if(and_(_WANTED, vms.c.borrowed, _PLACED)).label("borrowed"),
        )
        .select_from(vms)
        .outerjoin(assignments, and_(assignments.c.vm_id == vms.c.id, is_place))
        .outerjoin(hosts, hosts.c.id == assignments.c.host_id)
        .where(which)
        .group_by(vms.c.request_id)
    )


def request_event(row: Row[Any]) -> RequestEvent | None:
    """Return the event that follows from a request's VM counts; None while its last VMs end."""
    if row.wanted == 0:
        if row.held:
            return None
        return RequestEvent.ALL_GONE if row.ever else RequestEvent.CANCELLED
    if row.placed == row.wanted:
        return RequestEvent.ALL_PLACED
    return RequestEvent.PART_PLACED if row.placed else RequestEvent.NONE_PLACED


def recompute_states(
    connection: Connection,
    request_ids: Iterable[UUID],
    *,
    now: datetime,
    actor: str,
    reason: str | None = None,
    event: RequestEvent | None = None,
) -> None:
    """Update the states of requests from those of their VMs, and add an event for each change.

    ``event`` is applied to them; None means the event that follows from their VMs.

    A request without waiting VMs loses its waiting reason. If one of its VMs is lost later, its
    waiting time starts over.
    """
    found: list[_RequestTally] = []
    for some in chunks(sorted(set(request_ids))):
        states = _lock_requests(connection, some)
        found += [
            _RequestTally(
                request=states[row.request_id],
                happened=event or request_event(row),
                wanted=row.wanted,
                placed=row.placed,
                waits=row.waiting > 0,
            )
            for row in connection.execute(
                vm_tally_query(is_any_of(connection, vms.c.request_id, some))
            )
        ]
    _write_states(connection, found, now=now, actor=actor, reason=reason)


def recompute_after_placing(
    connection: Connection, placed: Mapping[UUID, int], *, now: datetime, actor: str, reason: str
) -> None:
    """Update the states of requests of which VMs were placed; see `recompute_states`.

    ``placed`` has the number of VMs. As some are placed, only the existence of waiting VMs is
    queried, and none are counted.
    """
    found: list[_RequestTally] = []
    for some in chunks(sorted(placed)):
        states = _lock_requests(connection, some)
        lacking = requests_lacking_places(connection, some)
        waiting = waiting_requests(connection, some)
        for key, request in states.items():
            partly = key in lacking
            before = placed[key] if request.state == RequestState.PENDING.value else None
            found.append(
                _RequestTally(
                    request=request,
                    happened=RequestEvent.PART_PLACED if partly else RequestEvent.ALL_PLACED,
                    wanted=request.wanted,
                    placed=before if partly else request.wanted,
                    waits=key in waiting,
                )
            )
    _write_states(connection, found, now=now, actor=actor, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RequestTally:
    """The counts and the event of a request, which is locked."""

    request: Row[Any]
    happened: RequestEvent | None
    wanted: int
    placed: int | None  #: None if they were not counted, as the state does not change
    waits: bool


def _lock_requests(connection: Connection, request_ids: Collection[UUID]) -> dict[UUID, Row[Any]]:
    """Lock requests in the order of their keys, and return their rows."""
    query: Select[Any] = (
        select(
            requests.c.id,
            requests.c.state,
            requests.c.waiting,
            requests.c.count.label("wanted"),
            tenants.c.name,
        )
        .select_from(requests)
        .join(tenants, tenants.c.id == requests.c.tenant_id)
        .where(is_any_of(connection, requests.c.id, request_ids))
        .order_by(requests.c.id)
        .with_for_update(of=requests, key_share=True)
    )
    return {row.id: row for row in connection.execute(query)}


def _write_states(
    connection: Connection,
    found: Iterable[_RequestTally],
    *,
    now: datetime,
    actor: str,
    reason: str | None,
) -> None:
    """Write the changed states of locked requests, with events; clear what no longer applies."""
    changes: list[dict[str, Any]] = []
    history: list[dict[str, Any]] = []
    settled: list[UUID] = []
    for each in found:
        request = each.request
        if not each.waits and request.waiting is not None:
            settled.append(request.id)
        if each.happened is None or request.state in FINISHED:
            continue
        step = REQUEST.step(request.state, each.happened)
        if not step.moved:
            continue
        changes.append({"id": request.id, "state": step.after.value, "updated_at": now})
        data = {"wanted": each.wanted, "placed": each.placed}
        history.append(
            step.row(now, actor, request.id, tenant=request.name, reason=reason, data=data)
        )
    for some in chunks(settled):
        connection.execute(
            update(requests)
            .where(is_any_of(connection, requests.c.id, some))
            .values(waiting=None, rounds_waited=0)
        )
    if changes:
        update_rows(connection, requests, changes)
        record_events(connection, history)
        delete_user_data(connection, (each["id"] for each in changes if each["state"] in FINISHED))


def delete_user_data(connection: Connection, request_ids: Iterable[UUID]) -> None:
    """Delete the user-data of finished requests; its size and hash stay."""
    for some in chunks(sorted(request_ids)):
        connection.execute(
            update(request_access)
            .where(request_access.c.request_id.in_(some))
            .values(user_data=None)
        )
