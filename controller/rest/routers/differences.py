"""/v1/differences: where hosts are not as the ledger says, and what is done about it."""

from __future__ import annotations

from fastapi import APIRouter, Security

from controller.rest.callers.auth import Operator, bearer
from controller.rest.callers.bodies import BoundedRoute
from controller.rest.dependencies import GivenRegistry
from controller.rest.pages.openapi import problems
from controller.rest.schemas import Name, PageOf, RepairInput
from registry import HostDifference, Page

router = APIRouter(tags=["hosts"], dependencies=[Security(bearer)], route_class=BoundedRoute)


@router.get("/differences", response_model=PageOf[HostDifference], responses=problems(403, 404))
def list_differences(
    caller: Operator, registry: GivenRegistry, host: Name | None = None
) -> Page[HostDifference]:
    """List them by the latest looks at hosts, with what is done, or would be if you say so."""
    return Page(registry.differences.list(host), None)


@router.post(
    "/hosts/{name}/repair",
    status_code=202,
    response_model=HostDifference,
    responses=problems(403, 404, 409),
)
def repair_difference(
    name: Name, body: RepairInput, caller: Operator, registry: GivenRegistry
) -> HostDifference:
    """Have done about a difference what is done on an operator's word alone (`on_word`)."""
    return registry.differences.repair(name, body.difference, body.subject, actor=caller.actor)
