"""/v1/label-ratios: over-commit by label of hosts. For operators."""

from __future__ import annotations

from fastapi import APIRouter, Security

from controller.rest.dependencies import RegistryDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.hosts import LabelRatios
from controller.rest.schemas.values import PageOf
from registry.db import Page

router = APIRouter(
    prefix="/label-ratios",
    tags=["hosts"],
    dependencies=[Security(bearer)],
    route_class=BoundedRoute,
)


@router.get("", response_model=PageOf[LabelRatios], responses=problem_responses(403))
def list_label_ratios(caller: Operator, registry: RegistryDep) -> Page[LabelRatios]:
    """List labels with over-commit ratios."""
    found = registry.hosts.label_ratios().items()
    items = (LabelRatios(label=label, ratios=dict(ratios)) for label, ratios in found)
    return Page(tuple(items), None)


@router.put("", response_model=LabelRatios, responses=problem_responses(403))
def set_label_ratios(body: LabelRatios, caller: Operator, registry: RegistryDep) -> LabelRatios:
    """Set the ratios of hosts with a label. With several labels, the smallest applies."""
    ratios = registry.hosts.set_label_ratios(body.label, body.ratios, actor=caller.actor)
    return LabelRatios(label=body.label, ratios=dict(ratios))
