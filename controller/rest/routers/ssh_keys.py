"""/v1/ssh-keys: public keys that open a tenant's VMs."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.rest.dependencies import RegistryDep
from controller.rest.idempotency_keys import IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.tenants import SshKeyInput, SshKeysQuery
from controller.rest.schemas.values import PageOf
from registry import NotFoundError, Registry, UnknownNameError
from registry.db import Page
from registry.tenancy import SshKey

router = APIRouter(
    prefix="/ssh-keys", tags=["ssh-keys"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_ADAPTER: Final = TypeAdapter(SshKey)


@router.post("", status_code=201, response_model=SshKey, responses=problem_responses(403, 409))
def add_ssh_key(body: SshKeyInput, caller: AnyCaller, creation: IdempotencyDep) -> Response:
    """Add a public key to every VM that is created for the tenant from now on."""
    tenant = caller.owning_tenant(body.tenant, "add keys")

    def create(registry: Registry) -> SshKey:
        try:
            return registry.ssh_keys.add(
                body.name, body.public_key, tenant=tenant, actor=caller.actor
            )
        except NotFoundError as error:
            raise UnknownNameError("tenant", "tenant", tenant) from error

    return creation.answer(body, create, status=201, adapter=_ADAPTER)


@router.get("", response_model=PageOf[SshKey], responses=problem_responses(403))
def list_ssh_keys(
    query: Annotated[SshKeysQuery, Query()], caller: AnyCaller, registry: RegistryDep
) -> Page[SshKey]:
    """List public keys, oldest first."""
    return registry.ssh_keys.list(
        tenant=caller.tenant_to_list(query.tenant, registry), limit=query.limit, cursor=query.cursor
    )


@router.delete("/{key_id}", response_model=SshKey, responses=problem_responses(404))
def remove_ssh_key(key_id: UUID, caller: AnyCaller, registry: RegistryDep) -> SshKey:
    """Remove a public key. Existing VMs keep it."""
    if not caller.sees(registry.ssh_keys.get(key_id).tenant):
        raise NotFoundError("SSH key", key_id)
    return registry.ssh_keys.remove(key_id, actor=caller.actor)
