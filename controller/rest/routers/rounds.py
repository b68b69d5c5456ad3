"""/v1/rounds: decisions, slot by slot, and their replay."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Security

from controller.rest.callers.auth import AnyCaller, Operator, bearer
from controller.rest.callers.bodies import BoundedRoute
from controller.rest.dependencies import GivenReader, GivenRegistry, GivenServices
from controller.rest.pages.openapi import problems
from controller.rest.schemas.operating import ProofsQuery, RoundDetail, RoundSummary
from controller.rest.schemas.values import MAX_BIGINT, PageOf, PageQuery
from controller.rest.telling import told_detail, told_page, told_round
from controller.rounds.replay import ReplayResult, replay_round
from registry import ConflictError
from registry.ground import Page
from registry.rounds import RoundProof

router = APIRouter(
    prefix="/rounds",
    tags=["rounds"],
    dependencies=[Security(bearer)],
    route_class=BoundedRoute,
)
RoundNumber = Annotated[int, Path(ge=1, le=MAX_BIGINT)]


@router.get("", response_model=PageOf[RoundSummary])
def list_rounds(
    query: Annotated[PageQuery, Query()], reader: GivenReader, registry: GivenRegistry
) -> Page[RoundSummary]:
    """List rounds, newest first. A tenant sees only its own dominant share in them."""
    page = registry.rounds.list(limit=query.limit, cursor=query.cursor)
    return told_page(page, told_round, reader)


@router.get("/proofs", response_model=PageOf[RoundProof], responses=problems(403, 404))
def list_proofs(
    query: Annotated[ProofsQuery, Query()], caller: AnyCaller, registry: GivenRegistry
) -> Page[RoundProof]:
    """List rounds as links of their chain, newest first, with one tenant's row and its proof.

    `fuga verify` checks them. Tenants see their own rows. A page has 50 rounds at most.
    """
    caller.tenant_to_list(query.tenant)  # refuses what is another's
    return registry.round_proofs.list(query.tenant, limit=query.limit, cursor=query.cursor)


@router.get("/{number}", response_model=RoundDetail, responses=problems(404))
def show_round(number: RoundNumber, reader: GivenReader, registry: GivenRegistry) -> RoundDetail:
    """Show a round; operators also see the decision of the second policy."""
    shadow = registry.shadows.get(number) if reader.is_operator else None
    return told_detail(RoundDetail.of(registry.rounds.get(number), shadow), reader)


@router.post(
    "/{number}/replay", response_model=ReplayResult, responses=problems(403, 404, 409, 410)
)
def replay_a_round(number: RoundNumber, caller: Operator, services: GivenServices) -> ReplayResult:
    """Recompute a stored round in a new process and compare bit for bit."""
    if not services.replays.acquire(blocking=False):
        raise ConflictError("other replays are running; try again later")
    try:
        return replay_round(services.registry, number)
    finally:
        services.replays.release()
