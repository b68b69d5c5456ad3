"""/v1/rounds: decisions, slot by slot, and their replay."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Security
from starlette.requests import Request as HttpRequest

from controller.errors import PolicyFailedError
from controller.rest.cancellable_work import run_until_disconnect
from controller.rest.dependencies import RegistryDep, ServicesDep, ViewerDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.redaction import redact_page, redact_round, redact_round_detail
from controller.rest.schemas.games import (
    GameQuery,
    PolicySummary,
    RoundGame,
    SecondDecision,
    SecondPolicyInput,
)
from controller.rest.schemas.operations import ProofsQuery, RoundDetail, RoundSummary
from controller.rest.schemas.values import MAX_BIGINT, PageOf, PageQuery
from controller.rounds.replay import ReplayResult, decide_again_by, replay_round, replay_round_game
from placement import POLICIES, ParameterError, policy_by_name
from placement.catalog import plugins
from registry import ConflictError, InvalidError
from registry.db import Page
from registry.rounds import RoundProof

router = APIRouter(
    prefix="/rounds", tags=["rounds"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
RoundNumber = Annotated[int, Path(ge=1, le=MAX_BIGINT)]


@router.get("", response_model=PageOf[RoundSummary])
def list_rounds(
    query: Annotated[PageQuery, Query()], reader: ViewerDep, registry: RegistryDep
) -> Page[RoundSummary]:
    """List rounds, newest first. A tenant sees only its own dominant share in them."""
    page = registry.rounds.list(limit=query.limit, cursor=query.cursor)
    return redact_page(page, redact_round, reader)


@router.get("/proofs", response_model=PageOf[RoundProof], responses=problem_responses(403, 404))
def list_proofs(
    query: Annotated[ProofsQuery, Query()], caller: AnyCaller, registry: RegistryDep
) -> Page[RoundProof]:
    """List rounds as links of their chain, newest first, with one tenant's row and its proof.

    `fuga verify` checks them. Tenants see their own rows. A page has 50 rounds at most.
    """
    caller.tenant_to_list(query.tenant, registry)  # refuses what is another's
    return registry.round_proofs.list(query.tenant, limit=query.limit, cursor=query.cursor)


@router.get("/policies", response_model=PageOf[PolicySummary], responses=problem_responses(403))
def list_policies(caller: Operator) -> Page[PolicySummary]:
    """List the policies by which a stored round can be decided again."""
    ours = [PolicySummary(name=name, summary=each.summary) for name, each in POLICIES.items()]
    others = [
        PolicySummary(name=name, summary=None)
        for name, claims in sorted(plugins.installed_entry_points().items())
        if name not in POLICIES and claims[0].group == plugins.POLICY_GROUP
    ]
    return Page((*ours, *others), None)


@router.get("/{number}", response_model=RoundDetail, responses=problem_responses(404, 410))
def show_round(number: RoundNumber, reader: ViewerDep, registry: RegistryDep) -> RoundDetail:
    """Show a round; operators also see the decision of the second policy."""
    shadow = registry.shadows.get(number) if reader.is_operator else None
    return redact_round_detail(RoundDetail.of(registry.rounds.get(number), shadow), reader)


@router.post(
    "/{number}/replay",
    response_model=ReplayResult,
    responses=problem_responses(403, 404, 409, 410, 503),
)
async def replay_a_round(
    number: RoundNumber, caller: Operator, services: ServicesDep, http: HttpRequest
) -> ReplayResult:
    """Recompute a stored round in a new process and compare bit for bit."""
    work = partial(replay_round, services.registry, number)
    return await run_until_disconnect(http, services.games, work, start=services.start_child)


@router.get(
    "/{number}/game", response_model=RoundGame, responses=problem_responses(403, 404, 409, 410, 503)
)
async def show_game(
    number: RoundNumber,
    query: Annotated[GameQuery, Query()],
    caller: Operator,
    services: ServicesDep,
    http: HttpRequest,
) -> RoundGame:
    """Show a round step by step: the order of the hosts, and the combinations that each weighed.

    It is computed again from what is stored, in a new process, which takes about as long as the
    round did and a few seconds more. Of a large round the first steps are listed one by one, the
    rest as one.
    """
    work = partial(replay_round_game, services.registry, number, query.steps)
    game = await run_until_disconnect(http, services.games, work, start=services.start_child)
    return RoundGame.model_validate(game)


@router.post(
    "/{number}/second-policy",
    response_model=SecondDecision,
    responses=problem_responses(403, 404, 409, 410, 503),
)
async def decide_by_another_policy(
    number: RoundNumber,
    body: SecondPolicyInput,
    caller: Operator,
    services: ServicesDep,
    http: HttpRequest,
) -> SecondDecision:
    """Decide a stored round by another policy, without effect, and compare.

    The new process is given what is stored. Zones that have policies of their own keep them. A
    policy that fails is answered with 409.
    """
    check_policy(body.policy, body.parameters)
    work = partial(decide_again_by, services.registry, number, body.policy, body.parameters)
    try:
        decision = await run_until_disconnect(
            http, services.games, work, start=services.start_child
        )
    except PolicyFailedError as error:
        raise ConflictError(str(error)) from error
    return SecondDecision.model_validate(decision)


def check_policy(policy: str, parameters: Mapping[str, Any]) -> None:
    """Raise `InvalidError` unless the policy exists and accepts the parameters."""
    if policy in POLICIES:
        try:
            policy_by_name(policy, parameters)
        except ParameterError as error:
            field = f"parameters.{error.name}"
            raise InvalidError(field, error.found, error.allowed) from error
    elif policy not in plugins.installed_entry_points():
        known = f"one of {', '.join((*POLICIES, *plugins.installed_entry_points()))}"
        raise InvalidError("policy", policy, known)
