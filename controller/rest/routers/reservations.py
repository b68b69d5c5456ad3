"""/v1/reservations: room that a tenant will have from a time on."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.rest.dependencies import RegistryDep
from controller.rest.idempotency_keys import IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Caller, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.reservations import ReservationInput, ReservationsQuery
from controller.rest.schemas.values import PageOf
from registry import NotFoundError, Registry, UnknownNameError
from registry.db import Page
from registry.reservations import Reservation

router = APIRouter(
    prefix="/reservations",
    tags=["reservations"],
    dependencies=[Security(bearer)],
    route_class=BoundedRoute,
)
_ADAPTER: Final = TypeAdapter(Reservation)


@router.post("", status_code=202, response_model=Reservation, responses=problem_responses(403, 409))
def reserve(body: ReservationInput, caller: AnyCaller, creation: IdempotencyDep) -> Response:
    """Reserve room for VMs. The control centre accepts or refuses it within a minute."""
    tenant = caller.owning_tenant(body.tenant, "reserve")

    def create(registry: Registry) -> Reservation:
        try:
            return registry.reservations.create(
                tenant=tenant,
                vm_type=body.vm_type,
                count=body.count,
                starts_at=body.begins(registry.now()),
                for_s=body.for_s,
                name=body.name,
                requires=tuple(body.requires),
                actor=caller.actor,
            )
        except NotFoundError as error:  # of something the body names, not of this path
            raise UnknownNameError(error.kind, error.kind, error.key) from error

    return creation.answer(body, create, status=202, adapter=_ADAPTER)


@router.get("", response_model=PageOf[Reservation], responses=problem_responses(403))
def list_reservations(
    query: Annotated[ReservationsQuery, Query()], caller: AnyCaller, registry: RegistryDep
) -> Page[Reservation]:
    """List reservations, oldest first."""
    return registry.reservations.list(
        tenant=caller.tenant_to_list(query.tenant, registry),
        state=query.state,
        is_open=query.open,
        name=query.name,
        limit=query.limit,
        cursor=query.cursor,
    )


@router.get("/{id}", response_model=Reservation, responses=problem_responses(404))
def show_reservation(id: UUID, caller: AnyCaller, registry: RegistryDep) -> Reservation:  # noqa: A002
    """Show a reservation: what was decided, what is used and left of it."""
    return _own_reservation(registry, id, caller)


@router.delete(
    "/{id}", status_code=202, response_model=Reservation, responses=problem_responses(404, 409)
)
def cancel_reservation(id: UUID, caller: AnyCaller, registry: RegistryDep) -> Reservation:  # noqa: A002
    """Cancel a reservation. VMs that drew on it stay."""
    _own_reservation(registry, id, caller)
    return registry.reservations.cancel(id, actor=caller.actor)


def _own_reservation(registry: Registry, key: UUID, caller: Caller) -> Reservation:
    """Return a reservation that the caller may see; check the caller before reading it."""
    if not caller.is_operator and not caller.sees(registry.reservations.tenant_of(key)):
        raise NotFoundError("reservation", key)
    return registry.reservations.get(key)
