"""/v1/counts: how many VMs and requests there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Query, Security
from pydantic import BaseModel, ConfigDict, TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from controller.rest.call_batches import MAX_CALLERS, PAUSE_FACTOR, CallBatcher
from controller.rest.dependencies import ServicesDep
from controller.rest.idempotency_keys import JSON_TYPE
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.values import Name
from registry import Registry
from registry.requests import Counts

router = APIRouter(
    prefix="/counts", tags=["vms"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_ADAPTER: Final = TypeAdapter(Counts)


class CountsQuery(BaseModel):
    """Selects what is counted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tenant: Name | None = None


@router.get("", response_model=Counts, responses=problem_responses(403))
async def show_counts(
    query: Annotated[CountsQuery, Query()], caller: AnyCaller, services: ServicesDep
) -> Response:
    """Show how many VMs there are, by type and observed state, and how many requests in force.

    VMs that are not `placed` wait for a place. A tenant counts its own, an operator all, or
    those of one tenant. Callers at the same time share an answer.
    """
    whose = await run_in_threadpool(caller.tenant_to_list, query.tenant, services.registry)
    return Response(await services.counts.result(whose), media_type=JSON_TYPE)


def counts_batches(registry: Registry) -> CallBatcher[str | None, bytes]:
    """Return the batcher of counts, computed once for simultaneous calls."""

    def render_counts(callers: Sequence[str | None]) -> Sequence[bytes]:
        found = {
            each: _ADAPTER.dump_json(registry.cluster_queries.counts(each))
            for each in dict.fromkeys(callers)
        }
        return [found[each] for each in callers]

    return CallBatcher(render_counts, max_members=MAX_CALLERS, pause_factor=PAUSE_FACTOR)
