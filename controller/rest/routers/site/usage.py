"""/v1/usage: what VMs held over time, what it costs, and closed months."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Security
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter
from starlette.responses import Response

from controller.rest.dependencies import RegistryDep
from controller.rest.idempotency_keys import IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.problems import patterns
from controller.rest.schemas.values import (
    Input,
    MomentText,
    Name,
    PageOf,
    PageQuery,
    ReasonText,
    parse_moment_field,
)
from registry import ConflictError, Registry
from registry.db import Page
from registry.usage import ClosedEntry, Usage

router = APIRouter(
    prefix="/usage", tags=["tenants"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_ADAPTER: Final = TypeAdapter(ClosedEntry)


class UsageQuery(BaseModel):
    """Selects a period, and what is summed up."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    since: MomentText
    until: MomentText | None = Field(None, description="Now, if it is omitted or later.")
    tenant: Name | None = None
    group: Name | None = Field(None, description="All tenants below this group. For operators.")
    by: Annotated[str, Field(pattern=patterns.USAGE_GROUPING, max_length=69)] | None = Field(
        None, description="Split the sums by `tenant`, nearest `group`, `type` or `label:KEY`."
    )

    def period(self) -> dict[str, Any]:
        """Return both times; raise `InvalidError` for a date that does not exist."""
        return {name: parse_moment_field(name, getattr(self, name)) for name in ("since", "until")}


MonthText = Annotated[str, StringConstraints(pattern=patterns.MONTH, max_length=7)]


class MonthInput(Input):
    """Close a month."""

    month: MonthText


class CorrectionInput(Input):
    """Correct a closed month."""

    month: MonthText
    tenant: Name
    cost: Annotated[str, StringConstraints(pattern=patterns.COST, max_length=21)] = Field(
        description="What is added to the costs of the tenant, in the currency; may be negative."
    )
    reason: ReasonText


class EntriesQuery(PageQuery):
    """Selects a part of the entries."""

    tenant: Name | None = Field(None, description="Show the contents of its leaves alone.")


@router.get("", response_model=Usage, responses=problem_responses(403))
def show_usage(
    query: Annotated[UsageQuery, Query()], caller: AnyCaller, registry: RegistryDep
) -> Usage:
    """Show the usage of a period: amounts of resources times seconds, exact to the microsecond.

    A tenant sees its own, an operator all, or those of one tenant or group. Whole days in UTC are
    summed up at any age; other periods and labels while the assignments are not purged.
    """
    if query.group is not None and not caller.is_operator:
        raise caller.forbidden_error(
            None, f"may read only its own usage, not that of group {query.group}"
        )
    return registry.usage.read(
        **query.period(),
        tenant=caller.tenant_to_list(query.tenant, registry),
        group=query.group,
        by=query.by,
    )


@router.get("/months", response_model=PageOf[ClosedEntry], responses=problem_responses(403))
def list_closed_months(
    query: Annotated[EntriesQuery, Query()], caller: AnyCaller, registry: RegistryDep
) -> Page[ClosedEntry]:
    """List closed months and corrections, newest first, as a chain of digests.

    A tenant sees the contents of its own leaves, and the digests of the others. A page has 4
    entries at most. `fuga usage verify` verifies the chain.
    """
    return registry.closed_months.list(
        tenant=caller.tenant_to_list(query.tenant, registry), limit=query.limit, cursor=query.cursor
    )


@router.post(
    "/months", status_code=201, response_model=ClosedEntry, responses=problem_responses(403, 409)
)
def close_month(body: MonthInput, caller: Operator, creation: IdempotencyDep) -> Response:
    """Close a month (UTC): its usage and costs are stored, and stay as they are.

    It can be closed a day after its end, and after the month before it, unless it is the first.
    """
    return creation.answer(
        body,
        lambda registry: _close(registry, body.month, caller.actor),
        status=201,
        adapter=_ADAPTER,
    )


def _close(registry: Registry, month: str, actor: str) -> ClosedEntry:
    if registry.clock_steps.last_step_ahead() is not None:
        raise ConflictError("the database's clock stepped ahead within the last hour: check it")
    # The clock of this machine has to have passed the end of the month, too.
    return registry.closed_months.close(_first_day(month), by=datetime.now(UTC), actor=actor)


@router.post(
    "/corrections",
    status_code=201,
    response_model=ClosedEntry,
    responses=problem_responses(403, 409),
)
def correct_month(body: CorrectionInput, caller: Operator, creation: IdempotencyDep) -> Response:
    """Correct what a tenant had in a closed month, by an entry of its own."""
    return creation.answer(
        body,
        lambda registry: registry.closed_months.correct(
            _first_day(body.month),
            body.tenant,
            Decimal(body.cost),
            reason=body.reason,
            actor=caller.actor,
        ),
        status=201,
        adapter=_ADAPTER,
    )


def _first_day(month: str) -> date:
    return date.fromisoformat(f"{month}-01")
