"""Budgets of tenants and groups, and their use: frozen values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal

from registry.records.fields import Observed, Settable
from registry.records.usage import PlainDecimal

#: Whether less of a budget is used than warns, more, or all of it.
BudgetState = Literal["open", "near", "spent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUse:
    """The budget of each month for one resource or for costs, and its use in a month."""

    tenant: Settable[str]  #: whose budget: a tenant's own, or that of a group above it
    #: unit hours of a resource, or of VMs (`vms`); `cost`: an amount in the currency
    resource: Settable[str]
    amount: Settable[PlainDecimal]
    warn_at: Settable[int]  #: percent of the amount at which it is near its end
    state: Observed[BudgetState]
    used: Observed[PlainDecimal]  #: of unit hours: cut to six decimal places
    per_hour: Observed[PlainDecimal]  #: what the present VMs use in the next hour
    month: Observed[date]  #: the first day of the month (UTC) in which it is used
    measured_at: Observed[datetime]
    #: when it ends if nothing changes; None: not in this month, or it has ended
    spent_at: Observed[datetime | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The budgets of a tenant or group: its own and those of the groups above."""

    tenant: Settable[str]
    currency: Observed[str | None]  #: of costs; None: the site has none
    #: budgets of the tenant first, then those of the groups above it
    limits: Settable[Sequence[BudgetUse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentBudget:
    """A budget that has ended in the present month."""

    owner: str
    resource: str
    amount: PlainDecimal
    until: datetime  #: the end of the month
