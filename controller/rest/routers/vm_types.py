"""/v1/vm-types: the VM types on offer."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.rest.dependencies import RegistryDep
from controller.rest.idempotency_keys import IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.offers import VmTypeInput
from controller.rest.schemas.values import Name, PageOf, PageQuery
from registry.catalogue import VmType
from registry.db import Page

router = APIRouter(
    prefix="/vm-types", tags=["vm-types"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_ADAPTER: Final = TypeAdapter(VmType)


@router.get("", response_model=PageOf[VmType])
def list_vm_types(
    query: Annotated[PageQuery, Query()], caller: AnyCaller, registry: RegistryDep
) -> Page[VmType]:
    """List VM types."""
    return registry.vm_types.list(limit=query.limit, cursor=query.cursor)


@router.get("/{name}", response_model=VmType, responses=problem_responses(404))
def show_vm_type(name: Name, caller: AnyCaller, registry: RegistryDep) -> VmType:
    """Show a VM type."""
    return registry.vm_types.get(name)


@router.post("", status_code=201, response_model=VmType, responses=problem_responses(403, 409))
def offer_vm_type(body: VmTypeInput, caller: Operator, creation: IdempotencyDep) -> Response:
    """Add a VM type."""
    return creation.answer(
        body,
        lambda registry: registry.vm_types.add(
            body.name, body.resources, limits=body.limits, actor=caller.actor
        ),
        status=201,
        adapter=_ADAPTER,
    )
