"""/v1/vms/{id}/console: what a VM writes on its serial console, and typing there."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.consoles import next_output, read_console
from controller.errors import ConsoleUnreadError
from controller.rest.auth import AnyCaller, Caller, bearer
from controller.rest.dependencies import GivenServices, Services
from controller.rest.idempotency import GivenCreation
from controller.rest.openapi import problems
from controller.rest.routers.vms import own_vm
from controller.rest.schemas import (
    MAX_BIGINT,
    ConsoleQuery,
    ConsoleRead,
    ConsoleSaid,
    ConsoleSaidQuery,
    ConsoleSessionInput,
    ConsoleTyped,
)
from controller.rest.telling import told_session, told_text
from registry import ConflictError, ConsoleSession, InvalidError

router = APIRouter(prefix="/vms", tags=["vms"], dependencies=[Security(bearer)])
_SESSION: Final = TypeAdapter(ConsoleSession)

Number = Annotated[
    int, Path(ge=1, le=MAX_BIGINT, description="1, 2, …: a piece that comes again is typed once.")
]


@dataclass(frozen=True, slots=True)
class Held:
    """A session of a VM that exists for its caller."""

    caller: Caller
    services: Services
    vm_id: UUID
    session_id: UUID


def _held(vm_id: UUID, session_id: UUID, caller: AnyCaller, services: GivenServices) -> Held:
    own_vm(services.registry, vm_id, caller)
    return Held(caller, services, vm_id, session_id)


GivenHeld = Annotated[Held, Depends(_held)]


@router.get("/{vm_id}/console", response_model=ConsoleRead, responses=problems(404, 409, 504))
def read_a_console(
    vm_id: UUID,
    query: Annotated[ConsoleQuery, Query()],
    caller: AnyCaller,
    services: GivenServices,
) -> ConsoleRead:
    """Read the last of what a VM wrote on its serial console. A worker reads it on the host."""
    own_vm(services.registry, vm_id, caller)
    if not services.console_reads.acquire(blocking=False):
        raise ConflictError("many consoles are being read; try again in a moment")
    try:
        read = read_console(
            services.registry,
            services.queue,
            vm_id,
            max_bytes=query.bytes,
            after=query.after,
            wait_s=services.console_wait_s,
        )
    except ConsoleUnreadError as error:
        raise ConsoleUnreadError(vm_id, told_text(error.reason, caller)) from error
    finally:
        services.console_reads.release()
    return ConsoleRead(vm=vm_id, content=base64.b64encode(read.content).decode(), end=read.end)


@router.post(
    "/{vm_id}/console/sessions",
    status_code=201,
    response_model=ConsoleSession,
    responses=problems(404, 409),
)
def open_a_console(
    vm_id: UUID,
    body: ConsoleSessionInput,
    caller: AnyCaller,
    services: GivenServices,
    creation: GivenCreation,
) -> Response:
    """Take hold of a VM's console, to type there: one at a time. A worker attaches it."""
    own_vm(services.registry, vm_id, caller)

    def take_hold() -> ConsoleSession:
        sessions = services.registry.console_sessions
        return sessions.open(vm_id, actor=caller.actor, force=body.force)

    return creation.answer(body, take_hold, status=201, adapter=_SESSION)


@router.get(
    "/{vm_id}/console/sessions/{session_id}", response_model=ConsoleSaid, responses=problems(404)
)
def read_a_console_session(
    query: Annotated[ConsoleSaidQuery, Query()], held: GivenHeld
) -> ConsoleSaid:
    """Read what a VM wrote since a console was attached; answered once there is something.

    Who does not read for a minute loses the console.
    """
    waits = held.services.console_waits.acquire(blocking=False)
    try:
        output = next_output(
            held.services.registry,
            held.services.queue,
            held.vm_id,
            held.session_id,
            after=query.after,
            wait_s=query.wait_s if waits else 0,
        )
    finally:
        if waits:
            held.services.console_waits.release()
    return ConsoleSaid(
        session=told_session(output.session, held.caller),
        start=output.start,
        content=base64.b64encode(output.content).decode(),
        end=output.end,
    )


@router.put(
    "/{vm_id}/console/sessions/{session_id}/input/{number}",
    response_model=ConsoleSession,
    responses=problems(404, 409),
)
def type_on_a_console(number: Number, body: ConsoleTyped, held: GivenHeld) -> ConsoleSession:
    """Type something on a console that one holds. It is kept until a worker passes it on."""
    sessions = held.services.registry.console_sessions
    session = sessions.type(held.vm_id, held.session_id, number, _bytes_of(body))
    return told_session(session, held.caller)


@router.delete("/{vm_id}/console/sessions/{session_id}", status_code=204, responses=problems(404))
def close_a_console(held: GivenHeld) -> None:
    """Let go of a console."""
    sessions = held.services.registry.console_sessions
    sessions.close(held.vm_id, held.session_id, actor=held.caller.actor)


def _bytes_of(body: ConsoleTyped) -> bytes:
    try:
        return base64.b64decode(body.content, validate=True)
    except (binascii.Error, ValueError) as error:
        found = f"{len(body.content)} characters"
        raise InvalidError("content", found, "base64 of what is typed") from error
