"""/v1/tenants: the parties between whom the cluster is shared."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.rest.auth import AnyCaller, Operator, bearer
from controller.rest.dependencies import GivenRegistry
from controller.rest.idempotency import GivenCreation
from controller.rest.openapi import problems
from controller.rest.schemas import Name, PageOf, PageQuery, TenantChange, TenantInput
from registry import InvalidError, NotFoundError, Page, Tenant

router = APIRouter(prefix="/tenants", tags=["tenants"], dependencies=[Security(bearer)])
_ADAPTER: Final = TypeAdapter(Tenant)


@router.get("", response_model=PageOf[Tenant])
def list_tenants(
    query: Annotated[PageQuery, Query()], caller: AnyCaller, registry: GivenRegistry
) -> Page[Tenant]:
    """List tenants; a tenant sees only itself."""
    if caller.tenant is not None:
        return Page((registry.tenants.get(caller.tenant),), None)
    return registry.tenants.list(limit=query.limit, cursor=query.cursor)


@router.get("/{name}", response_model=Tenant, responses=problems(404))
def show_tenant(name: Name, caller: AnyCaller, registry: GivenRegistry) -> Tenant:
    """Show a tenant."""
    if not caller.sees(name):
        raise NotFoundError("tenant", name)
    return registry.tenants.get(name)


@router.post("", status_code=201, response_model=Tenant, responses=problems(403, 409))
def admit_tenant(
    body: TenantInput, caller: Operator, registry: GivenRegistry, creation: GivenCreation
) -> Response:
    """Admit a tenant."""

    def create() -> Tenant:
        try:
            return registry.tenants.add(
                body.name, weight=body.weight, parent=body.parent, actor=caller.actor
            )
        except NotFoundError as error:
            raise InvalidError("parent", body.parent, "an existing tenant, or null") from error

    return creation.answer(body, create, status=201, adapter=_ADAPTER)


@router.patch("/{name}", response_model=Tenant, responses=problems(403, 404))
def change_tenant(
    name: Name, body: TenantChange, caller: Operator, registry: GivenRegistry
) -> Tenant:
    """Change a tenant's weight, from the next round on."""
    return registry.tenants.update(name, weight=body.weight, actor=caller.actor)
