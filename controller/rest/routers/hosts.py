"""/v1/hosts: the hosts that run VMs. For operators."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final

from fastapi import APIRouter, Query, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.rest.dependencies import RegistryDep, ServicesDep
from controller.rest.etags import ETagDep
from controller.rest.idempotency_keys import IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.hosts import (
    FenceInput,
    HostChange,
    HostInput,
    HostRetirement,
    HostsQuery,
)
from controller.rest.schemas.values import Name, PageOf
from registry import HostAdminEvent
from registry.db import Page
from registry.hosts import Host, HostReport, NewHost

router = APIRouter(
    prefix="/hosts", tags=["hosts"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_ADAPTER: Final = TypeAdapter(Host)
_EVENTS: Final[Mapping[str, HostAdminEvent]] = MappingProxyType(
    {
        "active": HostAdminEvent.ACTIVATE,
        "draining": HostAdminEvent.DRAIN,
        "maintenance": HostAdminEvent.MAINTAIN,
    }
)


@router.post("", status_code=202, response_model=Host, responses=problem_responses(403, 409))
def register_host(
    body: HostInput, caller: Operator, services: ServicesDep, creation: IdempotencyDep
) -> Response:
    """Register a host. It takes VMs once the monitor reaches it and it is `up`."""
    kept = {
        name: amount
        for name, amount in services.host_reserved.items()
        if name not in body.overrides
    }
    new = NewHost(
        name=body.name,
        uri=body.uri,
        credential=body.credential,
        ssh_host_keys=tuple(body.ssh_host_keys),
        labels=tuple(body.labels),
        overrides=body.overrides,
        reserved={**kept, **body.reserved},
        ratios=body.ratios,
        domain_type=body.domain_type,
        pool=body.pool,
        network=body.network,
        base_volume=body.base_volume,
        memory_backing_mib=body.memory_backing_mib,
        max_builds=body.max_builds,
        fence_target=body.fence_target,
    )
    policy = services.uri_policy
    return creation.answer(
        body,
        lambda registry: registry.hosts.add(new, actor=caller.actor, uri_policy=policy),
        status=202,
        adapter=_ADAPTER,
    )


@router.get("", response_model=PageOf[Host], responses=problem_responses(403))
def list_hosts(
    query: Annotated[HostsQuery, Query()], caller: Operator, registry: RegistryDep
) -> Page[Host]:
    """List hosts."""
    return registry.hosts.list(
        search=query.search,
        limit=query.limit,
        cursor=query.cursor,
        include_retired=query.include_retired,
        address=query.address,
        mac=query.mac,
    )


@router.get("/{name}", response_model=Host, responses=problem_responses(403, 404))
def show_host(name: Name, caller: Operator, registry: RegistryDep, shown: ETagDep) -> Host:
    """Show a host."""
    return shown(registry.hosts.get(name))


@router.get("/{name}/report", response_model=HostReport, responses=problem_responses(403, 404))
def show_report(name: Name, caller: Operator, registry: RegistryDep) -> HostReport:
    """Show the monitor's last report: consumption, domains, volumes."""
    return registry.hosts.latest_report(name)


@router.patch("/{name}", response_model=Host, responses=problem_responses(403, 404, 409))
def change_host(
    name: Name, body: HostChange, caller: Operator, registry: RegistryDep, services: ServicesDep
) -> Host:
    """Change a host's settings, or drain, maintain or activate it."""
    values = body.model_dump(exclude={"admin"})
    changes = {field: value for field, value in values.items() if value is not None}
    if "credential" in body.model_fields_set:  # null says something there
        changes["credential"] = body.credential
    host = registry.hosts.get(name)
    if body.admin is not None:  # first: a retired host refuses, and then nothing has changed
        host = registry.hosts.change_admin(name, _EVENTS[body.admin], actor=caller.actor)
    if changes:
        policy = services.uri_policy
        host = registry.hosts.update(name, actor=caller.actor, uri_policy=policy, **changes)
    return host


@router.delete("/{name}", response_model=Host, responses=problem_responses(403, 404, 409))
def retire_host(
    name: Name, query: Annotated[HostRetirement, Query()], caller: Operator, registry: RegistryDep
) -> Host:
    """Retire a host. Refused while VMs hold resources of it: move them away first.

    Refused as well while its pool has volumes of tenants, unless the pool is lost.
    """
    return registry.hosts.change_admin(
        name, HostAdminEvent.RETIRE, actor=caller.actor, volumes_lost=query.volumes_lost
    )


@router.post(
    "/{name}/fence",
    status_code=202,
    response_model=Host,
    responses=problem_responses(403, 404, 409),
)
def fence_host(name: Name, body: FenceInput, caller: Operator, registry: RegistryDep) -> Host:
    """Fence a host that is down, or confirm that it is off; its VMs are placed elsewhere."""
    if body.by_hand:
        registry.fencing.confirm(name, actor=caller.actor)
    else:
        registry.fencing.request(name, actor=caller.actor)
    return registry.hosts.get(name)
