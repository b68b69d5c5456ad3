"""/v1/tenants: tenants that share the cluster, and groups of tenants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

from fastapi import APIRouter, Query, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.queries.tenant_shares import share_effects
from controller.rest.dependencies import RegistryDep, ServicesDep
from controller.rest.etags import ETagDep
from controller.rest.idempotency_keys import JSON_TYPE, IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.tenants import Effects, Rehearsal, TenantChange, TenantInput
from controller.rest.schemas.values import Name, PageOf, SearchQuery
from registry import NotFoundError, Registry, UnknownNameError
from registry.db import Page
from registry.tenancy import Tenant

router = APIRouter(
    prefix="/tenants", tags=["tenants"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_ADAPTER: Final = TypeAdapter(Tenant)


@router.get("", response_model=PageOf[Tenant])
def list_tenants(
    query: Annotated[SearchQuery, Query()], caller: AnyCaller, registry: RegistryDep
) -> Page[Tenant]:
    """List tenants; a tenant sees only itself."""
    if caller.tenant is not None:
        return Page((registry.tenants.get(caller.tenant),), None)
    return registry.tenants.list(search=query.search, limit=query.limit, cursor=query.cursor)


@router.get("/{name}", response_model=Tenant, responses=problem_responses(404))
def show_tenant(name: Name, caller: AnyCaller, registry: RegistryDep, shown: ETagDep) -> Tenant:
    """Show a tenant."""
    if not caller.sees(name):
        raise NotFoundError("tenant", name)
    return shown(registry.tenants.get(name))


@router.post(
    "",
    status_code=201,
    response_model=Tenant,
    responses={200: {"model": Effects}, **problem_responses(403, 409)},
)
def admit_tenant(
    body: TenantInput,
    query: Annotated[Rehearsal, Query()],
    caller: Operator,
    services: ServicesDep,
    creation: IdempotencyDep,
) -> Response:
    """Create a tenant or a group of tenants. With `dry_run`, show only the effect.

    A tenant begins with the site's default quota, if it has one.
    """
    default_quota = services.default_quota
    values = body.model_dump() | {"actor": caller.actor, "default_quota": default_quota}
    if query.dry_run:
        with _unknown_group_in_body():
            before, after = services.registry.cluster_queries.preview_add(**values)
        content = Effects(tenants=list(share_effects(before, after))).model_dump_json()
        return Response(content, media_type=JSON_TYPE)

    def create(registry: Registry) -> Tenant:
        with _unknown_group_in_body():
            return registry.tenants.add(**values)

    return creation.answer(body, create, status=201, adapter=_ADAPTER)


@router.patch(
    "/{name}", response_model=Tenant | Effects, responses=problem_responses(403, 404, 409)
)
def change_tenant(
    name: Name,
    body: TenantChange,
    query: Annotated[Rehearsal, Query()],
    caller: Operator,
    registry: RegistryDep,
) -> Tenant | Effects:
    """Change the weight or the parent group, from the next round on.

    With `dry_run` nothing changes; the answer shows the effect on shares.
    """
    registry.tenants.get(name)  # what is not there is 404, whatever the body names
    weight, move, actor = body.weight, body.move, caller.actor
    with _unknown_group_in_body():
        if not query.dry_run:
            return registry.tenants.update(name, weight=weight, move=move, actor=actor)
        before, after = registry.cluster_queries.preview_update(
            name, weight=weight, move=move, actor=actor
        )
    return Effects(tenants=list(share_effects(before, after)))


@router.delete("/{name}", response_model=Tenant, responses=problem_responses(403, 404, 409))
def remove_tenant(name: Name, caller: Operator, registry: RegistryDep) -> Tenant:
    """Remove an unused tenant or group."""
    return registry.tenants.remove(name, actor=caller.actor)


@contextmanager
def _unknown_group_in_body() -> Iterator[None]:
    """Report an unknown group of tenants as an error of the body."""
    try:
        yield
    except NotFoundError as error:
        raise UnknownNameError("parent", "group of tenants", error.key) from error
