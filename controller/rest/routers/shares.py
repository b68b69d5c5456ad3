"""/v1/shares: shares of tenants and groups."""

from __future__ import annotations

from fastapi import APIRouter, Security

from controller.questions.standings import standings
from controller.rest.callers.auth import AnyCaller, bearer
from controller.rest.callers.bodies import BoundedRoute
from controller.rest.dependencies import GivenRegistry
from controller.rest.schemas.tenants import Standings

router = APIRouter(
    prefix="/shares",
    tags=["tenants"],
    dependencies=[Security(bearer)],
    route_class=BoundedRoute,
)


@router.get("", response_model=Standings)
def show_shares(caller: AnyCaller, registry: GivenRegistry) -> Standings:
    """Show shares and entitlements of all; a tenant sees only itself."""
    found = standings(registry.views.accounts())
    return Standings(items=[each for each in found if caller.sees(each.name)])
