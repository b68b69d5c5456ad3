"""/v1/rounds: decisions, slot by slot, and their replay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Path, Query, Security

from controller.errors import PolicyFailedError
from controller.rest.callers.auth import AnyCaller, Operator, bearer
from controller.rest.callers.bodies import BoundedRoute
from controller.rest.dependencies import (
    GivenReader,
    GivenRegistry,
    GivenServices,
    Services,
)
from controller.rest.pages.openapi import problems
from controller.rest.schemas.games import (
    GameQuery,
    PolicyView,
    RoundGame,
    SecondDecision,
    SecondPolicyInput,
)
from controller.rest.schemas.operating import ProofsQuery, RoundDetail, RoundSummary
from controller.rest.schemas.values import MAX_BIGINT, PageOf, PageQuery
from controller.rest.telling import told_detail, told_page, told_round
from controller.rounds.replay import (
    ReplayResult,
    decide_again_by,
    game_of_round,
    replay_round,
)
from placement import POLICIES, ParameterError, policy_by_name
from placement.catalog import plugins
from registry import ConflictError, InvalidError
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


@router.get("/policies", response_model=PageOf[PolicyView], responses=problems(403))
def list_policies(caller: Operator) -> Page[PolicyView]:
    """List the policies by which a stored round can be decided again."""
    ours = [PolicyView(name=name, summary=each.summary) for name, each in POLICIES.items()]
    others = [
        PolicyView(name=name, summary=None)
        for name, claims in sorted(plugins.installed().items())
        if name not in POLICIES and claims[0].group == plugins.POLICY_GROUP
    ]
    return Page((*ours, *others), None)


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
    with _one_of_few(services):
        return replay_round(services.registry, number)


@router.get("/{number}/game", response_model=RoundGame, responses=problems(403, 404, 409, 410))
def show_game(
    number: RoundNumber,
    query: Annotated[GameQuery, Query()],
    caller: Operator,
    services: GivenServices,
) -> RoundGame:
    """Show a round step by step: hosts in the order in which they play, and what each weighed.

    It is computed again from what is stored, in a new process, which takes about as long as the
    round did and a few seconds more. Of a large round the first steps are told, the rest in one.
    """
    with _one_of_few(services):
        return RoundGame.model_validate(game_of_round(services.registry, number, query.steps))


@router.post(
    "/{number}/second-policy",
    response_model=SecondDecision,
    responses=problems(403, 404, 409, 410),
)
def decide_by_another_policy(
    number: RoundNumber, body: SecondPolicyInput, caller: Operator, services: GivenServices
) -> SecondDecision:
    """Decide a stored round by another policy, without effect, and compare.

    The new process is given what is stored. Zones that have policies of their own keep them. A
    policy that fails is answered with 409.
    """
    if body.policy in POLICIES:
        try:
            policy_by_name(body.policy, body.parameters)
        except ParameterError as error:
            field = f"parameters.{error.name}"
            raise InvalidError(field, error.found, error.allowed) from error
    elif body.policy not in plugins.installed():
        known = f"one of {', '.join((*POLICIES, *plugins.installed()))}"
        raise InvalidError("policy", body.policy, known)
    with _one_of_few(services):
        try:
            told = decide_again_by(services.registry, number, body.policy, body.parameters)
        except PolicyFailedError as error:
            raise ConflictError(str(error)) from error
    return SecondDecision.model_validate(told)


@contextmanager
def _one_of_few(services: Services) -> Iterator[None]:
    """Let few rounds be computed at a time: each has a process of its own."""
    if not services.replays.acquire(blocking=False):
        raise ConflictError("other replays are running; try again later")
    try:
        yield
    finally:
        services.replays.release()
