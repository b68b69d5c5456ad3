"""/v1/requests: request VMs, follow requests, delete them."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Final
from uuid import UUID

import structlog
from fastapi import APIRouter, Query, Security
from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from controller.host_aliases import Viewer
from controller.queries.explanations import RequestExplanation
from controller.queries.request_explanation import explain_request
from controller.rest.call_batches import CallBatcher
from controller.rest.dependencies import RegistryDep, ServicesDep, ViewerDep, reader_of, services_of
from controller.rest.etags import ETagDep
from controller.rest.idempotency_keys import IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Caller, bearer, caller_of
from controller.rest.pages.openapi import problem_responses
from controller.rest.redaction import redact_page, redact_request
from controller.rest.schemas.requests import RequestChange, RequestInput, RequestsQuery
from controller.rest.schemas.values import PageOf
from registry import NotFoundError, Registry, RegistryError, UnknownNameError
from registry.audit import IdempotencyKey
from registry.db import Page
from registry.requests import (
    NO_RULES,
    CreateRequestCommand,
    Request,
    RequestSpec,
    can_batch,
    check_spec,
)

log: Final = structlog.get_logger(__name__)

router = APIRouter(
    prefix="/requests", tags=["requests"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
#: Requests accepted in one transaction: other requests for the same tenants wait for it.
MAX_PER_BATCH: Final = 64
_ADAPTER: Final = TypeAdapter(Request)
_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {"VM type": "vm_type", "host": "hosts", "reservation": "reservation", "volume": "volumes"}
)


@router.post("", status_code=201, response_model=Request, responses=problem_responses(403, 409))
async def ask_for_vms(
    body: RequestInput, request: HttpRequest, creation: IdempotencyDep
) -> Response:
    """Request VMs. The next slot places them as far as they fit."""
    caller, services = caller_of(request), services_of(request)
    reader = reader_of(request)
    tenant = caller.owning_tenant(body.tenant, "request VMs")
    hosts = None
    if body.hosts is not None:
        hosts = await run_in_threadpool(_resolve_hosts, body.hosts, reader)
    user_data = None if body.user_data is None else base64.b64decode(body.user_data)
    ignored = None
    if user_data is not None:
        from controller.cloud_init import ignored_reason  # noqa: PLC0415 - YAML, seldom needed

        ignored = await run_in_threadpool(ignored_reason, user_data)
    spec = RequestSpec(
        tenant=tenant,
        vm_type=body.vm_type,
        count=body.count,
        min_count=body.min_count,
        name=body.name,
        requires=body.requires,
        hosts=hosts,
        network=body.network,
        labels=body.labels,
        ttl_s=body.ttl_s,
        ssh_keys=body.ssh_keys,
        user_data=user_data,
        user_data_ignored=ignored,
        hostname=body.hostname,
        image=body.image or services.default_image,
        rules=body.rules.as_rules() if "rules" in body.model_fields_set else NO_RULES,
        priority=body.priority,
        spot=body.spot,
        reservation=body.reservation,
        max_count=body.max_count,
        volumes=body.volumes,
        new_volumes=[each.as_volume() for each in body.new_volumes],
    )
    spec = check_spec(spec)

    async def create(key: IdempotencyKey | None) -> Request:
        command = CreateRequestCommand(
            spec=spec,
            actor=caller.actor,
            over_quota=services.over_quota,
            idempotency=key,
            call=request.scope["state"].get("writing"),
        )
        try:
            made = await accept_request(command, services.request_batches, services.registry)
        except NotFoundError as error:  # of something the body names, not of this path
            field = _FIELDS.get(error.kind, error.kind)
            named = reader.host(error.key) if error.kind == "host" else error.key
            raise UnknownNameError(field, error.kind, named) from error
        log.info("request_accepted", request_id=str(made.id), tenant=tenant, count=made.count)
        return made

    def shown(made: Request) -> bytes:
        return _ADAPTER.dump_json(redact_request(made, reader))

    return await creation.answer_batched(body, create, status=201, adapter=_ADAPTER, shown=shown)


@router.get("", response_model=PageOf[Request], responses=problem_responses(403))
def list_requests(
    query: Annotated[RequestsQuery, Query()],
    caller: AnyCaller,
    reader: ViewerDep,
    registry: RegistryDep,
) -> Page[Request]:
    """List requests, oldest first."""
    page = registry.requests.list(
        tenant=caller.tenant_to_list(query.tenant, registry),
        state=query.state,
        name=query.name,
        search=query.search,
        labels=query.label,
        limit=query.limit,
        cursor=query.cursor,
    )
    return redact_page(page, redact_request, reader)


@router.get("/{request_id}", response_model=Request, responses=problem_responses(404))
def show_request(
    request_id: UUID, caller: AnyCaller, reader: ViewerDep, registry: RegistryDep, shown: ETagDep
) -> Request:
    """Show a request."""
    return redact_request(shown(own_request(registry, request_id, caller)), reader)


@router.patch("/{request_id}", response_model=Request, responses=problem_responses(403, 404, 409))
def change_request(
    request_id: UUID,
    body: RequestChange,
    caller: AnyCaller,
    reader: ViewerDep,
    services: ServicesDep,
) -> Request:
    """Change the number of VMs, the labels, or the end of a request."""
    own_request(services.registry, request_id, caller)
    changed = services.registry.requests.change(
        request_id,
        count=body.count,
        max_count=body.max_count,
        remove=body.remove,
        labels=body.labels,
        ttl_s=body.ttl_s if isinstance(body.ttl_s, int) else None,
        never_expires=body.ttl_s == "never",
        over_quota=services.over_quota,
        actor=caller.actor,
    )
    return redact_request(changed, reader)


@router.delete(
    "/{request_id}", status_code=202, response_model=Request, responses=problem_responses(404)
)
def delete_request(
    request_id: UUID, caller: AnyCaller, reader: ViewerDep, registry: RegistryDep
) -> Request:
    """Delete a request and all its VMs. It is `released` when the last VM is gone."""
    own_request(registry, request_id, caller)
    return redact_request(registry.requests.delete(request_id, actor=caller.actor), reader)


@router.get(
    "/{request_id}/explanation", response_model=RequestExplanation, responses=problem_responses(404)
)
def explain_a_request(
    request_id: UUID, caller: AnyCaller, reader: ViewerDep, services: ServicesDep
) -> RequestExplanation:
    """Explain why VMs of a request wait, resource by resource, with an estimate of the wait.

    The estimate is made on demand, in a few seconds; until then `estimate.unavailable` is
    `being_made`.
    """
    own_request(services.registry, request_id, caller)
    return explain_request(services.registry, request_id, reader, services.waiting_times)


def request_batches(
    registry: Registry,
) -> CallBatcher[CreateRequestCommand, Request | RegistryError | None]:
    """Return the batcher that accepts simultaneous requests in one transaction."""

    def create_batch(
        commands: Sequence[CreateRequestCommand],
    ) -> Sequence[Request | RegistryError | None]:
        return registry.requests.accept_batch(commands)

    return CallBatcher(create_batch, max_members=MAX_PER_BATCH)


async def accept_request(
    command: CreateRequestCommand,
    gathering: CallBatcher[CreateRequestCommand, Request | RegistryError | None],
    registry: Registry,
) -> Request:
    """Accept a request, in a batch with simultaneous ones if it can be batched."""
    if can_batch(command):
        made = await gathering.result(command)
        if isinstance(made, RegistryError):
            raise made
        if made is not None:
            return made
    return await run_in_threadpool(registry.requests.accept, command)


def own_request(registry: Registry, request_id: UUID, caller: Caller) -> Request:
    """Return a request that the caller may see, else raise `NotFoundError`.

    The caller is checked before the request is read.
    """
    if not caller.is_operator and not caller.sees(registry.requests.tenant_of(request_id)):
        raise NotFoundError("request", request_id)
    return registry.requests.get(request_id)


def _resolve_hosts(given: Sequence[str], reader: Viewer) -> tuple[str, ...]:
    return tuple(reader.resolve_name("hosts", name) for name in given)
