"""What is used of budgets in a month, and which have ended.

The use of a budget is the charged usage of its tenant, or of all tenants below its group, since
the begin of the month (UTC): unit hours, or the sum of the lines of `registry.usage.costs`. It is
exact at the time of its measurement, and kept with the budget: rounds read the kept state alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from registry.usage.budget_amounts import COST, read_amounts
from registry.usage.daily_usage import next_month
from registry.usage.holding_times import SECOND, to_microseconds
from registry.usage.period_sums import Period
from registry.usage.prices import read_currency
from registry.usage.tenant_names import TenantNames
from registry.usage.usage import month_period

_HOUR: Final = 3600 * SECOND
_PLACES: Final = Decimal("0.000001")


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


#: What is used of budgets, by owner and resource.
Uses = Mapping[tuple[UUID, str], MeasuredUse]


def read_uses(
    connection: Connection, rows: Iterable[Row[Any]], now: datetime
) -> Callable[[], Uses]:
    """Read what is used of budgets in the present month; the returned function adds it up.

    Sites with many budgets end their transaction before they call it.
    """
    month = month_of(now)
    keys = [(row.tenant_id, row.resource) for row in rows]
    members = TenantNames(connection).tenants_below({owner for owner, _ in keys})
    wanted = {member for of_owner in members.values() for member in of_owner}
    currency = read_currency(connection)
    minor_digits = 0 if currency is None else currency.minor_digits
    at = to_microseconds(now)
    periods = (Period(month_period(month).since, at), Period(at, at + _HOUR))
    read = read_amounts(connection, periods, wanted, minor_digits)

    def add_up() -> Uses:
        used, next_hour = (
            {
                (owner, resource): sum(
                    amounts[member].get(resource, 0)
                    for member in members[owner]
                    if member in amounts
                )
                for owner, resource in keys
            }
            for amounts in read()
        )
        return {
            key: MeasuredUse(
                month=month,
                at=now,
                used=used[key],
                next_hour=next_hour[key],
                unit=10**minor_digits if key[1] == COST else _HOUR,
            )
            for key in keys
        }

    return add_up


def store_use(connection: Connection, rows: Iterable[Row[Any]], uses: Uses, *, actor: str) -> None:
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
