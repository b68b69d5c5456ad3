"""/v1/audit: who changed what, and who tried to. For operators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Security

from controller.rest.dependencies import RegistryDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.operations import AuditQuery
from controller.rest.schemas.values import PageOf
from registry.audit import AuditEntry
from registry.db import Page

router = APIRouter(
    prefix="/audit", tags=["audit"], dependencies=[Security(bearer)], route_class=BoundedRoute
)


@router.get("", response_model=PageOf[AuditEntry], responses=problem_responses(403))
def list_audit(
    query: Annotated[AuditQuery, Query()], caller: Operator, registry: RegistryDep
) -> Page[AuditEntry]:
    """List calls that could change something, newest first, including refused ones.

    A call without a `status` got no answer because the process died.
    """
    return registry.audit.list(**query.model_dump() | query.moments())
