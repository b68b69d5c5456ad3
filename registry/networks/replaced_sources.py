"""Network sources that a mapping replaced on a host, while VMs are still attached to them.

A VM keeps its source while it has a place on its host, also when it is started again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, delete, exists, func, insert, select

from registry.db.bulk import is_any_of
from registry.db.schema import assignments, hosts, interfaces, unreleased
from registry.db.schema import network_former_sources as left
from registry.records.networks import NetworkSource


@dataclass(frozen=True, slots=True)
class ReplacedSource:
    """A former source of a network on a host, which VMs still use."""

    network_id: UUID
    host: str
    source: NetworkSource


def store_replaced_source(
    connection: Connection, network_id: UUID, host_id: UUID, source: NetworkSource
) -> None:
    """Store a network's replaced source while VMs that have a place on the host use it.

    The caller has locked the host, so nothing can be placed there.
    """
    newest = connection.scalar(
        select(func.max(assignments.c.created_at))
        .join(interfaces, interfaces.c.vm_id == assignments.c.vm_id)
        .where(assignments.c.host_id == host_id, unreleased, interfaces.c.network_id == network_id)
    )
    if newest is None:
        return
    row = {"network_id": network_id, "host_id": host_id, "kind": source.kind, "source": source.name}
    same = (left.c[name] == value for name, value in row.items())
    connection.execute(delete(left).where(*same))
    connection.execute(insert(left).values(placed_until=newest, **row))


def replaced_sources(connection: Connection, network_ids: Collection[UUID]) -> list[ReplacedSource]:
    """Return the replaced sources that VMs of these networks still use, by host and name."""
    query = (
        select(left, hosts.c.name.label("host"))
        .join(hosts, hosts.c.id == left.c.host_id)
        .where(is_any_of(connection, left.c.network_id, sorted(network_ids)), _is_source_in_use())
        .order_by(hosts.c.name, left.c.kind, left.c.source)
    )
    return [
        ReplacedSource(row.network_id, row.host, NetworkSource(kind=row.kind, name=row.source))
        for row in connection.execute(query)
    ]


def delete_unused_sources(connection: Connection, network_id: UUID) -> None:
    """Delete the replaced sources of a network that no VM uses any more."""
    connection.execute(delete(left).where(left.c.network_id == network_id, ~_is_source_in_use()))


def _is_source_in_use() -> ColumnElement[bool]:
    """Return the condition that a VM placed before the mapping still uses the replaced source."""
    query = (
        select(assignments.c.id)
        .join(interfaces, interfaces.c.vm_id == assignments.c.vm_id)
        .where(
            interfaces.c.network_id == left.c.network_id,
            assignments.c.host_id == left.c.host_id,
            assignments.c.created_at <= left.c.placed_until,
            unreleased,
        )
    )
    return exists(query.correlate(left))
