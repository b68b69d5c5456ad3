"""/v1/moves: moves of VMs from host to host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Body, Query, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.queries.destinations import destination_hosts
from controller.queries.move_text import redact_move
from controller.rest.dependencies import RegistryDep, ViewerDep
from controller.rest.idempotency_keys import IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.redaction import redact_page
from controller.rest.schemas.moves import MoveCancelInput, MoveInput, MovesQuery
from controller.rest.schemas.values import PageOf
from registry import MoveRefusedError, NotFoundError, Registry, UnknownNameError
from registry.db import Page
from registry.moves import Move, MoveObstacle

router = APIRouter(
    prefix="/moves", tags=["vms"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
#: Maximum number of hosts tried in turn if the call names none.
MAX_HOSTS_TRIED: Final = 4
#: Obstacles of one host: another host may take the VM.
_OF_THE_HOST: Final = frozenset(
    {
        MoveObstacle.HOST_SILENT,
        MoveObstacle.HOST_CLOSED,
        MoveObstacle.SILENT_POOL,
        MoveObstacle.NOT_ALLOWED,
        MoveObstacle.GROUP,
        MoveObstacle.NO_NETWORK,
        MoveObstacle.NO_ROOM,
        MoveObstacle.NO_ROOM_FOR_IMAGE,
    }
)
_ADAPTER: Final = TypeAdapter(Move)


@router.post("", status_code=201, response_model=Move, responses=problem_responses(403, 409))
def move_vm(body: MoveInput, caller: Operator, creation: IdempotencyDep) -> Response:
    """Move a VM to another host: live while its guest runs, cold while it is off.

    The answer is a move that has been accepted: room is held for the VM where it arrives, and
    a worker carries it out. A refusal (`move_refused`) names its `obstacle`.
    """

    def create(registry: Registry) -> Move:
        try:
            vm = registry.vms.get(body.vm)
        except NotFoundError:
            hint = "`fuga vms` lists them"
            raise UnknownNameError("vm", "VM", body.vm, hint=hint) from None
        hosts: Iterable[str]
        if body.host is not None:
            hosts = (_host_name(registry, body.host),)
        else:
            view = registry.moves.cluster_for_move(vm.id, only_cold=body.only_cold)
            hosts = destination_hosts(view, vm.name)
        return _create_move(registry, body, islice(hosts, MAX_HOSTS_TRIED), caller.actor)

    return creation.answer(body, create, status=201, adapter=_ADAPTER)


@router.get("", response_model=PageOf[Move], responses=problem_responses(403))
def list_moves(
    query: Annotated[MovesQuery, Query()],
    caller: AnyCaller,
    reader: ViewerDep,
    registry: RegistryDep,
) -> Page[Move]:
    """List moves, the latest first; tenants see those of their own VMs."""
    page = registry.moves.list(
        tenant=caller.tenant_to_list(query.tenant, registry),
        vm_id=query.vm,
        host=None if query.host is None else reader.resolve_name("host", query.host),
        state=query.state,
        only_open=query.open,
        limit=query.limit,
        cursor=query.cursor,
    )
    return redact_page(page, redact_move, reader)


@router.get("/{move_id}", response_model=Move, responses=problem_responses(404))
def show_move(move_id: UUID, caller: AnyCaller, reader: ViewerDep, registry: RegistryDep) -> Move:
    """Show a move and how far it has come."""
    return redact_move(registry.moves.get(move_id, tenant=caller.tenant), reader)


@router.post(
    "/{move_id}/cancel",
    status_code=202,
    response_model=Move,
    responses=problem_responses(403, 404, 409),
)
def cancel_move(
    move_id: UUID,
    body: Annotated[MoveCancelInput, Body(default_factory=MoveCancelInput)],
    caller: Operator,
    creation: IdempotencyDep,
) -> Response:
    """Cancel a move; the VM stays on its host. A move under way ends with its worker's next step.

    A guest that has already arrived stays where it arrived, and the move is `moved`.
    """

    def cancel(registry: Registry) -> Move:
        return registry.moves.cancel(move_id, actor=caller.actor)

    return creation.answer(body, cancel, status=202, adapter=_ADAPTER)


def _host_name(registry: Registry, host: str) -> str:
    """Return the name of a host that is not retired, or raise `UnknownNameError`."""
    try:
        return registry.hosts.get(host).name
    except NotFoundError:
        hint = "`fuga host list` lists them"
        raise UnknownNameError("host", "host", host, hint=hint) from None


def _create_move(registry: Registry, body: MoveInput, hosts: Iterator[str], actor: str) -> Move:
    """Request a move to the first of these hosts that accepts the VM."""
    refused: MoveRefusedError | None = None
    for host in hosts:
        try:
            return registry.moves.create(
                body.vm, host, reason=body.reason, only_cold=body.only_cold, actor=actor
            )
        except MoveRefusedError as error:
            if error.obstacle not in _OF_THE_HOST:
                raise
            refused = error
    assert refused is not None  # noqa: S101 - `destinations` gives a host, or says why not
    raise refused
