"""/v1/vm-groups: which VMs stay apart or together."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Security

from controller.rest.dependencies import RegistryDep, ViewerDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.redaction import redact_page, redact_vm_group
from controller.rest.schemas.requests import VmGroupsQuery
from controller.rest.schemas.values import PageOf
from registry.db import Page
from registry.requests import VmGroup

router = APIRouter(
    prefix="/vm-groups",
    tags=["vm-groups"],
    dependencies=[Security(bearer)],
    route_class=BoundedRoute,
)


@router.get("", response_model=PageOf[VmGroup], responses=problem_responses(403))
def list_vm_groups(
    query: Annotated[VmGroupsQuery, Query()],
    caller: AnyCaller,
    reader: ViewerDep,
    registry: RegistryDep,
) -> Page[VmGroup]:
    """List VM groups that requests name in rules, oldest first."""
    page = registry.vm_groups.list(
        tenant=caller.tenant_to_list(query.tenant, registry), limit=query.limit, cursor=query.cursor
    )
    return redact_page(page, redact_vm_group, reader)
