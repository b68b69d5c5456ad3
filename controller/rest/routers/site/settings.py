"""/v1/settings: the settings in force in the API that answers. For operators."""

from __future__ import annotations

from fastapi import APIRouter, Security

from controller.rest.dependencies import RegistryDep, ServicesDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.values import PageOf
from registry.admin import ProcessSettings
from registry.db import Page
from service.settings_in_force import SettingInForce

router = APIRouter(
    prefix="/settings", tags=["site"], dependencies=[Security(bearer)], route_class=BoundedRoute
)


@router.get("/processes", response_model=PageOf[ProcessSettings], responses=problem_responses(403))
def list_process_settings(caller: Operator, registry: RegistryDep) -> Page[ProcessSettings]:
    """List the settings in force in each control centre, worker and monitor that lives.

    Secrets are masked. Those of an API are what it answers itself.
    """
    return Page(registry.processes.settings(), None)


@router.get("", response_model=PageOf[SettingInForce], responses=problem_responses(403))
def list_settings(caller: Operator, services: ServicesDep) -> Page[SettingInForce]:
    """List the settings in force in the process that answers, by name. Secrets are masked."""
    return Page(services.settings, None)
