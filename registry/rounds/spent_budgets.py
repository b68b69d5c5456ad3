"""Requests whose tenant, or a group above it, has a budget that has ended in the present month."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, func, select

from registry.db.bulk import chunks, is_any_of
from registry.db.schema import budgets, tenants, vms
from registry.records.budgets import SpentBudget
from registry.records.cluster import RequestView
from registry.records.requests import WaitingStatus
from registry.usage.budget_use import month_end
from registry.usage.tenant_names import TenantNames

#: The reason for which VMs wait.
BUDGET: Final = "budget"


def limit_by_budgets(
    connection: Connection,
    views: Sequence[RequestView],
    now: datetime,
    everywhere: Sequence[UUID],
    waits: ColumnElement[bool],
) -> Sequence[RequestView]:
    """Return requests without the VMs that wait for a budget.

    VMs that had a place, and lost it with their host, are placed all the same.
    """
    if not views or not (spent := _spent_budgets(connection, now)):
        return views
    bound = [view.id for view in views if view.tenant_id in spent]
    placed = _count_placed_before(connection, bound, waits)
    return [
        _without_new_vms(view, spent[view.tenant_id], placed.get(view.id, 0), everywhere)
        if view.tenant_id in spent
        else view
        for view in views
    ]


def _spent_budgets(connection: Connection, now: datetime) -> Mapping[UUID, Sequence[SpentBudget]]:
    """Return the budgets that have ended in the present month, by the tenants that they bind.

    A tenant is bound by its own budgets and by those of all groups above it.
    """
    month = now.astimezone(UTC).date().replace(day=1)
    rows = connection.execute(
        select(budgets, tenants.c.name.label("owner"))
        .join(tenants, tenants.c.id == budgets.c.tenant_id)
        .where(budgets.c.month == month, budgets.c.state == "spent")
        .order_by(tenants.c.name, budgets.c.resource)
    ).all()
    if not rows:
        return {}
    members = TenantNames(connection).tenants_below({row.tenant_id for row in rows})
    found: defaultdict[UUID, list[SpentBudget]] = defaultdict(list)
    for row in rows:
        spent = SpentBudget(
            owner=row.owner, resource=row.resource, amount=row.amount, until=month_end(month)
        )
        for member in members[row.tenant_id]:
            found[member].append(spent)
    return found


def _count_placed_before(
    connection: Connection, request_ids: Sequence[UUID], waits: ColumnElement[bool]
) -> Mapping[UUID, int]:
    """Return how many of the waiting VMs of requests ever had a place."""
    found: dict[UUID, int] = {}
    for some in chunks(request_ids):
        query = (
            select(vms.c.request_id, func.count())
            .where(is_any_of(connection, vms.c.request_id, some), vms.c.generation > 0, waits)
            .group_by(vms.c.request_id)
        )
        found.update((key, number) for key, number in connection.execute(query))
    return found


def _without_new_vms(
    view: RequestView, spent: Sequence[SpentBudget], placed: int, everywhere: Sequence[UUID]
) -> RequestView:
    """Return a request with its VMs that were placed before; the others wait for the budget."""
    wanted = view.count if view.short is None or view.shut_out else view.count + view.short.count
    if view.borrowed or placed == 0:
        short = _status(wanted, spent)
        return replace(view, avoid=tuple(everywhere), short=short, shut_out=True)
    count = min(view.count, placed)
    if count == wanted or view.shut_out:
        return view
    short = _status(wanted - count, spent)
    return replace(view, count=count, min_count=min(view.min_count, count), short=short)


def _status(count: int, spent: Sequence[SpentBudget]) -> WaitingStatus:
    documents = [
        {
            "tenant": each.owner,
            "resource": each.resource,
            "amount": format(each.amount, "f"),
            "until": each.until.isoformat(timespec="seconds"),
        }
        for each in spent
    ]
    return WaitingStatus(count=count, reason=BUDGET, detail={"budget": documents})
