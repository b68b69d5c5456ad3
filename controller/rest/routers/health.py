"""/healthz and /readyz: for whoever restarts the process, and whoever sends it traffic."""

from __future__ import annotations

from fastapi import APIRouter

from controller.rest.dependencies import GivenRegistry
from controller.rest.schemas import Alive, Ready

router = APIRouter(tags=["health"])


@router.get("/healthz")
def process_lives() -> Alive:
    """Answer as long as the process does; asks nobody."""
    return Alive()


@router.get("/readyz")
def ready_to_serve(registry: GivenRegistry) -> Ready:
    """Answer 200 when the database does too, with the tables that this version needs.

    It says which round was the last, and its age.
    """
    registry.check_schema()
    last = registry.rounds.last()
    if last is None:
        return Ready(last_round=None, last_round_age_s=None)
    age = registry.now() - last.slot_start_at
    return Ready(last_round=last.number, last_round_age_s=round(age.total_seconds(), 1))
