"""/v1/usage: what VMs held over time."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Security
from pydantic import BaseModel, ConfigDict, Field

from controller.rest.dependencies import RegistryDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.problems import patterns
from controller.rest.schemas.values import MomentText, Name, parse_moment_field
from registry.usage import Usage

router = APIRouter(
    prefix="/usage", tags=["tenants"], dependencies=[Security(bearer)], route_class=BoundedRoute
)


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
