"""What is used of budgets in a month, and which have ended.

The use of a budget is the charged usage of its tenant, or of all tenants below its group, since
the begin of the month (UTC): unit hours, or the sum of the lines of `registry.usage.costs`. It is
exact at the time of its measurement, and kept with the budget: rounds read the kept state alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, select

from registry.audit.events import event_row, record_events
from registry.db.bulk import update_rows
from registry.db.schema import budgets, tenants
from registry.records.budgets import BudgetState, BudgetUse
from registry.usage.borrowed_times import BORROWED
from registry.usage.costs import line_cost
from registry.usage.daily_usage import next_month
from registry.usage.holding_times import SECOND, to_microseconds
from registry.usage.period_sums import Period
from registry.usage.prices import read_currency
from registry.usage.tenant_names import TenantNames
from registry.usage.usage import month_period, read_lines

COST: Final = "cost"  #: the name under which a budget is of costs
_HOUR: Final = 3600 * SECOND
_PLACES: Final = Decimal("0.000001")
#: Tenants and resources, or costs, with amounts: unit microseconds, or minor units.
_Amounts = Counter[tuple[UUID, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredUse:
    """What is used of a budget: unit microseconds, or minor units of the currency."""

    month: date
    at: datetime
    used: int
    next_hour: int
    unit: int  #: how many of them are one unit of the budget

    def state_of(self, amount: Decimal, warn_at: int) -> BudgetState:
        """Return the state of a budget of this amount, compared without rounding."""
        if self.used >= Fraction(amount) * self.unit:
            return "spent"
        return "near" if self.used * 100 >= Fraction(amount) * self.unit * warn_at else "open"

    def spent_at(self, amount: Decimal) -> datetime | None:
        """Return when a budget ends if nothing changes; None: it has, or not in this month."""
        left = Fraction(amount) * self.unit - self.used
        if left <= 0 or self.next_hour <= 0:
            return None
        hours = left / self.next_hour
        end = month_end(self.month)
        if hours >= Fraction((end - self.at) // timedelta(microseconds=1), _HOUR):
            return None
        return self.at + timedelta(microseconds=-int(-hours * _HOUR // 1))

    def in_units(self, number: int) -> Decimal:
        """Return an amount in units of the budget; unit hours are cut to six decimal places."""
        if self.unit != _HOUR:
            return Decimal(number) / self.unit
        return (Decimal(number) / _HOUR).quantize(_PLACES, ROUND_FLOOR)


def month_of(at: datetime) -> date:
    """Return the first day of a time's month (UTC)."""
    return at.astimezone(UTC).date().replace(day=1)


def month_end(month: date) -> datetime:
    """Return the begin of the month after the one that its first day names."""
    return datetime.combine(next_month(month), time(), UTC)


def read_budgets(
    connection: Connection, *which: ColumnElement[bool], limit: int | None = None
) -> Sequence[Row[Any]]:
    """Return the rows of budgets with the names of their owners, in order of them."""
    owner = (tenants.c.name.label("owner"), tenants.c.is_group)
    query = select(budgets, *owner).join(tenants, tenants.c.id == budgets.c.tenant_id)
    return connection.execute(
        query.where(*which).order_by(tenants.c.name, budgets.c.resource).limit(limit)
    ).all()


def measure(
    connection: Connection, rows: Iterable[Row[Any]], now: datetime
) -> Mapping[tuple[UUID, str], MeasuredUse]:
    """Return the use of budgets in the present month, by owner and resource."""
    names, month = TenantNames(connection), month_of(now)
    keys = [(row.tenant_id, row.resource) for row in rows]
    owners = {owner for owner, _ in keys}
    members = names.tenants_below(owners)
    wanted = sorted({member for of_owner in members.values() for member in of_owner})
    currency = read_currency(connection)
    minor_digits = 0 if currency is None else currency.minor_digits
    at = to_microseconds(now)

    def amounts_in(period: Period) -> _Amounts:
        amounts: _Amounts = Counter()
        if period.since == period.until or not wanted:
            return amounts
        # Beyond half of all tenants it takes less time to read all.
        some = None if 2 * len(wanted) > names.count() else wanted
        for line, _, charged in read_lines(connection, [period], keys=some).items():
            # A budget limits what borrowed VMs take, too.
            amounts[line.tenant_id, line.resource.removeprefix(BORROWED)] += charged
            if line.version is not None and line.version.price is not None:
                cost = line_cost(charged, line.version.price, minor_digits)
                amounts[line.tenant_id, COST] += cost
        return amounts

    used = amounts_in(Period(month_period(month).since, at))
    further = amounts_in(Period(at, at + _HOUR))
    return {
        (owner, resource): MeasuredUse(
            month=month,
            at=now,
            used=sum(used[member, resource] for member in members[owner]),
            next_hour=sum(further[member, resource] for member in members[owner]),
            unit=10**minor_digits if resource == COST else _HOUR,
        )
        for owner, resource in keys
    }


def store_use(
    connection: Connection,
    rows: Iterable[Row[Any]],
    uses: Mapping[tuple[UUID, str], MeasuredUse],
    *,
    actor: str,
) -> None:
    """Store what is used of budgets; record events of each whose state changes.

    Each tenant below a group has its own event of the group's budget, as it binds the tenant.
    """
    changes = []
    changed: list[tuple[Row[Any], MeasuredUse, str]] = []
    for row in rows:
        use = uses[row.tenant_id, row.resource]
        state = use.state_of(row.amount, row.warn_at)
        values = {
            "month": use.month,
            "used": use.in_units(use.used),
            "per_hour": use.in_units(use.next_hour),
            "measured_at": use.at,
            "state": state,
            "spent_at": use.spent_at(row.amount),
        }
        changes.append({"tenant_id": row.tenant_id, "resource": row.resource, **values})
        if (kind := _event_kind(row, use.month, state)) is not None:
            changed.append((row, use, kind))
    if changes:
        update_rows(connection, budgets, changes, keys=("tenant_id", "resource"))
    if changed:
        record_events(connection, list(_events(connection, changed, actor)))


def _events(
    connection: Connection, changed: Iterable[tuple[Row[Any], MeasuredUse, str]], actor: str
) -> Iterator[dict[str, Any]]:
    """Yield an event of each changed budget for its owner and for each tenant below."""
    names: TenantNames | None = None
    for row, use, kind in changed:
        data = {
            "resource": row.resource,
            "amount": format(row.amount, "f"),
            "used": format(use.in_units(use.used), "f"),
            "month": f"{use.month:%Y-%m}",
        }
        yield event_row(use.at, actor, kind, "tenant", row.owner, tenant=row.owner, data=data)
        if row.is_group:
            names = names or TenantNames(connection)
            for key in names.tenants_below([row.tenant_id])[row.tenant_id]:
                name, of_group = names.name_of(key), {**data, "group": row.owner}
                yield event_row(use.at, actor, kind, "tenant", name, tenant=name, data=of_group)


def _event_kind(row: Row[Any], month: date, state: BudgetState) -> str | None:
    """Return the kind of the event of a budget whose state was measured; None: no event."""
    if row.state == "spent" and state != "spent":
        return "budget_available"
    if state == "open" or (state == row.state and month == row.month):
        return None
    return f"budget_{state}"


def budget_use_of(row: Row[Any]) -> BudgetUse:
    """Return the record of a budget that was measured."""
    names = ("resource", "amount", "warn_at", "state", "used", "per_hour", "month")
    values = {name: getattr(row, name) for name in (*names, "measured_at", "spent_at")}
    return BudgetUse(tenant=row.owner, **values)
