"""A request's state follows from its VMs: one function looks and writes what it finds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, case, func, select, update

from registry.bulk import among, chunks, update_rows
from registry.events import event_row, record
from registry.guest_access import forget_user_data
from registry.lifecycle import (
    FINISHED,
    REQUEST_TRANSITIONS,
    RequestEvent,
    RequestState,
    VmDesired,
    VmObserved,
    next_state,
)
from registry.schema import assignments, requests, tenants, unreleased, vms

_WANTED = vms.c.desired != VmDesired.DELETED.value
_HELD = assignments.c.id.is_not(None)


def _count(condition: Any) -> Any:
    return func.sum(case((condition, 1), else_=0))


def tally(which: ColumnElement[bool] | None = None) -> Select[Any]:
    """Return a query: what became of the VMs of requests, a row each; ``which`` VMs (all)."""
    query = (
        select(
            vms.c.request_id,
            _count(_WANTED).label("wanted"),
            _count(and_(_WANTED, _HELD)).label("placed"),
            _count(_HELD).label("held"),
            _count(vms.c.observed == VmObserved.RUNNING.value).label("running"),
            func.max(vms.c.generation).label("ever"),
            _count(
                and_(
                    vms.c.desired == VmDesired.RUNNING.value,
                    vms.c.observed == VmObserved.ABSENT.value,
                    assignments.c.id.is_(None),
                )
            ).label("waiting"),
        )
        .select_from(vms)
        .outerjoin(assignments, and_(assignments.c.vm_id == vms.c.id, unreleased))
        .group_by(vms.c.request_id)
    )
    if which is not None:
        query = query.where(which)
    return query


def request_event(row: Row[Any]) -> RequestEvent | None:
    """Return what a row of `tally` means for its request; None: it is still going."""
    if row.wanted == 0:
        if row.held:
            return None
        return RequestEvent.ALL_GONE if row.ever else RequestEvent.CANCELLED
    if row.placed == row.wanted:
        return RequestEvent.ALL_PLACED
    return RequestEvent.PART_PLACED if row.placed else RequestEvent.NONE_PLACED


def recompute(
    connection: Connection,
    request_ids: Iterable[UUID],
    *,
    now: datetime,
    actor: str,
    reason: str | None = None,
    event: RequestEvent | None = None,
) -> None:
    """Bring the states of these requests up to date, with an event for each change.

    ``event`` is what happens to them; None: what a look at their VMs finds.

    A request of which nothing waits any more loses its reason for waiting, and
    begins anew to wait should one of its VMs be lost.
    """
    wanted = sorted(set(request_ids))
    changes: list[dict[str, Any]] = []
    history: list[dict[str, Any]] = []
    settled: list[UUID] = []
    for some in chunks(wanted):
        states = {
            row.id: row
            for row in connection.execute(
                select(requests.c.id, requests.c.state, requests.c.waiting, tenants.c.name)
                .select_from(requests)
                .join(tenants, tenants.c.id == requests.c.tenant_id)
                .where(among(connection, requests.c.id, some))
                .order_by(requests.c.id)
                .with_for_update(of=requests, key_share=True)
            )
        }
        for row in connection.execute(tally(among(connection, vms.c.request_id, some))):
            found = states[row.request_id]
            if not row.waiting and found.waiting is not None:
                settled.append(row.request_id)
            happened = event or request_event(row)
            before = RequestState(found.state)
            if happened is None or before in FINISHED:
                continue
            after = next_state(REQUEST_TRANSITIONS, before, happened)
            if after == before:
                continue
            changes.append({"id": row.request_id, "state": after.value, "updated_at": now})
            history.append(
                event_row(
                    now,
                    actor,
                    "request_state",
                    "request",
                    row.request_id,
                    tenant=found.name,
                    change=(before, after),
                    event=happened,
                    reason=reason,
                    data={"wanted": row.wanted, "placed": row.placed},
                )
            )
    for some in chunks(settled):
        connection.execute(
            update(requests)
            .where(among(connection, requests.c.id, some))
            .values(waiting=None, rounds_waited=0)
        )
    if changes:
        update_rows(connection, requests, changes)
        record(connection, history)
        forget_user_data(connection, (each["id"] for each in changes if each["state"] in FINISHED))
