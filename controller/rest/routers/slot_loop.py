"""/v1/slot-loop: state of the slot loop; operators pause and resume it."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Body, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.rest.dependencies import RegistryDep
from controller.rest.idempotency_keys import IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Caller, Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.operations import PauseInput, ResumeInput, SlotLoop
from registry.rounds import SlotLoopStatus

router = APIRouter(
    prefix="/slot-loop", tags=["rounds"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_ADAPTER: Final = TypeAdapter(SlotLoopStatus)


@router.get("")
def show_slot_loop(caller: AnyCaller, registry: RegistryDep) -> SlotLoop:
    """Show whether the slot loop runs, or the reason why it does not."""
    return _redact_slot_loop(registry.slot_loop.get(), caller)


@router.post("/pause", response_model=SlotLoop, responses=problem_responses(403, 409))
def pause_slot_loop(body: PauseInput, caller: Operator, creation: IdempotencyDep) -> Response:
    """Pause the slot loop until resumed. Workers keep creating and deleting VMs."""
    return creation.answer(
        body,
        lambda registry: registry.slot_loop.pause(body.reason, actor=caller.actor),
        status=200,
        adapter=_ADAPTER,
        shown=lambda status: _redact_slot_loop(status, caller).model_dump_json().encode(),
    )


@router.post("/resume", response_model=SlotLoop, responses=problem_responses(403, 409))
def resume_slot_loop(
    body: Annotated[ResumeInput, Body(default_factory=ResumeInput)],
    caller: Operator,
    creation: IdempotencyDep,
) -> Response:
    """Resume the slot loop with the next slot."""
    return creation.answer(
        body,
        lambda registry: registry.slot_loop.resume(body.reason, actor=caller.actor),
        status=200,
        adapter=_ADAPTER,
        shown=lambda status: _redact_slot_loop(status, caller).model_dump_json().encode(),
    )


def _redact_slot_loop(status: SlotLoopStatus, caller: Caller) -> SlotLoop:
    """Return the state of the slot loop; hide from tenants which operator changed it."""
    return SlotLoop(
        state=status.state,
        reason=status.reason,
        changed_by=status.changed_by if caller.is_operator else None,
        changed_at=status.changed_at,
    )
