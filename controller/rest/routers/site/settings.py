"""/v1/settings: the settings in force in the API that answers. For operators."""

from __future__ import annotations

from fastapi import APIRouter, Security

from controller.questions.settings_in_force import SettingInForce
from controller.rest.callers.auth import Operator, bearer
from controller.rest.callers.bodies import BoundedRoute
from controller.rest.dependencies import GivenServices
from controller.rest.pages.openapi import problems
from controller.rest.schemas.values import PageOf
from registry.ground import Page

router = APIRouter(
    prefix="/settings",
    tags=["site"],
    dependencies=[Security(bearer)],
    route_class=BoundedRoute,
)


@router.get("", response_model=PageOf[SettingInForce], responses=problems(403))
def list_settings(caller: Operator, services: GivenServices) -> Page[SettingInForce]:
    """List the settings in force in the process that answers, by name. Secrets are masked."""
    return Page(services.settings, None)
