"""/v1/vms/{id}/console: output and input of a VM's serial console."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.errors import ConsoleUnreadError
from controller.host_aliases import Viewer
from controller.queries.consoles import read_console, wait_for_output
from controller.rest.dependencies import Services, ServicesDep, ViewerDep
from controller.rest.idempotency_keys import IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Caller, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.redaction import redact_session
from controller.rest.routers.vms import own_vm
from controller.rest.schemas.consoles import (
    ConsoleKeystrokes,
    ConsoleQuery,
    ConsoleRead,
    ConsoleSaidQuery,
    ConsoleSessionInput,
    ConsoleSessionOutput,
)
from controller.rest.schemas.values import MAX_BIGINT
from registry import ConflictError, InvalidError, Registry
from registry.consoles import ConsoleSession
from registry.requests import Vm

router = APIRouter(
    prefix="/vms", tags=["vms"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_SESSION: Final = TypeAdapter(ConsoleSession)
#: Sessions of one tenant: more than a person uses. Workers share threads fairly among tenants.
MAX_SESSIONS: Final = 16

Number = Annotated[
    int, Path(ge=1, le=MAX_BIGINT, description="1, 2, …: a repeated number is typed once.")
]


@dataclass(frozen=True, slots=True)
class HeldSession:
    """A console session of a VM that the caller may see."""

    caller: Caller
    reader: Viewer
    services: Services
    whose: str
    vm_id: UUID
    session_id: UUID


def _session_of_caller(
    vm_id: UUID, session_id: UUID, caller: AnyCaller, reader: ViewerDep, services: ServicesDep
) -> HeldSession:
    """Return a console session of a VM that the caller may see."""
    vm = own_vm(services.registry, vm_id, caller)
    return HeldSession(caller, reader, services, _console_party(vm, caller), vm_id, session_id)


def _console_party(vm: Vm, caller: Caller) -> str:
    """Return the party of a console call: a tenant with all its tokens, or an operator."""
    return f"operator {caller.actor}" if caller.is_operator else f"tenant {vm.tenant}"


HeldSessionDep = Annotated[HeldSession, Depends(_session_of_caller)]


@router.get(
    "/{vm_id}/console", response_model=ConsoleRead, responses=problem_responses(404, 409, 504)
)
def read_a_console(
    vm_id: UUID,
    query: Annotated[ConsoleQuery, Query()],
    caller: AnyCaller,
    reader: ViewerDep,
    services: ServicesDep,
) -> ConsoleRead:
    """Read the last output of a VM's serial console. A worker reads it on the host."""
    vm = own_vm(services.registry, vm_id, caller)
    whose = _console_party(vm, caller)
    if not services.console_reads.take(whose):
        raise ConflictError(
            "many consoles are being read, and a caller may use half of the free readers;"
            " read fewer at a time, or try again soon"
        )
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
        raise ConsoleUnreadError(vm.name, reader.redact_text(error.reason)) from error
    finally:
        services.console_reads.give_back(whose)
    return ConsoleRead(vm=vm_id, content=base64.b64encode(read.content).decode(), end=read.end)


@router.post(
    "/{vm_id}/console/sessions",
    status_code=201,
    response_model=ConsoleSession,
    responses=problem_responses(404, 409),
)
def open_a_console(
    vm_id: UUID,
    body: ConsoleSessionInput,
    caller: AnyCaller,
    services: ServicesDep,
    creation: IdempotencyDep,
) -> Response:
    """Open a session on a VM's console, to type. Only one session exists at a time."""
    own_vm(services.registry, vm_id, caller)

    def open_session(registry: Registry) -> ConsoleSession:
        sessions = registry.console_sessions
        at_most = None if caller.is_operator else MAX_SESSIONS
        return sessions.open(vm_id, actor=caller.actor, force=body.force, at_most=at_most)

    return creation.answer(body, open_session, status=201, adapter=_SESSION)


@router.get(
    "/{vm_id}/console/sessions/{session_id}",
    response_model=ConsoleSessionOutput,
    responses=problem_responses(404),
)
def read_a_console_session(
    query: Annotated[ConsoleSaidQuery, Query()], held: HeldSessionDep
) -> ConsoleSessionOutput:
    """Read a VM's output since the session began; waits for output.

    A session that is not read for a minute ends.
    """
    waits = held.services.console_waits.take(held.whose)
    try:
        output = wait_for_output(
            held.services.registry,
            held.services.queue,
            held.vm_id,
            held.session_id,
            after=query.after,
            wait_s=query.wait_s if waits else 0,
        )
    finally:
        if waits:
            held.services.console_waits.give_back(held.whose)
    return ConsoleSessionOutput(
        session=redact_session(output.session, held.reader),
        start=output.start,
        content=base64.b64encode(output.content).decode(),
        end=output.end,
    )


@router.put(
    "/{vm_id}/console/sessions/{session_id}/input/{number}",
    response_model=ConsoleSession,
    responses=problem_responses(404, 409),
)
def type_on_a_console(
    number: Number, body: ConsoleKeystrokes, held: HeldSessionDep
) -> ConsoleSession:
    """Type on the console of a session. The input is stored until a worker passes it on."""
    sessions = held.services.registry.console_sessions
    try:
        session = sessions.store_input(
            held.vm_id, held.session_id, number, _decode_keystrokes(body)
        )
    except ConflictError as error:  # it may say why the session is over
        raise ConflictError(held.reader.redact_text(str(error))) from error
    return redact_session(session, held.reader)


@router.delete(
    "/{vm_id}/console/sessions/{session_id}", status_code=204, responses=problem_responses(404)
)
def close_a_console(held: HeldSessionDep) -> None:
    """Close a session."""
    sessions = held.services.registry.console_sessions
    sessions.close(held.vm_id, held.session_id, actor=held.caller.actor)


def _decode_keystrokes(body: ConsoleKeystrokes) -> bytes:
    try:
        return base64.b64decode(body.content, validate=True)
    except (binascii.Error, ValueError) as error:
        found = f"{len(body.content)} characters"
        raise InvalidError("content", found, "base64 of the input") from error
