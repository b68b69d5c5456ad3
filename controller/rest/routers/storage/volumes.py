"""/v1/volumes: disks of tenants that outlive their VMs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Body, Query, Security
from pydantic import BaseModel, TypeAdapter
from starlette.responses import Response

from controller.host_aliases import Viewer
from controller.rest.dependencies import RegistryDep, ViewerDep
from controller.rest.etags import ETagDep
from controller.rest.idempotency_keys import Creation, IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Caller, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.redaction import redact_page, redact_volume
from controller.rest.schemas.values import PageOf
from controller.rest.schemas.volumes import (
    Volume,
    VolumeAttachInput,
    VolumeChange,
    VolumeDetachInput,
    VolumeInput,
    VolumesQuery,
)
from registry import NotFoundError, Registry, UnknownNameError
from registry.db import Page
from registry.volumes import Volume as StoredVolume

router = APIRouter(
    prefix="/volumes", tags=["volumes"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_STORED: Final = TypeAdapter(StoredVolume)
_SHOWN: Final = TypeAdapter(Volume)


@router.post("", status_code=201, response_model=Volume, responses=problem_responses(403, 409))
def create_volume(
    body: VolumeInput, caller: AnyCaller, reader: ViewerDep, creation: IdempotencyDep
) -> Response:
    """Create a volume. Its first attachment makes its file, on the host of that VM."""
    tenant = caller.owning_tenant(body.tenant, "create volumes")

    def create(registry: Registry) -> StoredVolume:
        try:
            return registry.volumes.create(
                body.name, tenant=tenant, size_gib=body.size_gib, actor=caller.actor
            )
        except NotFoundError as error:
            raise UnknownNameError("tenant", "tenant", tenant) from error

    return _answer(creation, body, create, reader, status=201)


@router.get("", response_model=PageOf[Volume], responses=problem_responses(403))
def list_volumes(
    query: Annotated[VolumesQuery, Query()],
    caller: AnyCaller,
    reader: ViewerDep,
    registry: RegistryDep,
) -> Page[Volume]:
    """List volumes, oldest first; removed ones only by their state."""
    page = registry.volumes.list(
        tenant=caller.tenant_to_list(query.tenant, registry),
        name=query.name,
        search=query.search,
        vm_id=query.vm,
        host=None if query.host is None else reader.resolve_name("host", query.host),
        state=query.state,
        limit=query.limit,
        cursor=query.cursor,
    )
    return redact_page(page, redact_volume, reader)


@router.get("/{id}", response_model=Volume, responses=problem_responses(404))
def show_volume(
    id: UUID,  # noqa: A002
    caller: AnyCaller,
    reader: ViewerDep,
    registry: RegistryDep,
    shown: ETagDep,
) -> Volume:
    """Show a volume, also a removed one."""
    _check_owner(registry, id, caller)
    return redact_volume(shown(registry.volumes.get(id)), reader)


@router.patch("/{id}", response_model=Volume, responses=problem_responses(404, 409))
def change_volume(
    id: UUID,  # noqa: A002
    body: VolumeChange,
    caller: AnyCaller,
    reader: ViewerDep,
    registry: RegistryDep,
) -> Volume:
    """Protect a volume from removal, or take that back."""
    _check_owner(registry, id, caller)
    changed = registry.volumes.change(id, protected=body.protected, actor=caller.actor)
    return redact_volume(changed, reader)


@router.delete(
    "/{id}", status_code=202, response_model=Volume, responses=problem_responses(404, 409)
)
def remove_volume(id: UUID, caller: AnyCaller, reader: ViewerDep, registry: RegistryDep) -> Volume:  # noqa: A002
    """Remove a volume that no VM has and that is not protected, and what is on it."""
    _check_owner(registry, id, caller)
    return redact_volume(registry.volumes.remove(id, actor=caller.actor), reader)


@router.post(
    "/{id}/attach", status_code=202, response_model=Volume, responses=problem_responses(404, 409)
)
def attach_volume(
    id: UUID,  # noqa: A002
    body: VolumeAttachInput,
    caller: AnyCaller,
    reader: ViewerDep,
    creation: IdempotencyDep,
) -> Response:
    """Attach a volume to a VM of its tenant, which runs or is off."""
    _check_owner(creation.registry, id, caller)

    def attach(registry: Registry) -> StoredVolume:
        try:
            return registry.volumes.attach(id, body.vm, actor=caller.actor)
        except NotFoundError as error:
            if error.kind != "VM":
                raise
            hint = "`fuga vms` lists those of the volume's tenant"
            raise UnknownNameError("vm", "VM", body.vm, hint=hint) from error

    return _answer(creation, body, attach, reader, status=202)


@router.post(
    "/{id}/detach", status_code=202, response_model=Volume, responses=problem_responses(404, 409)
)
def detach_volume(
    id: UUID,  # noqa: A002
    body: Annotated[VolumeDetachInput, Body(default_factory=VolumeDetachInput)],
    caller: AnyCaller,
    reader: ViewerDep,
    creation: IdempotencyDep,
) -> Response:
    """Detach a volume from its VM. A guest that does not release the disk in a minute keeps it."""
    _check_owner(creation.registry, id, caller)

    def detach(registry: Registry) -> StoredVolume:
        return registry.volumes.detach(id, actor=caller.actor)

    return _answer(creation, body, detach, reader, status=202)


def _answer(
    creation: Creation,
    body: BaseModel,
    call: Callable[[Registry], StoredVolume],
    reader: Viewer,
    *,
    status: int,
) -> Response:
    """Return the answer of a POST that creates or changes a volume."""
    return creation.answer(
        body,
        call,
        status=status,
        adapter=_STORED,
        shown=lambda volume: _SHOWN.dump_json(redact_volume(volume, reader)),
    )


def _check_owner(registry: Registry, key: UUID, caller: Caller) -> None:
    """Raise `NotFoundError` unless the caller may see a volume; it takes as long for any id."""
    if not caller.is_operator and not caller.sees(registry.volumes.tenant_of(key)):
        raise NotFoundError("volume", key)  # the same error as the register center's
