"""All hosts in columns, for a map of the site, with three queries."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    Select,
    String,
    func,
    select,
    type_coerce,
)

from registry.catalogue.resources import resource_names
from registry.db.clock import db_now
from registry.db.schema import assignments, hosts, inventories, tenants, unreleased
from registry.lifecycle import HostAdmin, HostHealth
from registry.records.hosts import HostMap, MappedResource


def _untyped_key(key: Column[Any]) -> ColumnElement[Any]:
    """Return a key column without conversion to UUIDs, which would be slow for 200,000 keys."""
    return type_coerce(key, String).label(key.name)


_HOSTS: Final[Select[Any]] = (
    select(
        _untyped_key(hosts.c.id),
        hosts.c.name,
        hosts.c.admin,
        hosts.c.health,
        hosts.c.labels,
        hosts.c.backoff_until,
        hosts.c.pool_silent_since,
        hosts.c.returning_since,
        hosts.c.same_machine_as,
    )
    .where(hosts.c.admin != HostAdmin.RETIRED.value)
    .order_by(hosts.c.name)
)
_AMOUNTS: Final = select(
    _untyped_key(inventories.c.host_id),
    inventories.c.resource,
    inventories.c.capacity,
    inventories.c.committed,
)
_HELD: Final = (
    select(_untyped_key(assignments.c.host_id), _untyped_key(assignments.c.tenant_id), func.count())
    .where(unreleased)
    .group_by(assignments.c.host_id, assignments.c.tenant_id)
    .order_by(assignments.c.host_id, func.count().desc(), assignments.c.tenant_id)
)


def host_map(connection: Connection) -> HostMap:
    """Return all hosts that are not retired, in columns, for a map of the site."""
    now = db_now(connection)
    rows = connection.execute(_HOSTS).all()
    places = {row.id: place for place, row in enumerate(rows)}
    labels: dict[str, int] = {}
    labels_of = tuple(
        tuple(labels.setdefault(each, len(labels)) for each in row.labels) for row in rows
    )
    holders, held_by = _vms_by_tenant(connection, places)
    return HostMap(
        at=now,
        names=tuple(row.name for row in rows),
        admin=tuple(HostAdmin(row.admin) for row in rows),
        health=tuple(HostHealth(row.health) for row in rows),
        closed=tuple(_closed_reason(row, now) for row in rows),
        labels=tuple(labels),
        labels_of=labels_of,
        resources=_mapped_resources(connection, places),
        tenants=holders,
        held_by=held_by,
    )


def _closed_reason(row: Row[Any], now: datetime) -> str | None:
    """Return why an active host gets no VMs for now, as a word of the map, or None."""
    if row.same_machine_as is not None:
        return "same_machine"
    if row.backoff_until is not None and row.backoff_until > now:
        return "held_back"
    if row.pool_silent_since is not None:
        return "pool_silent"
    return "returning" if row.returning_since is not None else None


def _mapped_resources(connection: Connection, places: dict[Any, int]) -> tuple[MappedResource, ...]:
    """Return capacity and committed amount of each resource, in the order of the map's hosts."""
    names = resource_names(connection)
    capacity = {name: [0] * len(places) for name in names}
    committed = {name: [0] * len(places) for name in names}
    for host_id, resource, offered, held in connection.execute(_AMOUNTS):
        place = places.get(host_id)
        if place is not None:
            capacity[resource][place] = offered
            committed[resource][place] = held
    return tuple(
        MappedResource(
            resource=name, capacity=tuple(capacity[name]), committed=tuple(committed[name])
        )
        for name in names
    )


def _vms_by_tenant(
    connection: Connection, places: dict[Any, int]
) -> tuple[tuple[str, ...], tuple[tuple[tuple[int, int], ...], ...]]:
    """Return the tenants with VMs, and each mapped host's VMs by tenant, the largest first."""
    named = {
        row.id: row.name
        for row in connection.execute(select(_untyped_key(tenants.c.id), tenants.c.name))
    }
    holders: dict[Any, int] = {}
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for host_id, tenant_id, vms in connection.execute(_HELD):
        place = places.get(host_id)
        if place is not None:
            found[place].append((holders.setdefault(tenant_id, len(holders)), vms))
    held_by = tuple(tuple(found.get(place, ())) for place in range(len(places)))
    return tuple(named[key] for key in holders), held_by
