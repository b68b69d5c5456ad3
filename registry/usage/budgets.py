"""Budgets: what a tenant, or a group with all below it, may use in each month.

A budget that has ended takes nothing that runs: VMs that never had a place wait until the month
ends or the budget is raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, delete, insert, select, tuple_, update

from registry.audit.events import record_event
from registry.catalogue.resources import VMS, resource_names
from registry.db.clock import db_now, earlier_time
from registry.db.engine import Repository, retry_on_rollback
from registry.db.exact_decimal import plain_decimal
from registry.db.locks import lock_tenants, take_advisory_lock
from registry.db.names import check_int
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, decode_cursor, page_of
from registry.db.schema import budgets, tenants
from registry.errors import ConflictError, InvalidError, UnknownNameError
from registry.records.budgets import Budget, BudgetUse
from registry.tenancy.tree import read_path, tenant_id
from registry.usage.budget_amounts import COST
from registry.usage.budget_use import budget_use_of, read_budgets, read_uses, store_use
from registry.usage.prices import read_currency

MAX_AMOUNT: Final = Decimal(1_000_000_000_000)
#: Decimal places of budgets of unit hours; costs have those of the currency.
_MAX_PLACES: Final = 6
#: Percent of its amount at which a budget is near its end, if nobody says otherwise.
WARN_AT: Final = 80
_BUDGETS: Final = "budgets"  #: the key under which `take_advisory_lock` serializes changes
_MEASURER: Final = "control"


class Budgets(Repository):
    """Sets and shows budgets, and measures their use."""

    def get(self, tenant: str) -> Budget:
        """Return the budgets of a tenant or group and of the groups above it, with their use."""
        with self._database.read() as connection:
            return _get_budget(connection, tenant)

    def list(self, *, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> Page[BudgetUse]:
        """Return a page of budgets with their use, by their owners' names and then resources."""
        after = []
        if cursor is not None:
            after = [tuple_(tenants.c.name, budgets.c.resource) > decode_cursor(cursor, str, str)]
        with self._database.read() as connection:
            rows = read_budgets(connection, *after, limit=check_limit(limit) + 1)
        found = [budget_use_of(row) for row in rows]
        return page_of(found, limit, lambda each: (each.tenant, each.resource))

    @retry_on_rollback
    def set(
        self,
        tenant: str,
        limits: Mapping[str, Decimal | None],
        *,
        warn_at: int | None = None,
        actor: str,
    ) -> Budget:
        """Set budgets of a tenant or group for each month; None removes one, others stay.

        A budget counts all that is used since the begin of the month, also before it was set.

        Parameters
        ----------
        limits : Mapping
            By resource the unit hours, for ``vms`` of VMs, and for ``cost`` the costs.
        warn_at : int, optional
            Percent of the amounts at which all budgets of this owner are near their end.

        Raises
        ------
        InvalidError
            If a resource is not known, or an amount is out of bounds.
        ConflictError
            If a budget is of costs, and the site has no currency.
        """
        if warn_at is not None:
            check_int("warn_at", warn_at, 1, 100)
        with self._database.write() as connection:
            key = tenant_id(connection, tenant)
            lock_tenants(connection, key)
            take_advisory_lock(connection, _BUDGETS)
            amounts = _check_limits(connection, limits)
            mine = budgets.c.tenant_id == key
            before = {row.resource: row for row in read_budgets(connection, mine)}
            changed = {
                resource: amount
                for resource, amount in amounts.items()
                if amount != (before[resource].amount if resource in before else None)
            }
            rule = warn_at or next((row.warn_at for row in before.values()), WARN_AT)
            if changed or any(row.warn_at != rule for row in before.values()):
                _write_limits(connection, key, changed, rule)
                now = db_now(connection)
                data: dict[str, Any] = {
                    "before": {
                        name: format(before[name].amount, "f") if name in before else None
                        for name in changed
                    },
                    "limits": {
                        name: None if amount is None else format(amount, "f")
                        for name, amount in changed.items()
                    },
                    "warn_at": rule,
                }
                record_event(
                    connection, now, actor, "budget_set", "tenant", tenant, tenant=tenant, data=data
                )
                rows = read_budgets(connection, mine)
                store_use(connection, rows, read_uses(connection, rows, now)(), actor=_MEASURER)
            return _get_budget(connection, tenant)

    @retry_on_rollback
    def measure(self, *, by: datetime | None = None) -> int:
        """Measure the use of all budgets in the present month; return how many there are.

        The month is that of the earlier of the database's time and ``by``. Budgets that were
        changed or measured in between are left to the next call.
        """
        with self._database.read() as connection:
            seen = read_budgets(connection)
            if not seen:
                return 0
            add_up = read_uses(connection, seen, earlier_time(db_now(connection), by))
        uses = add_up()
        with self._database.write() as connection:
            take_advisory_lock(connection, _BUDGETS)
            measured = set(seen)
            present = [row for row in read_budgets(connection) if row in measured]
            store_use(connection, present, uses, actor=_MEASURER)
        return len(seen)


def _get_budget(connection: Connection, tenant: str) -> Budget:
    path = read_path(connection, tenant_id(connection, tenant))
    rows = read_budgets(connection, budgets.c.tenant_id.in_(path))
    currency = read_currency(connection)
    return Budget(
        tenant=tenant,
        currency=None if currency is None else currency.name,
        limits=tuple(budget_use_of(row) for key in path for row in rows if row.tenant_id == key),
    )


def _check_limits(
    connection: Connection, limits: Mapping[str, Decimal | None]
) -> dict[str, Decimal | None]:
    """Return budgets without needless zeros; raise if one is not possible."""
    known = (COST, *resource_names(connection), VMS)
    currency = read_currency(connection)
    found: dict[str, Decimal | None] = {}
    for resource, amount in limits.items():
        field = f"limits.{resource}"
        if resource not in known:
            raise UnknownNameError(field, "resource", resource, known=known)
        places = _MAX_PLACES
        if resource == COST and amount is not None:
            if currency is None:
                raise ConflictError("the site has no currency: fuga price currency EUR")
            places = currency.minor_digits
        found[resource] = None if amount is None else _check_amount(field, amount, places)
    return found


def _check_amount(field: str, amount: Decimal, places: int) -> Decimal:
    allowed = f"a number from 0 to {MAX_AMOUNT}, with at most {places} decimal places"
    if not amount.is_finite() or not 0 <= amount <= MAX_AMOUNT:
        raise InvalidError(field, amount, allowed)
    amount = plain_decimal(amount)
    exponent = amount.as_tuple().exponent
    if not isinstance(exponent, int) or -exponent > places:
        raise InvalidError(field, amount, allowed)
    return abs(amount)


def _write_limits(
    connection: Connection, key: UUID, limits: Mapping[str, Decimal | None], warn_at: int
) -> None:
    """Write budgets of a tenant or group; None removes one."""
    mine = budgets.c.tenant_id == key
    known = set(connection.scalars(select(budgets.c.resource).where(mine)))
    gone = [name for name, amount in limits.items() if amount is None]
    connection.execute(delete(budgets).where(mine, budgets.c.resource.in_(gone)))
    for name, amount in limits.items():
        of_it = (mine, budgets.c.resource == name)
        if amount is None:
            continue
        if name in known:
            connection.execute(update(budgets).where(*of_it).values(amount=amount))
            continue
        values = {"tenant_id": key, "resource": name, "amount": amount}
        connection.execute(insert(budgets).values(**values, warn_at=warn_at))
    connection.execute(update(budgets).where(mine).values(warn_at=warn_at))
