"""/v1/rolls: commands that run on hosts in turn, after their VMs have moved away. For operators.

The command runs where its driver runs, a `fuga roll`. The API keeps where each host is.
"""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Body, Query, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.plans.dry_run import DryRunInputs, dry_run_roll
from controller.rest.dependencies import RegistryDep, ServicesDep
from controller.rest.idempotency_keys import IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.rolls import (
    RollCancelInput,
    RollDriver,
    RollHostsQuery,
    RollInput,
    RollsQuery,
    RollStepInput,
)
from controller.rest.schemas.values import PageOf
from registry import ConflictError, HostHealth, InvalidError, Registry
from registry.db import Page
from registry.moves import (
    CommandEnd,
    NewRoll,
    Roll,
    RollHost,
    RollLease,
    RollLimits,
    RollStep,
    RollTarget,
    StepReport,
)

router = APIRouter(
    prefix="/rolls", tags=["plans"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_CLAIM: Final = TypeAdapter(RollLease)
_MAX_WAIT_S: Final = 20.0  #: for a place among dry runs
_ROLL: Final = TypeAdapter(Roll)
_CHANGED: Final = problem_responses(403, 404, 409)


@router.post("", status_code=201, response_model=RollLease, responses=problem_responses(403, 409))
def begin_roll(
    body: RollInput, caller: Operator, services: ServicesDep, creation: IdempotencyDep
) -> Response:
    """Begin a roll, if each turn of hosts can be emptied. The holder of its token carries it out.

    The moves of the turns are planned, each turn after those before it, for some seconds at
    most; `checked` of the answer says how many turns. A refusal (`conflict`) names VMs without
    a destination.
    """

    def create(registry: Registry) -> RollLease:
        targets = registry.rolls.targets(body.hosts, body.skipped)
        _check_hosts_up(targets)
        keys = [each.id for each in targets]
        turns = [keys[at : at + body.at_once] for at in range(0, len(keys), body.at_once)]
        view = registry.plans.view_running(rest_s=0)
        preview = DryRunInputs(view=view, turns=turns, limits=services.move_limits)
        # It waits, since a repeat at the same moment takes places that the call needs, too.
        if not services.replays.acquire(timeout=_MAX_WAIT_S):
            raise ConflictError("other replays are running; try again later")
        try:
            checked = dry_run_roll(preview, start=services.start_child)
        finally:
            services.replays.release()
        new = NewRoll(
            turns=turns,
            at_once=body.at_once,
            command=body.command,
            driver=body.driver,
            checked=checked,
            limits=RollLimits(
                empty_within_s=body.empty_within_s,
                run_within_s=body.run_within_s,
                up_within_s=body.up_within_s,
            ),
        )
        return registry.rolls.begin(new, actor=caller.actor)

    return creation.answer(body, create, status=201, adapter=_CLAIM)


@router.get("", response_model=PageOf[Roll], responses=problem_responses(403))
def list_rolls(
    query: Annotated[RollsQuery, Query()], caller: Operator, registry: RegistryDep
) -> Page[Roll]:
    """List rolls, newest first."""
    return registry.rolls.list(state=query.state, limit=query.limit, cursor=query.cursor)


@router.get("/{id}", response_model=Roll, responses=problem_responses(403, 404))
def show_roll(id: UUID, caller: Operator, registry: RegistryDep) -> Roll:  # noqa: A002
    """Show a roll: how far it is, who drives it, why it stopped."""
    return registry.rolls.get(id)


@router.get("/{id}/hosts", response_model=PageOf[RollHost], responses=problem_responses(403, 404))
def list_hosts_of_roll(
    id: UUID,  # noqa: A002
    query: Annotated[RollHostsQuery, Query()],
    caller: Operator,
    registry: RegistryDep,
) -> Page[RollHost]:
    """List the hosts of a roll in their order, each with its phase."""
    return registry.rolls.hosts(id, limit=query.limit, cursor=query.cursor)


@router.post("/{id}/resume", status_code=202, response_model=RollLease, responses=_CHANGED)
def resume_roll(
    id: UUID,  # noqa: A002
    body: RollDriver,
    caller: Operator,
    creation: IdempotencyDep,
) -> Response:
    """Take over a roll that stopped or lost its driver. Failed hosts are tried again."""

    def resume(registry: Registry) -> RollLease:
        return registry.rolls.resume(
            id, driver=body.driver, command=body.command, skipped=body.skipped, actor=caller.actor
        )

    return creation.answer(body, resume, status=202, adapter=_CLAIM)


@router.put("/{id}/drivers/{token}", response_model=RollStep, responses=_CHANGED)
def drive_roll(
    id: UUID,  # noqa: A002
    token: UUID,
    body: RollStepInput,
    caller: Operator,
    registry: RegistryDep,
) -> RollStep:
    """Record what the roll's driver did, and return the hosts of the current turn.

    The driver is the client that runs the command. Before it runs it on a host that is `empty`,
    it reports that host as begun.
    """
    report = StepReport(
        begun=tuple(body.begun),
        ended=tuple(CommandEnd(host=each.host, error=each.error) for each in body.ended),
        stop=body.stop,
        leave=body.leave,
    )
    return registry.rolls.drive(id, token, report, actor=caller.actor)


@router.post("/{id}/cancel", status_code=202, response_model=Roll, responses=_CHANGED)
def cancel_roll(
    id: UUID,  # noqa: A002
    body: Annotated[RollCancelInput, Body(default_factory=RollCancelInput)],
    caller: Operator,
    creation: IdempotencyDep,
) -> Response:
    """End a roll. A driver first waits for hosts at work; the others stay as they are."""
    return creation.answer(
        body,
        lambda registry: registry.rolls.cancel(id, actor=caller.actor),
        status=202,
        adapter=_ROLL,
    )


def _check_hosts_up(targets: tuple[RollTarget, ...]) -> None:
    """Refuse a roll without hosts, or with hosts that are not up."""
    if not targets:
        raise InvalidError("hosts", "none that is not left out", "one host at least")
    away = [f"{each.name} is {each.health}" for each in targets if each.health != HostHealth.UP]
    if away:
        raise ConflictError(
            f"only hosts that are up can be emptied and seen back: {', '.join(away[:5])}"
            f"{' and others' if len(away) > 5 else ''}. Leave them out (`--except`)"
        )
