"""/v1/shares: shares of tenants and groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.queries.tenant_shares import TenantShare, tenant_shares
from controller.rest.call_batches import MAX_CALLERS, PAUSE_FACTOR, CallBatcher
from controller.rest.dependencies import ServicesDep
from controller.rest.idempotency_keys import JSON_TYPE
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, bearer
from controller.rest.redaction import redact_shares
from controller.rest.schemas.tenants import TenantShares
from registry import Registry

router = APIRouter(
    prefix="/shares", tags=["tenants"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_ADAPTER: Final = TypeAdapter(dict[str, Sequence[TenantShare]])


@router.get("", response_model=TenantShares)
async def show_shares(caller: AnyCaller, services: ServicesDep) -> Response:
    """Show shares and entitlements of all; a tenant sees only itself, in whole percent.

    Callers at the same time share an answer.
    """
    whose = None if caller.is_operator else caller.tenant
    return Response(await services.shares.result(whose), media_type=JSON_TYPE)


def shares_batches(registry: Registry) -> CallBatcher[str | None, bytes]:
    """Return the batcher of shares, computed once for simultaneous calls.

    It reads all assignments, and every open web page calls it after each change.
    """

    def render_shares(callers: Sequence[str | None]) -> Sequence[bytes]:
        found = tenant_shares(registry.cluster_queries.accounts())
        sums = {
            whose: _ADAPTER.dump_json(
                {"items": found if whose is None else redact_shares(found, whose)}
            )
            for whose in dict.fromkeys(callers)
        }
        return [sums[whose] for whose in callers]

    return CallBatcher(render_shares, max_members=MAX_CALLERS, pause_factor=PAUSE_FACTOR)
