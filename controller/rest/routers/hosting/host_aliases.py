"""/v1/host-aliases: tenants' names for hosts. For operators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Security

from controller.host_aliases import HostAlias
from controller.rest.dependencies import ServicesDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.hosts import HostAliases, HostAliasQuery

router = APIRouter(
    prefix="/host-aliases",
    tags=["hosts"],
    dependencies=[Security(bearer)],
    route_class=BoundedRoute,
)


@router.get("", response_model=HostAliases, responses=problem_responses(403, 404))
def look_up_host(
    query: Annotated[HostAliasQuery, Query()], caller: Operator, services: ServicesDep
) -> HostAliases:
    """Translate between a host's name and a tenant's name for it."""
    tenant = services.registry.tenants.get(query.tenant).name
    found = services.host_names.look_up(tenant, query.name)
    return HostAliases(items=[HostAlias(tenant=tenant, host=h, alias=a) for h, a in found])
