"""/v1/differences: differences between hosts and ledger, and the answer to each."""

from __future__ import annotations

from fastapi import APIRouter, Security

from controller.rest.dependencies import RegistryDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.hosts import RepairInput
from controller.rest.schemas.values import Name, PageOf
from registry.db import Page
from registry.differences import HostDifference

router = APIRouter(tags=["hosts"], dependencies=[Security(bearer)], route_class=BoundedRoute)


@router.get(
    "/differences", response_model=PageOf[HostDifference], responses=problem_responses(403, 404)
)
def list_differences(
    caller: Operator, registry: RegistryDep, host: Name | None = None
) -> Page[HostDifference]:
    """List differences at the latest polls, with the answer to each."""
    return Page(registry.differences.list(host), None)


@router.post(
    "/hosts/{name}/repair",
    status_code=202,
    response_model=HostDifference,
    responses=problem_responses(403, 404, 409),
)
def repair_difference(
    name: Name, body: RepairInput, caller: Operator, registry: RegistryDep
) -> HostDifference:
    """Repair a difference that needs an operator's confirmation (`confirm`)."""
    return registry.differences.repair(name, body.difference, body.subject, actor=caller.actor)
