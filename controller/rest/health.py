"""/healthz and /readyz: for service managers and load balancers."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from controller.questions.lateness import what_is_late
from controller.rest.dependencies import GivenServices
from controller.rest.schemas.operating import Alive, Ready
from controller.rest.writes.gathering import Gathering
from registry import Registry

MOST_TOGETHER: Final = 1000

router = APIRouter(tags=["health"])


@router.get("/healthz")
def process_lives() -> Alive:
    """Answer while the process runs, without asking the database."""
    return Alive()


@router.get("/readyz")
async def ready_to_serve(services: GivenServices) -> Ready:
    """Answer 200 when the database does too, with the tables that this version needs.

    It says which round was the last, and its age, and what nobody does: that makes this
    process no less ready, so whoever sends it traffic goes on.
    """
    return await services.readiness.result(None)


def readiness_of(registry: Registry) -> Gathering[None, Ready]:
    """Return what reads the database once for all who ask at the same time: anybody may."""
    return Gathering(lambda askers: [_ready(registry)] * len(askers), most=MOST_TOGETHER)


def _ready(registry: Registry) -> Ready:
    registry.check_schema()
    found = registry.liveness()
    age_s = None
    if found.last_round_at is not None:
        age_s = round((found.now - found.last_round_at).total_seconds(), 1)
    return Ready(
        last_round=found.last_round,
        last_round_age_s=age_s,
        nobody=[each.what for each in what_is_late(found) if each.nobody],
    )
