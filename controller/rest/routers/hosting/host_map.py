"""/v1/host-map: every host at once, in columns. For operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.rest.call_batches import MAX_CALLERS, PAUSE_FACTOR, CallBatcher
from controller.rest.dependencies import ServicesDep
from controller.rest.idempotency_keys import JSON_TYPE
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import Operator, bearer
from controller.rest.pages.openapi import problem_responses
from registry import Registry
from registry.hosts import HostMap

router = APIRouter(
    prefix="/host-map", tags=["hosts"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_ADAPTER: Final = TypeAdapter(HostMap)


@router.get("", response_model=HostMap, responses=problem_responses(403))
async def show_host_map(caller: Operator, services: ServicesDep) -> Response:
    """Show all hosts in columns: the nth entry of each list belongs to the nth host.

    `labels_of` and `held_by` hold positions in `labels` and `tenants`; `held_by` has pairs of a
    tenant and the number of its VMs. Callers at the same time share an answer; those of a large
    site wait a moment longer.
    """
    return Response(await services.host_map.result(None), media_type=JSON_TYPE)


def host_map_batches(registry: Registry) -> CallBatcher[None, bytes]:
    """Return the batcher of the host map: 10,000 hosts take 0.5 s, once for simultaneous calls."""

    def render_map(callers: Sequence[None]) -> Sequence[bytes]:
        # Serialized here: validation of 10,000 hosts by FastAPI would double the work.
        return [_ADAPTER.dump_json(registry.hosts.map())] * len(callers)

    return CallBatcher(render_map, max_members=MAX_CALLERS, pause_factor=PAUSE_FACTOR)
