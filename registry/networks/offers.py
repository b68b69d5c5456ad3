"""Offers of networks: to everybody, to some tenants and groups, or to the owner alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, delete, exists, insert, or_, select

from registry.db.names import lookup_name
from registry.db.schema import network_offers, networks, tenants
from registry.errors import InvalidError, UnknownNameError
from registry.tenancy.tree import read_path

MAX_OFFERS: Final = 1_000


def is_offered_to(connection: Connection, tenant_id: UUID) -> ColumnElement[bool]:
    """Return the condition that a network is offered to a tenant.

    An offer to a group includes all tenants below it.
    """
    path = read_path(connection, tenant_id)
    offered = exists().where(
        network_offers.c.network_id == networks.c.id, network_offers.c.tenant_id.in_(path)
    )
    return or_(networks.c.offered_to_all, offered)


def offered_to_tenant(connection: Connection, tenant: str | None) -> ColumnElement[bool] | None:
    """Return the SQL condition for networks that are offered to a tenant, by its name.

    None for operators, who see all.
    """
    if tenant is None:
        return None
    query = select(tenants.c.id).where(tenants.c.name == tenant, tenants.c.removed_at.is_(None))
    key = connection.scalar(query)
    return networks.c.offered_to_all if key is None else is_offered_to(connection, key)


def set_owner(connection: Connection, network_id: UUID, name: str) -> None:
    """Make a tenant or group the owner of a new network."""
    [key] = _tenant_ids(connection, "tenant", [name])
    row = {"network_id": network_id, "tenant_id": key, "owns": True}
    connection.execute(insert(network_offers).values(row))


def set_offers(connection: Connection, network_id: UUID, names: Sequence[str]) -> None:
    """Replace the tenants and groups to whom a network is offered."""
    if len(names) > MAX_OFFERS:
        raise InvalidError("offered_to", len(names), f"at most {MAX_OFFERS} tenants and groups")
    keys = _tenant_ids(connection, "offered_to", names)
    connection.execute(delete(network_offers).where(network_offers.c.network_id == network_id))
    if keys:
        rows = [{"network_id": network_id, "tenant_id": key, "owns": False} for key in keys]
        connection.execute(insert(network_offers), rows)


def read_offers(
    connection: Connection, network_ids: Collection[UUID]
) -> tuple[Mapping[UUID, str], Mapping[UUID, tuple[str, ...]]]:
    """Return the owners of networks, and the tenants and groups to whom they are offered."""
    owners: dict[UUID, str] = {}
    offers: defaultdict[UUID, list[str]] = defaultdict(list)
    query = (
        select(network_offers.c.network_id, network_offers.c.owns, tenants.c.name)
        .join(tenants, tenants.c.id == network_offers.c.tenant_id)
        .where(network_offers.c.network_id.in_(network_ids))
        .order_by(tenants.c.name)
    )
    for row in connection.execute(query):
        if row.owns:
            owners[row.network_id] = row.name
        else:
            offers[row.network_id].append(row.name)
    return owners, {key: tuple(names) for key, names in offers.items()}


def _tenant_ids(connection: Connection, field: str, names: Sequence[str]) -> list[UUID]:
    """Lock the tenants and groups with these names, and return their ids."""
    wanted = sorted({lookup_name("tenant", name) for name in names})
    query = (
        select(tenants.c.id, tenants.c.name)
        .where(tenants.c.name.in_(wanted), tenants.c.removed_at.is_(None))
        .order_by(tenants.c.id)
        # The lock keeps the tenant from removal while a network is given to it.
        .with_for_update(key_share=True)
    )
    found = {row.name: row.id for row in connection.execute(query)}
    for name in wanted:
        if name not in found:
            raise UnknownNameError(field, "tenant or group", name)
    return list(found.values())
