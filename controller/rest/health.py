"""/healthz and /readyz: for service managers and load balancers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from fastapi import APIRouter

from controller.queries.overdue_work import overdue_work
from controller.rest.call_batches import CallBatcher
from controller.rest.dependencies import ServicesDep
from controller.rest.schemas.operations import Liveness, Readiness
from registry import Registry

MAX_PER_READ: Final = 1000
FULL: Final = "the disk of the database is full: it refuses what is written"

router = APIRouter(tags=["health"])


@router.get("/healthz")
def process_lives() -> Liveness:
    """Answer while the process runs, without a query to the database."""
    return Liveness()


@router.get("/readyz")
async def ready_to_serve(services: ServicesDep) -> Readiness:
    """Answer 200 if the database answers and has the tables that this version needs.

    The answer names the last round and its age, work that no process does, and disks without room.
    These do not make this process unready, so a load balancer keeps sending calls.
    """
    return await services.readiness.result(None)


def readiness_batches(
    registry: Registry, disks: Callable[[], Sequence[str]] = tuple
) -> CallBatcher[None, Readiness]:
    """Return the batcher of readiness checks: simultaneous calls share one read of the database."""
    return CallBatcher(
        lambda askers: [_check_readiness(registry, disks())] * len(askers), max_members=MAX_PER_READ
    )


def full_disks(registry: Registry, disks: Sequence[str]) -> list[str]:
    """Return a sentence about each disk without room, including the database's."""
    return [*disks, *[FULL] * registry.is_full]


def _remove_free_amount(sentence: str) -> str:
    """Remove the free amount from a sentence about a disk, because anybody may read it."""
    disk, has, _ = sentence.partition(" has ")
    return f"{disk} has no room" if has else disk


def _check_readiness(registry: Registry, disks: Sequence[str]) -> Readiness:
    """Read from the database what /readyz answers; raise if its schema is outdated."""
    registry.check_schema()
    found = registry.liveness()
    age_s = None
    if found.last_round_at is not None:
        age_s = round((found.now - found.last_round_at).total_seconds(), 1)
    return Readiness(
        last_round=found.last_round,
        last_round_age_s=age_s,
        unattended=[each.work for each in overdue_work(found) if each.unattended],
        disks=[_remove_free_amount(each) for each in full_disks(registry, disks)],
    )
