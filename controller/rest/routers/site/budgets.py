"""/v1/budgets and /v1/tenants/{name}/budget: what may be used in each month."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Query, Security
from pydantic import Field, StringConstraints

from controller.rest.dependencies import RegistryDep
from controller.rest.etags import ETagDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.problems import patterns
from controller.rest.schemas.values import Input, Name, PageOf, PageQuery
from registry import NotFoundError
from registry.db import Page
from registry.usage import Budget, BudgetUse

router = APIRouter(tags=["tenants"], dependencies=[Security(bearer)], route_class=BoundedRoute)

AmountText = Annotated[str, StringConstraints(pattern=patterns.BUDGET, max_length=20)]


class BudgetChange(Input):
    """Change the budgets of a tenant or group; omitted ones stay as they are."""

    limits: Annotated[dict[Name, AmountText | None], Field(max_length=64)] = Field(
        default={},
        description="Unit hours of a month by resource, `vms` for VMs; `cost`: costs of a month"
        " in the currency; null removes a budget.",
    )
    warn_at: Annotated[int, Field(ge=1, le=100)] | None = Field(
        None,
        description="Percent of its amount at which a budget is near its end; null: as before,"
        " at first 80.",
    )


@router.get("/budgets", response_model=PageOf[BudgetUse], responses=problem_responses(403))
def list_budgets(
    query: Annotated[PageQuery, Query()], caller: Operator, registry: RegistryDep
) -> Page[BudgetUse]:
    """List the budgets of all tenants and groups by name, with their use as last measured."""
    return registry.budgets.list(limit=query.limit, cursor=query.cursor)


@router.get("/tenants/{name}/budget", response_model=Budget, responses=problem_responses(404))
def show_budget(name: Name, caller: AnyCaller, registry: RegistryDep, shown: ETagDep) -> Budget:
    """Show the budgets of a tenant or group and of the groups above it, with their use.

    The use of the present month (UTC) is measured each minute, and when a budget is set.
    """
    if not caller.sees(name):
        raise NotFoundError("tenant", name)
    return shown(registry.budgets.get(name))


@router.patch(
    "/tenants/{name}/budget", response_model=Budget, responses=problem_responses(403, 404, 409)
)
def change_budget(
    name: Name, body: BudgetChange, caller: Operator, registry: RegistryDep
) -> Budget:
    """Set or remove budgets. When one ends, new VMs wait for the next month; none is ended."""
    limits = {
        resource: None if amount is None else Decimal(amount)
        for resource, amount in body.limits.items()
    }
    return registry.budgets.set(name, limits, warn_at=body.warn_at, actor=caller.actor)
