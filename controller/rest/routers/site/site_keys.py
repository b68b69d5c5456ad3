"""/v1/site-keys: the public keys that sign rounds, for callers without a token."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from controller.rest.call_batches import CallBatcher
from controller.rest.dependencies import ServicesDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.schemas.operations import SiteKeys
from registry import Registry

_MAX_PER_READ: Final = 1000

router = APIRouter(prefix="/site-keys", tags=["rounds"], route_class=BoundedRoute)


@router.get("")
async def list_site_keys(services: ServicesDep) -> SiteKeys:
    """List the public keys that sign rounds, the oldest first. Needs no token.

    A key signs the rounds from its first to its last one. Its endorsement is the signature by which
    the key before it names it.
    """
    return await services.site_keys.result(None)


def site_key_batches(registry: Registry) -> CallBatcher[None, SiteKeys]:
    """Return the batcher of the keys: simultaneous calls share one read of the database."""
    return CallBatcher(
        lambda askers: [SiteKeys(keys=list(registry.site_keys.list()))] * len(askers),
        max_members=_MAX_PER_READ,
    )
