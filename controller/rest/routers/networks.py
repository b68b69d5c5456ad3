"""/v1/networks: the networks of VMs. Operators create them, tenants choose."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.rest.dependencies import RegistryDep
from controller.rest.etags import ETagDep
from controller.rest.idempotency_keys import IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.redaction import redact_network, redact_page
from controller.rest.schemas.offers import (
    NetworkChange,
    NetworkInput,
    NetworkSourceInput,
    SubnetInput,
)
from controller.rest.schemas.values import Name, PageOf, PageQuery
from registry import NotFoundError, Registry, UnknownNameError
from registry.db import Page
from registry.networks import Network, NetworkSource, Offers, Subnet

router = APIRouter(
    prefix="/networks", tags=["networks"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_ADAPTER: Final = TypeAdapter(Network)


@router.post("", status_code=201, response_model=Network, responses=problem_responses(403, 409))
def add_network(body: NetworkInput, caller: Operator, creation: IdempotencyDep) -> Response:
    """Add a network."""

    def create(registry: Registry) -> Network:
        try:
            return registry.networks.add(
                body.name,
                default=_to_optional_source(body.default),
                hosts={host: _to_network_source(source) for host, source in body.hosts.items()},
                subnet=_to_subnet(body.subnet),
                tenant=body.tenant,
                offered_to=body.offered_to,
                isolated=body.isolated,
                filtered=body.filtered,
                actor=caller.actor,
            )
        except NotFoundError as error:
            raise _unknown_name_error(error) from error

    return creation.answer(body, create, status=201, adapter=_ADAPTER)


@router.get("", response_model=PageOf[Network])
def list_networks(
    query: Annotated[PageQuery, Query()], caller: AnyCaller, registry: RegistryDep
) -> Page[Network]:
    """List the networks that the caller may see."""
    page = registry.networks.list(tenant=caller.tenant, limit=query.limit, cursor=query.cursor)
    return redact_page(page, redact_network, caller)


@router.get("/{name}", response_model=Network, responses=problem_responses(404))
def show_network(name: Name, caller: AnyCaller, registry: RegistryDep, shown: ETagDep) -> Network:
    """Show a network."""
    return redact_network(shown(registry.networks.get(name, tenant=caller.tenant)), caller)


@router.patch("/{name}", response_model=Network, responses=problem_responses(403, 404, 409))
def change_network(
    name: Name, body: NetworkChange, caller: Operator, registry: RegistryDep
) -> Network:
    """Change a network's names on hosts, its users and its filters.

    Running VMs follow at their next start.
    """
    offers = Offers(body.offered_to) if "offered_to" in body.model_fields_set else None
    try:
        return registry.networks.change(
            name,
            hosts={host: _to_optional_source(source) for host, source in body.hosts.items()},
            offers=offers,
            isolated=body.isolated,
            filtered=body.filtered,
            actor=caller.actor,
        )
    except NotFoundError as error:
        if error.kind == "network":
            raise
        raise _unknown_name_error(error) from error


@router.delete("/{name}", response_model=Network, responses=problem_responses(403, 404, 409))
def remove_network(name: Name, caller: Operator, registry: RegistryDep) -> Network:
    """Remove a network. Refused while requests or VMs use it."""
    return registry.networks.remove(name, actor=caller.actor)


def _unknown_name_error(error: NotFoundError) -> UnknownNameError:
    """Return the error for an unknown host or tenant in the body of a network."""
    return UnknownNameError("hosts" if error.kind == "host" else "tenant", error.kind, error.key)


def _to_optional_source(given: NetworkSourceInput | None) -> NetworkSource | None:
    return None if given is None else _to_network_source(given)


def _to_network_source(source: NetworkSourceInput) -> NetworkSource:
    return NetworkSource(kind=source.kind, name=source.name)


def _to_subnet(given: SubnetInput | None) -> Subnet | None:
    if given is None:
        return None
    return Subnet(
        cidr=given.cidr, gateway=given.gateway, dns=tuple(given.dns), excluded=tuple(given.excluded)
    )
