"""/v1/resources: resources of hosts, and the overhead per VM."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.rest.dependencies import RegistryDep
from controller.rest.idempotency_keys import IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.offers import ResourceChange, ResourceInput
from controller.rest.schemas.values import Name, PageOf
from registry.catalogue import ResourceDef
from registry.db import Page

router = APIRouter(
    prefix="/resources",
    tags=["resources"],
    dependencies=[Security(bearer)],
    route_class=BoundedRoute,
)
_ADAPTER: Final = TypeAdapter(ResourceDef)


@router.get("", response_model=PageOf[ResourceDef])
def list_resources(caller: AnyCaller, registry: RegistryDep) -> Page[ResourceDef]:
    """List resources, in the order of amounts in answers."""
    return Page(registry.resources.all(), None)


@router.post("", status_code=201, response_model=ResourceDef, responses=problem_responses(403, 409))
def add_resource(body: ResourceInput, caller: Operator, creation: IdempotencyDep) -> Response:
    """Add a resource. Hosts offer none of it until an operator sets their capacity."""
    return creation.answer(
        body,
        lambda registry: registry.resources.add(body.name, body.unit, actor=caller.actor),
        status=201,
        adapter=_ADAPTER,
    )


@router.patch("/{name}", response_model=ResourceDef, responses=problem_responses(403, 404))
def change_resource(
    name: Name, body: ResourceChange, caller: Operator, registry: RegistryDep
) -> ResourceDef:
    """Set the overhead per VM. Placed VMs keep what they hold."""
    return registry.resources.set_overhead(name, body.overhead_per_vm, actor=caller.actor)
