"""/v1/networks: what VMs are attached to. Operators make them; tenants choose."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.rest.auth import AnyCaller, Operator, bearer
from controller.rest.dependencies import GivenRegistry
from controller.rest.idempotency import GivenCreation
from controller.rest.openapi import problems
from controller.rest.schemas import (
    Name,
    NetworkChange,
    NetworkInput,
    NetworkSourceInput,
    PageOf,
    PageQuery,
    SubnetInput,
)
from controller.rest.telling import told_network, told_page
from registry import InvalidError, Network, NetworkSource, NotFoundError, Page, Subnet

router = APIRouter(prefix="/networks", tags=["networks"], dependencies=[Security(bearer)])
_ADAPTER: Final = TypeAdapter(Network)


@router.post("", status_code=201, response_model=Network, responses=problems(403, 409))
def add_network(
    body: NetworkInput, caller: Operator, registry: GivenRegistry, creation: GivenCreation
) -> Response:
    """Add a network."""

    def create() -> Network:
        try:
            return registry.networks.add(
                body.name,
                default=_source(body.default),
                hosts={host: _given(source) for host, source in body.hosts.items()},
                subnet=_subnet(body.subnet),
                actor=caller.actor,
            )
        except NotFoundError as error:
            raise InvalidError("hosts", error.key, "names of hosts") from error

    return creation.answer(body, create, status=201, adapter=_ADAPTER)


@router.get("", response_model=PageOf[Network])
def list_networks(
    query: Annotated[PageQuery, Query()], caller: AnyCaller, registry: GivenRegistry
) -> Page[Network]:
    """List networks."""
    page = registry.networks.list(limit=query.limit, cursor=query.cursor)
    return told_page(page, told_network, caller)


@router.get("/{name}", response_model=Network, responses=problems(404))
def show_network(name: Name, caller: AnyCaller, registry: GivenRegistry) -> Network:
    """Show a network."""
    return told_network(registry.networks.get(name), caller)


@router.patch("/{name}", response_model=Network, responses=problems(403, 404))
def map_network(
    name: Name, body: NetworkChange, caller: Operator, registry: GivenRegistry
) -> Network:
    """Say what hosts call a network. VMs that run there stay as they are."""
    hosts = {host: _source(source) for host, source in body.hosts.items()}
    try:
        return registry.networks.map_hosts(name, hosts, actor=caller.actor)
    except NotFoundError as error:
        if error.kind == "network":
            raise
        raise InvalidError("hosts", error.key, "names of hosts") from error


@router.delete("/{name}", response_model=Network, responses=problems(403, 404, 409))
def remove_network(name: Name, caller: Operator, registry: GivenRegistry) -> Network:
    """Remove a network. Refused while requests or VMs use it."""
    return registry.networks.remove(name, actor=caller.actor)


def _source(given: NetworkSourceInput | None) -> NetworkSource | None:
    return None if given is None else _given(given)


def _given(source: NetworkSourceInput) -> NetworkSource:
    return NetworkSource(kind=source.kind, name=source.name)


def _subnet(given: SubnetInput | None) -> Subnet | None:
    if given is None:
        return None
    return Subnet(
        cidr=given.cidr,
        gateway=given.gateway,
        dns=tuple(given.dns),
        excluded=tuple(given.excluded),
    )
