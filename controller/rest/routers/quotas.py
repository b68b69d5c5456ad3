"""/v1/tenants/{name}/quota: limits of a tenant or group."""

from __future__ import annotations

from fastapi import APIRouter, Security

from controller.rest.dependencies import RegistryDep
from controller.rest.etags import ETagDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.tenants import QuotaChange
from controller.rest.schemas.values import Name
from registry import NotFoundError
from registry.tenancy import Quota

router = APIRouter(
    prefix="/tenants", tags=["tenants"], dependencies=[Security(bearer)], route_class=BoundedRoute
)


@router.get("/{name}/quota", response_model=Quota, responses=problem_responses(404))
def show_quota(name: Name, caller: AnyCaller, registry: RegistryDep, shown: ETagDep) -> Quota:
    """Show the limits of a tenant or group and of the groups above it, with usage."""
    if not caller.sees(name):
        raise NotFoundError("tenant", name)
    return shown(registry.quotas.get(name))


@router.patch("/{name}/quota", response_model=Quota, responses=problem_responses(403, 404))
def change_quota(name: Name, body: QuotaChange, caller: Operator, registry: RegistryDep) -> Quota:
    """Set or remove limits. A limit below current usage stops new VMs but ends none."""
    return registry.quotas.set(name, body.limits, over_quota=body.over_quota, actor=caller.actor)
