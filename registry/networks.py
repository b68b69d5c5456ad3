"""Networks: a name for what each host calls it, and the addresses that VMs get there.

A request that names no network gets that of each host's own settings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from registry.bulk import chunks
from registry.clock import db_now
from registry.engine import Database, retried
from registry.errors import ConflictError, DuplicateError, InvalidError, NotFoundError
from registry.events import event_row, record
from registry.ids import uuid7
from registry.lifecycle import FINISHED, HostAdmin
from registry.locks import lock_hosts, take_turns
from registry.names import check_name, look_up
from registry.pages import DEFAULT_LIMIT, Page, check_limit, decode_cursor, page_of
from registry.records import Network, NetworkSource
from registry.schema import (
    hosts,
    interfaces,
    network_addresses,
    network_hosts,
    networks,
    request_networks,
    requests,
    vms,
)
from registry.stray_addresses import free_stray_addresses
from registry.subnets import Subnet, check_subnet, parse_subnet, usable

MAX_SOURCE_LENGTH: Final = 128


class Networks:
    """Adds, reads, maps and removes networks."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @retried
    def add(
        self,
        name: str,
        *,
        default: NetworkSource | None = None,
        hosts: Mapping[str, NetworkSource] | None = None,
        subnet: Subnet | None = None,
        actor: str,
    ) -> Network:
        """Add a network, with a row for each address that its subnet offers."""
        check_name("name", name)
        if default is None and not hosts:
            raise InvalidError("default", None, "a source for all hosts, or one for each in hosts")
        for field, source in _sources(default, hosts or {}):
            _check_source(field, source)
        subnet = check_subnet(subnet) if subnet is not None else None
        key = uuid7()
        with self._database.write() as connection:
            now = db_now(connection)
            try:
                connection.execute(
                    insert(networks).values(
                        id=key,
                        name=name,
                        kind=default.kind if default is not None else None,
                        source=default.name if default is not None else None,
                        cidr=subnet.cidr if subnet is not None else None,
                        gateway=subnet.gateway if subnet is not None else None,
                        dns=list(subnet.dns) if subnet is not None else [],
                        excluded=list(subnet.excluded) if subnet is not None else [],
                        created_at=now,
                    )
                )
            except IntegrityError as error:
                raise DuplicateError("network", "name", name) from error
            _map(connection, key, dict(hosts or {}))
            offered = list(usable(subnet)) if subnet is not None else []
            for some in chunks(offered):
                rows = [{"network_id": key, "address": number} for number in some]
                connection.execute(insert(network_addresses), rows)
            data = {"name": name, "cidr": subnet.cidr if subnet is not None else None}
            record(connection, [event_row(now, actor, "network_added", "network", key, data=data)])
            return _get(connection, name)

    @retried
    def free_stray_addresses(self, *, actor: str) -> tuple[str, ...]:
        """Free the addresses of VMs that do not need them; return a sentence on each."""
        with self._database.write() as connection:
            return tuple(free_stray_addresses(connection, actor=actor))

    def list(self, *, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> Page[Network]:
        """Return a page, by name."""
        query = select(networks).order_by(networks.c.name).limit(check_limit(limit) + 1)
        if cursor is not None:
            (after,) = decode_cursor(cursor, str)
            query = query.where(networks.c.name > after)
        with self._database.read() as connection:
            found = _read(connection, connection.execute(query).all())
        return page_of(found, limit, lambda network: (network.name,))

    def get(self, name: str) -> Network:
        """Return one, or raise `NotFoundError`."""
        with self._database.read() as connection:
            return _get(connection, name)

    @retried
    def map_hosts(
        self, name: str, hosts: Mapping[str, NetworkSource | None], *, actor: str
    ) -> Network:
        """Say what hosts call a network; None: as the default says. What runs stays as it is."""
        for host, source in hosts.items():
            if source is not None:
                _check_source(f"hosts.{host}", source)
        with self._database.write() as connection:
            key = network_id(connection, name)
            take_turns(connection, f"network {key}")
            _map(connection, key, hosts)
            now = db_now(connection)
            data = {"name": name, "hosts": sorted(hosts)}
            record(connection, [event_row(now, actor, "network_mapped", "network", key, data=data)])
            return _get(connection, name)

    @retried
    def remove(self, name: str, *, actor: str) -> Network:
        """Remove a network that no live request or VM uses."""
        with self._database.write() as connection:
            key = network_id(connection, name)
            take_turns(connection, f"network {key}")
            gone = _get(connection, name)
            used = _users(connection, key)
            if used:
                raise ConflictError(
                    f"network {name} is used by {used} requests and VMs: delete them first"
                )
            # What is over keeps its record, without the network.
            connection.execute(delete(request_networks).where(request_networks.c.network_id == key))
            connection.execute(
                update(interfaces).where(interfaces.c.network_id == key).values(network_id=None)
            )
            for table in (network_addresses, network_hosts):
                connection.execute(delete(table).where(table.c.network_id == key))
            connection.execute(delete(networks).where(networks.c.id == key))
            now = db_now(connection)
            data = {"name": name}
            record(
                connection, [event_row(now, actor, "network_removed", "network", key, data=data)]
            )
            return gone


def network_id(connection: Connection, name: str) -> UUID:
    """Return a network's id, or raise `NotFoundError`."""
    query = select(networks.c.id).where(networks.c.name == look_up("network", name))
    found: UUID | None = connection.scalar(query)
    if found is None:
        raise NotFoundError("network", name)
    return found


def put_on_network(connection: Connection, request_id: UUID, name: str) -> UUID:
    """Write that the VMs of a request are on a network, which thereby cannot be removed."""
    key = network_id(connection, name)
    take_turns(connection, f"network {key}")
    key = network_id(connection, name)  # still there, now that nobody can remove it
    connection.execute(insert(request_networks).values(request_id=request_id, network_id=key))
    return key


def networks_of(connection: Connection, request_ids: Iterable[UUID]) -> dict[UUID, str]:
    """Return the names of the networks that requests asked for."""
    found: dict[UUID, str] = {}
    for some in chunks(sorted(request_ids)):
        query = (
            select(request_networks.c.request_id, networks.c.name)
            .join(networks, networks.c.id == request_networks.c.network_id)
            .where(request_networks.c.request_id.in_(some))
        )
        found |= {row.request_id: row.name for row in connection.execute(query)}
    return found


def _sources(
    default: NetworkSource | None, mapped: Mapping[str, NetworkSource]
) -> Sequence[tuple[str, NetworkSource]]:
    named = [(f"hosts.{host}", source) for host, source in mapped.items()]
    return named if default is None else [("default", default), *named]


def _check_source(field: str, source: NetworkSource) -> None:
    if source.kind not in ("network", "bridge"):
        raise InvalidError(f"{field}.kind", source.kind, "network or bridge")
    if not (source.name.isprintable() and 1 <= len(source.name) <= MAX_SOURCE_LENGTH):
        raise InvalidError(f"{field}.name", source.name, "the name of a network or bridge there")


def _map(connection: Connection, key: UUID, wanted: Mapping[str, NetworkSource | None]) -> None:
    """Write what hosts call a network, and that a placement there may not hold any more."""
    known = {
        row.name: row.id
        for row in connection.execute(
            select(hosts.c.name, hosts.c.id).where(
                hosts.c.name.in_(sorted(look_up("host", name) for name in wanted)),
                hosts.c.admin != HostAdmin.RETIRED.value,
            )
        )
    }
    for name in wanted:
        if name not in known:
            raise NotFoundError("host", name)
    lock_hosts(connection, *known.values())
    for name, source in wanted.items():
        there = (
            network_hosts.c.network_id == key,
            network_hosts.c.host_id == known[name],
        )
        connection.execute(delete(network_hosts).where(*there))
        if source is not None:
            connection.execute(
                insert(network_hosts).values(
                    network_id=key, host_id=known[name], kind=source.kind, source=source.name
                )
            )
    for some in chunks(sorted(known.values())):
        connection.execute(
            update(hosts).where(hosts.c.id.in_(some)).values(version=hosts.c.version + 1)
        )


def _users(connection: Connection, key: UUID) -> int:
    finished = [state.value for state in FINISHED]
    asked = (
        select(func.count())
        .select_from(request_networks)
        .join(requests, requests.c.id == request_networks.c.request_id)
        .where(request_networks.c.network_id == key, requests.c.state.not_in(finished))
    )
    present = (
        select(func.count())
        .select_from(interfaces)
        .join(vms, vms.c.id == interfaces.c.vm_id)
        .where(interfaces.c.network_id == key, vms.c.deleted_at.is_(None))
    )
    return connection.execute(asked).scalar_one() + connection.execute(present).scalar_one()


def _get(connection: Connection, name: str) -> Network:
    query = select(networks).where(networks.c.name == look_up("network", name))
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFoundError("network", name)
    return _read(connection, [row])[0]


def _read(connection: Connection, rows: Sequence[Row[Any]]) -> tuple[Network, ...]:
    keys = [row.id for row in rows]
    mapped: defaultdict[UUID, dict[str, NetworkSource]] = defaultdict(dict)
    query = (
        select(network_hosts, hosts.c.name)
        .join(hosts, hosts.c.id == network_hosts.c.host_id)
        .where(network_hosts.c.network_id.in_(keys), hosts.c.admin != HostAdmin.RETIRED.value)
        .order_by(hosts.c.name)
    )
    for row in connection.execute(query):
        mapped[row.network_id][row.name] = NetworkSource(kind=row.kind, name=row.source)
    counted = {
        row.network_id: row
        for row in connection.execute(
            select(
                network_addresses.c.network_id,
                func.count().label("offered"),
                func.count(network_addresses.c.vm_id).label("used"),
            )
            .where(network_addresses.c.network_id.in_(keys))
            .group_by(network_addresses.c.network_id)
        )
    }
    return tuple(
        Network(
            name=row.name,
            default=(
                NetworkSource(kind=row.kind, name=row.source) if row.source is not None else None
            ),
            hosts=mapped[row.id],
            subnet=parse_subnet(row.cidr, row.gateway, row.dns, row.excluded),
            addresses=counted[row.id].offered if row.id in counted else 0,
            addresses_used=counted[row.id].used if row.id in counted else 0,
        )
        for row in rows
    )
