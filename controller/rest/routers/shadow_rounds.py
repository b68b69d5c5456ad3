"""/v1/shadow-rounds: decisions of the second policy. For operators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Security

from controller.rest.dependencies import RegistryDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.values import MomentsQuery, PageOf
from registry.db import Page
from registry.rounds import ShadowRound

router = APIRouter(
    prefix="/shadow-rounds",
    tags=["rounds"],
    dependencies=[Security(bearer)],
    route_class=BoundedRoute,
)


@router.get("", response_model=PageOf[ShadowRound], responses=problem_responses(403))
def list_shadow_rounds(
    query: Annotated[MomentsQuery, Query()], caller: Operator, registry: RegistryDep
) -> Page[ShadowRound]:
    """List rounds that the second policy decided without effect, newest first.

    `since` and `until` apply to starts of slots. With an `error` it failed, and
    nothing else is known of it.
    """
    return registry.shadows.list(limit=query.limit, cursor=query.cursor, **query.moments())
