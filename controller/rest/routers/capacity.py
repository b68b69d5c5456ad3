"""/v1/capacity: how many more VMs of a type fit now."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Security

from controller.capacity import Capacity, capacity_left
from controller.rest.auth import AnyCaller, bearer
from controller.rest.dependencies import GivenRegistry
from controller.rest.openapi import problems
from controller.rest.schemas import CapacityQuery

router = APIRouter(prefix="/capacity", tags=["requests"], dependencies=[Security(bearer)])


@router.get("", response_model=Capacity, responses=problems(403, 404))
def show_capacity(
    query: Annotated[CapacityQuery, Query()], caller: AnyCaller, registry: GivenRegistry
) -> Capacity:
    """Tell how many more VMs of a type fit, on which classes of hosts, and what ends first."""
    rules = query.as_rules()
    view = registry.requests.capacity_view(
        query.vm_type, tenant=caller.tenant_to_list(query.tenant), rules=rules
    )
    return capacity_left(
        view, query.vm_type, requires=query.requires, named=query.hosts or None, rules=rules
    )
