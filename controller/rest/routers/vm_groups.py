"""/v1/vm-groups: which VMs keep apart, or together."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Security

from controller.rest.auth import AnyCaller, bearer
from controller.rest.dependencies import GivenRegistry
from controller.rest.openapi import problems
from controller.rest.schemas import PageOf, VmGroupsQuery
from registry import Page, VmGroup

router = APIRouter(prefix="/vm-groups", tags=["vm-groups"], dependencies=[Security(bearer)])


@router.get("", response_model=PageOf[VmGroup], responses=problems(403))
def list_vm_groups(
    query: Annotated[VmGroupsQuery, Query()], caller: AnyCaller, registry: GivenRegistry
) -> Page[VmGroup]:
    """List groups of VMs that the rules of requests name, oldest first."""
    return registry.vm_groups.list(
        tenant=caller.tenant_to_list(query.tenant), limit=query.limit, cursor=query.cursor
    )
