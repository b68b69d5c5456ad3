"""/v1/vms/{id}/stop, start and reboot, for one VM and for all of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Body, Depends, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.host_aliases import Viewer
from controller.rest.dependencies import Services, ServicesDep, ViewerDep
from controller.rest.idempotency_keys import Creation, IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Caller, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.redaction import redact_request, redact_vm
from controller.rest.routers.requests import own_request
from controller.rest.routers.vms import own_vm
from controller.rest.schemas.requests import ShutdownInput, StartInput
from registry import InvalidError, VmDesiredEvent
from registry.requests import Request, Vm

_VM: Final = TypeAdapter(Vm)
_REQUEST: Final = TypeAdapter(Request)


@dataclass(frozen=True, slots=True)
class PowerSwitch:
    """Requests power changes of VMs for one caller."""

    caller: Caller
    reader: Viewer
    services: Services
    creation: Creation

    def switch_vm(
        self, vm_id: UUID, event: VmDesiredEvent, body: ShutdownInput | StartInput
    ) -> Response:
        """Request a power change of one VM."""
        own_vm(self.services.registry, vm_id, self.caller)
        timeout_s = self._timeout_s(body)

        return self.creation.answer(
            body,
            lambda registry: registry.vms.change_power(
                vm_id, event, timeout_s=timeout_s, actor=self.caller.actor
            ),
            status=202,
            adapter=_VM,
            shown=lambda vm: _VM.dump_json(redact_vm(vm, self.reader)),
        )

    def switch_request(
        self, request_id: UUID, event: VmDesiredEvent, body: ShutdownInput | StartInput
    ) -> Response:
        """Request a power change of all VMs of a request."""
        own_request(self.services.registry, request_id, self.caller)
        timeout_s = self._timeout_s(body)

        return self.creation.answer(
            body,
            lambda registry: registry.requests.change_power(
                request_id, event, timeout_s=timeout_s, actor=self.caller.actor
            ),
            status=202,
            adapter=_REQUEST,
            shown=lambda request: _REQUEST.dump_json(redact_request(request, self.reader)),
        )

    def _timeout_s(self, body: ShutdownInput | StartInput) -> int:
        """Return the seconds for guests to shut down: 0 if forced, by default the site's."""
        if isinstance(body, StartInput):
            return self.services.shutdown_timeout_s
        if body.force and body.timeout_s is not None:
            raise InvalidError("timeout_s", body.timeout_s, "no timeout together with force")
        if body.force:
            return 0
        return self.services.shutdown_timeout_s if body.timeout_s is None else body.timeout_s


def _power_switch(
    caller: AnyCaller, reader: ViewerDep, services: ServicesDep, creation: IdempotencyDep
) -> PowerSwitch:
    return PowerSwitch(caller, reader, services, creation)


PowerSwitchDep = Annotated[PowerSwitch, Depends(_power_switch)]
Shutdown = Annotated[ShutdownInput, Body(default_factory=ShutdownInput)]
Start = Annotated[StartInput, Body(default_factory=StartInput)]

vms = APIRouter(
    prefix="/vms/{vm_id}", tags=["vms"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
requests = APIRouter(
    prefix="/requests/{request_id}",
    tags=["requests"],
    dependencies=[Security(bearer)],
    route_class=BoundedRoute,
)


@vms.post("/stop", status_code=202, response_model=Vm, responses=problem_responses(404, 409))
def stop_vm(vm_id: UUID, body: Shutdown, switch: PowerSwitchDep) -> Response:
    """Shut a VM down; it keeps its host and its share. After the timeout its power is cut."""
    return switch.switch_vm(vm_id, VmDesiredEvent.STOP, body)


@vms.post("/start", status_code=202, response_model=Vm, responses=problem_responses(404, 409))
def start_vm(vm_id: UUID, body: Start, switch: PowerSwitchDep) -> Response:
    """Start a VM that is off, on its host."""
    return switch.switch_vm(vm_id, VmDesiredEvent.START, body)


@vms.post("/reboot", status_code=202, response_model=Vm, responses=problem_responses(404, 409))
def reboot_vm(vm_id: UUID, body: Shutdown, switch: PowerSwitchDep) -> Response:
    """Shut a VM down and start it again. After the timeout it is reset."""
    return switch.switch_vm(vm_id, VmDesiredEvent.REBOOT, body)


@requests.post(
    "/stop", status_code=202, response_model=Request, responses=problem_responses(404, 409)
)
def stop_vms_of_request(request_id: UUID, body: Shutdown, switch: PowerSwitchDep) -> Response:
    """Shut down all VMs of a request. Unplaced VMs are not placed until started."""
    return switch.switch_request(request_id, VmDesiredEvent.STOP, body)


@requests.post(
    "/start", status_code=202, response_model=Request, responses=problem_responses(404, 409)
)
def start_vms_of_request(request_id: UUID, body: Start, switch: PowerSwitchDep) -> Response:
    """Start all VMs of a request that are off."""
    return switch.switch_request(request_id, VmDesiredEvent.START, body)


@requests.post(
    "/reboot", status_code=202, response_model=Request, responses=problem_responses(404, 409)
)
def reboot_vms_of_request(request_id: UUID, body: Shutdown, switch: PowerSwitchDep) -> Response:
    """Reboot all VMs of a request that run."""
    return switch.switch_request(request_id, VmDesiredEvent.REBOOT, body)


router = APIRouter()
router.include_router(vms)
router.include_router(requests)
