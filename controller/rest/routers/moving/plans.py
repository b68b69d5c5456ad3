"""/v1/plans: moves in waves, decided together. For operators."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Body, Query, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.errors import PolicyFailedError
from controller.rest.cancellable_work import NICENESS
from controller.rest.dependencies import RegistryDep, ServicesDep
from controller.rest.idempotency_keys import IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.plans import PlanInput, PlanMoves, PlanReplay, PlansQuery, PlanStep
from controller.rest.schemas.values import PageOf
from controller.rounds.policy_process import PolicyProcess
from controller.rounds.replay import REPLAY_TIME_S
from registry import ConflictError, Registry
from registry.db import Page
from registry.moves import Plan, PlanKind

router = APIRouter(
    prefix="/plans", tags=["plans"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_ADAPTER: Final = TypeAdapter(Plan)


@router.post("", status_code=202, response_model=Plan, responses=problem_responses(403, 404, 409))
def ask_for_plan(body: PlanInput, caller: Operator, creation: IdempotencyDep) -> Response:
    """Have the control centre decide a plan. It is `proposed` once it is decided."""
    return creation.answer(
        body,
        lambda registry: registry.plans.create(
            PlanKind(body.kind), body.arguments, approve=body.approve, actor=caller.actor
        ),
        status=202,
        adapter=_ADAPTER,
    )


@router.get("", response_model=PageOf[Plan], responses=problem_responses(403))
def list_plans(
    query: Annotated[PlansQuery, Query()], caller: Operator, registry: RegistryDep
) -> Page[Plan]:
    """List plans, newest first."""
    return registry.plans.list(
        kind=query.kind, state=query.state, limit=query.limit, cursor=query.cursor
    )


@router.get("/{id}", response_model=Plan, responses=problem_responses(403, 404))
def show_plan(id: UUID, caller: Operator, registry: RegistryDep) -> Plan:  # noqa: A002
    """Show a plan: what it gains, how far it is."""
    return registry.plans.get(id)


@router.get("/{id}/moves", response_model=PlanMoves, responses=problem_responses(403, 404))
def list_moves_of_plan(
    id: UUID,  # noqa: A002
    caller: Operator,
    registry: RegistryDep,
) -> PlanMoves:
    """List the moves of a plan in their order."""
    return PlanMoves(plan=id, items=list(registry.plans.moves(id)))


def _add_step(step: str, taken_by: Callable[[Registry], Callable[..., Plan]], about: str) -> None:
    """Add the route of an operator's step in a plan's state machine."""

    def answer(
        id: UUID,  # noqa: A002
        body: Annotated[PlanStep, Body(default_factory=PlanStep)],
        caller: Operator,
        creation: IdempotencyDep,
    ) -> Response:
        def take(registry: Registry) -> Plan:
            return taken_by(registry)(id, actor=caller.actor)

        return creation.answer(body, take, status=202, adapter=_ADAPTER)

    router.add_api_route(
        f"/{{id}}/{step}",
        answer,
        methods=["POST"],
        name=f"{step}_plan",
        description=about,
        status_code=202,
        response_model=Plan,
        responses=problem_responses(403, 404, 409),
    )


_add_step(
    "approve", lambda registry: registry.plans.approve, "Carry out a proposed plan, wave by wave."
)
_add_step(
    "cancel",
    lambda registry: registry.plans.cancel,
    "End a plan. Moves under way go on; no others begin.",
)


@router.post("/{id}/replay", response_model=PlanReplay, responses=problem_responses(403, 404, 409))
def replay_plan(id: UUID, caller: Operator, services: ServicesDep) -> PlanReplay:  # noqa: A002
    """Decide a stored plan again, in a new process, and compare bit for bit."""
    if not services.replays.acquire(blocking=False):
        raise ConflictError("other replays are running; try again later")
    process = PolicyProcess(niceness=NICENESS, start=services.start_child)
    try:
        inputs, stored = services.registry.plans.inputs(id)
        started = time.perf_counter()
        again = process.plan(inputs, kind="plan", deadline_s=REPLAY_TIME_S)
        seconds = time.perf_counter() - started
        return PlanReplay(plan=id, identical=again == stored, seconds=seconds)
    except PolicyFailedError as error:
        raise ConflictError(f"the plan was not decided again: {error}") from error
    finally:
        process.close()
        services.replays.release()
