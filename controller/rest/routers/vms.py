"""/v1/vms: the VMs of requests."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Security

from controller.queries.explanations import VmExplanation
from controller.queries.vm_explanation import explain_vm
from controller.rest.dependencies import RegistryDep, ServicesDep, ViewerDep
from controller.rest.etags import ETagDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Caller, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.redaction import redact_page, redact_vm
from controller.rest.schemas.requests import VmChange, VmsQuery
from controller.rest.schemas.values import PageOf, parse_moment_field
from registry import NotFoundError, Registry
from registry.db import Page
from registry.requests import Vm

router = APIRouter(
    prefix="/vms", tags=["vms"], dependencies=[Security(bearer)], route_class=BoundedRoute
)


@router.get("", response_model=PageOf[Vm], responses=problem_responses(403))
def list_vms(
    query: Annotated[VmsQuery, Query()], caller: AnyCaller, reader: ViewerDep, registry: RegistryDep
) -> Page[Vm]:
    """List VMs, oldest first."""
    page = registry.vms.list(
        tenant=caller.tenant_to_list(query.tenant, registry),
        request_id=query.request,
        host=None if query.host is None else reader.resolve_name("host", query.host),
        name=query.name,
        search=query.search,
        state=query.state,
        address=query.address,
        mac=query.mac,
        labels=query.label,
        include_deleted=query.include_deleted,
        deleted_since=parse_moment_field("deleted_since", query.deleted_since),
        limit=query.limit,
        cursor=query.cursor,
    )
    return redact_page(page, redact_vm, reader)


@router.get("/{vm_id}", response_model=Vm, responses=problem_responses(404))
def show_vm(
    vm_id: UUID, caller: AnyCaller, reader: ViewerDep, registry: RegistryDep, shown: ETagDep
) -> Vm:
    """Show a VM."""
    return redact_vm(shown(own_vm(registry, vm_id, caller)), reader)


@router.patch("/{vm_id}", response_model=Vm, responses=problem_responses(404))
def change_vm(
    vm_id: UUID, body: VmChange, caller: AnyCaller, reader: ViewerDep, registry: RegistryDep
) -> Vm:
    """Change labels of a VM."""
    own_vm(registry, vm_id, caller)
    return redact_vm(registry.vms.change_labels(vm_id, body.labels), reader)


@router.delete("/{vm_id}", status_code=202, response_model=Vm, responses=problem_responses(404))
def delete_vm(vm_id: UUID, caller: AnyCaller, reader: ViewerDep, registry: RegistryDep) -> Vm:
    """Delete a VM; the `count` of its request falls by one."""
    own_vm(registry, vm_id, caller)
    return redact_vm(registry.vms.delete(vm_id, actor=caller.actor), reader)


@router.get("/{vm_id}/explanation", response_model=VmExplanation, responses=problem_responses(404))
def explain_a_vm(
    vm_id: UUID, caller: AnyCaller, reader: ViewerDep, services: ServicesDep
) -> VmExplanation:
    """Explain why a VM is on its host; operators also see the host's combinations."""
    own_vm(services.registry, vm_id, caller)
    return explain_vm(services.registry, vm_id, reader, on_failure=services.on_failure)


def own_vm(registry: Registry, vm_id: UUID, caller: Caller) -> Vm:
    """Return a VM that the caller may see, else raise `NotFoundError`.

    The caller is checked before the VM is read, so refusing another tenant's VM takes no longer
    than refusing an unknown one.
    """
    if not caller.is_operator and not caller.sees(registry.vms.tenant_of(vm_id)):
        raise NotFoundError("VM", vm_id)  # the same error as the register center's
    return registry.vms.get(vm_id)
