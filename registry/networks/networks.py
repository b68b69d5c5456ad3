"""Networks: names that are mapped to each host's source, and the addresses of VMs.

VMs of a request without a network are attached to the network in the host's own settings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from registry.audit.events import event_row, record_event, record_events
from registry.db.bulk import chunks
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.idempotency_keys import store_result
from registry.db.ids import uuid7
from registry.db.locks import lock_hosts, take_advisory_lock
from registry.db.names import check_new_name, lookup_name
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, decode_cursor, page_of
from registry.db.schema import (
    hosts,
    interfaces,
    network_addresses,
    network_former_sources,
    network_hosts,
    network_offers,
    networks,
    request_networks,
    requests,
    vms,
)
from registry.errors import ConflictError, DuplicateError, InvalidError, NotFoundError
from registry.lifecycle import FINISHED, HostAdmin
from registry.networks.isolation import isolation_warning
from registry.networks.offers import (
    is_offered_to,
    offered_to_tenant,
    read_offers,
    set_offers,
    set_owner,
)
from registry.networks.overlaps import (
    lock_subnets,
    refuse_addresses_of_hosts,
    refuse_overlaps,
    subnet_warnings,
)
from registry.networks.replaced_sources import delete_unused_sources, store_replaced_source
from registry.networks.stray_addresses import free_stray_addresses
from registry.records.networks import Network, NetworkSource
from registry.subnets import Subnet, check_subnet, parse_subnet, usable_addresses

MAX_SOURCE_LENGTH: Final = 128


@dataclass(frozen=True, slots=True)
class Offers:
    """The tenants and groups to whom a network is offered; None means all."""

    to: Sequence[str] | None


class Networks(Repository):
    """Adds, reads, maps and removes networks."""

    @retry_on_rollback
    def add(
        self,
        name: str,
        *,
        default: NetworkSource | None = None,
        hosts: Mapping[str, NetworkSource] | None = None,
        subnet: Subnet | None = None,
        tenant: str | None = None,
        offered_to: Sequence[str] | None = None,
        isolated: bool | None = None,
        filtered: bool = True,
        actor: str,
    ) -> Network:
        """Add a network, with a row for each address that its subnet offers.

        Parameters
        ----------
        tenant : str, optional
            The tenant or group that owns it, and alone sees and uses it.
        offered_to : sequence of str, optional
            Tenants and groups that may use it if it has no owner; None means all.
        isolated : bool, optional
            Whether its VMs cannot reach each other; the default is true if tenants share it.
        """
        check_new_name("name", name)
        if default is None and not hosts:
            raise InvalidError("default", None, "a source for all hosts, or one for each in hosts")
        for field, source in _named_sources(default, hosts or {}):
            _check_source(field, source)
        if tenant is not None and offered_to is not None:
            raise InvalidError("offered_to", list(offered_to), "none for a network that is owned")
        subnet = check_subnet(subnet) if subnet is not None else None
        key = uuid7()
        with self._database.write() as connection:
            lock_subnets(connection)
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
                        offered_to_all=tenant is None and offered_to is None,
                        isolated=tenant is None if isolated is None else isolated,
                        filtered=filtered,
                    )
                )
            except IntegrityError as error:
                raise DuplicateError("network", "name", name) from error
            if tenant is not None:
                set_owner(connection, key, tenant)
            elif offered_to is not None:
                set_offers(connection, key, offered_to)
            _write_mappings(connection, key, dict(hosts or {}))
            given = [source for _, source in _named_sources(default, hosts or {})]
            refuse_overlaps(connection, key, given)
            offered = list(usable_addresses(subnet)) if subnet is not None else []
            for some in chunks(offered):
                rows = [{"network_id": key, "address": number} for number in some]
                connection.execute(insert(network_addresses), rows)
            refuse_addresses_of_hosts(connection, key)
            data = {
                "name": name,
                "cidr": subnet.cidr if subnet is not None else None,
                "tenant": tenant,
                "filtered": filtered,
            }
            record_event(connection, now, actor, "network_added", "network", key, data=data)
            return store_result(connection, _get_network(connection, name))

    @retry_on_rollback
    def free_stray_addresses(self, *, actor: str) -> tuple[str, ...]:
        """Free IP addresses of VMs that do not need them; return a sentence on each."""
        with self._database.write() as connection:
            return tuple(free_stray_addresses(connection, actor=actor))

    def list(
        self, *, tenant: str | None = None, limit: int = DEFAULT_LIMIT, cursor: str | None = None
    ) -> Page[Network]:
        """Return a page of networks, by name, or of those offered to a tenant."""
        query = select(networks).order_by(networks.c.name).limit(check_limit(limit) + 1)
        if cursor is not None:
            (after,) = decode_cursor(cursor, str)
            query = query.where(networks.c.name > after)
        with self._database.read() as connection:
            there = offered_to_tenant(connection, tenant)
            if there is not None:
                query = query.where(there)
            found = _networks_of_rows(connection, connection.execute(query).all())
        return page_of(found, limit, lambda network: (network.name,))

    def get(self, name: str, *, tenant: str | None = None) -> Network:
        """Return a network; raise `NotFoundError` if it does not exist, or not for the tenant."""
        with self._database.read() as connection:
            return _get_network(connection, name, offered_to_tenant(connection, tenant))

    @retry_on_rollback
    def change(
        self,
        name: str,
        *,
        hosts: Mapping[str, NetworkSource | None] | None = None,
        offers: Offers | None = None,
        isolated: bool | None = None,
        filtered: bool | None = None,
        actor: str,
    ) -> Network:
        """Change a network's sources on hosts (None: the default), its offers and its filters.

        Running VMs keep their network interfaces until their next start.
        """
        hosts = hosts or {}
        for host, source in hosts.items():
            if source is not None:
                _check_source(f"hosts.{host}", source)
        with self._database.write() as connection:
            if hosts:
                lock_subnets(connection)
            key = network_id(connection, name)
            take_advisory_lock(connection, f"network {key}")
            now = db_now(connection)
            history = []
            if hosts:
                _write_mappings(connection, key, hosts)
                given = [source for source in hosts.values() if source is not None]
                refuse_overlaps(connection, key, given)
                data: dict[str, Any] = {"name": name, "hosts": sorted(hosts)}
                history.append(event_row(now, actor, "network_mapped", "network", key, data=data))
            before = _get_network(connection, name)
            _update_network(connection, key, before, offers, isolated=isolated, filtered=filtered)
            after = _get_network(connection, name)
            said = {
                field: getattr(after, field)
                for field in ("offered_to", "isolated", "filtered")
                if getattr(after, field) != getattr(before, field)
            }
            if said:
                data = {"name": name, **said}
                history.append(event_row(now, actor, "network_changed", "network", key, data=data))
            record_events(connection, history)
            unknown = isolation_warning(connection, key) if isolated else None
            return replace(after, warnings=(*after.warnings, *([unknown] if unknown else [])))

    @retry_on_rollback
    def remove(self, name: str, *, actor: str) -> Network:
        """Remove a network that no open request and no VM uses."""
        with self._database.write() as connection:
            key = network_id(connection, name)
            take_advisory_lock(connection, f"network {key}")
            gone = _get_network(connection, name)
            used = _count_users(connection, key)
            if used:
                raise ConflictError(
                    f"network {name} is used by {used} requests and VMs: delete them first"
                )
            # Finished requests keep their records, without the network.
            connection.execute(delete(request_networks).where(request_networks.c.network_id == key))
            connection.execute(
                update(interfaces).where(interfaces.c.network_id == key).values(network_id=None)
            )
            for table in (network_addresses, network_hosts, network_former_sources, network_offers):
                connection.execute(delete(table).where(table.c.network_id == key))
            connection.execute(delete(networks).where(networks.c.id == key))
            now = db_now(connection)
            data = {"name": name}
            record_events(
                connection, [event_row(now, actor, "network_removed", "network", key, data=data)]
            )
            return gone


def network_id(connection: Connection, name: str) -> UUID:
    """Return a network's id, or raise `NotFoundError`."""
    query = select(networks.c.id).where(networks.c.name == lookup_name("network", name))
    found: UUID | None = connection.scalar(query)
    if found is None:
        raise NotFoundError("network", name)
    return found


def join_network(connection: Connection, request_id: UUID, name: str, owner: UUID) -> UUID:
    """Attach a request's VMs to a network, which then cannot be removed.

    A network that is not offered to the tenant counts as nonexistent.
    """
    key = network_id(connection, name)
    take_advisory_lock(connection, f"network {key}")
    # It is locked now: check that it still exists.
    there = networks.c.name == name, is_offered_to(connection, owner)
    found: UUID | None = connection.scalar(select(networks.c.id).where(*there))
    if found is None:
        raise NotFoundError("network", name)
    key = found
    connection.execute(insert(request_networks).values(request_id=request_id, network_id=key))
    return key


def check_still_offered(connection: Connection, request_id: UUID, owner: UUID) -> None:
    """Raise if a request's network is no longer offered to its tenant.

    Raises
    ------
    ConflictError
        If the network is offered to others by now, or the tenant moved.
    """
    requested = select(networks.c.id, networks.c.name).join(
        request_networks, request_networks.c.network_id == networks.c.id
    )
    found = connection.execute(requested.where(request_networks.c.request_id == request_id)).first()
    if found is None:
        return
    take_advisory_lock(connection, f"network {found.id}")
    there = networks.c.id == found.id, is_offered_to(connection, owner)
    if connection.scalar(select(networks.c.id).where(*there)) is None:
        raise ConflictError(
            f"network {found.name} is not offered to this tenant any more: what is on it stays, and"
            " no more VMs come there; ask for them on another network"
        )


def read_network_names(connection: Connection, request_ids: Iterable[UUID]) -> dict[UUID, str]:
    """Return the names of the networks of requests, by request."""
    found: dict[UUID, str] = {}
    for some in chunks(sorted(request_ids)):
        query = (
            select(request_networks.c.request_id, networks.c.name)
            .join(networks, networks.c.id == request_networks.c.network_id)
            .where(request_networks.c.request_id.in_(some))
        )
        found |= {row.request_id: row.name for row in connection.execute(query)}
    return found


def _named_sources(
    default: NetworkSource | None, mapped: Mapping[str, NetworkSource]
) -> Sequence[tuple[str, NetworkSource]]:
    """Return the sources of a new network, each with the name of its field."""
    named = [(f"hosts.{host}", source) for host, source in mapped.items()]
    return named if default is None else [("default", default), *named]


def _check_source(field: str, source: NetworkSource) -> None:
    """Raise `InvalidError` unless a network's source is a libvirt network or a bridge."""
    if source.kind not in ("network", "bridge"):
        raise InvalidError(f"{field}.kind", source.kind, "network or bridge")
    if not (source.name.isprintable() and 1 <= len(source.name) <= MAX_SOURCE_LENGTH):
        raise InvalidError(f"{field}.name", source.name, "the name of a network or bridge there")


def _write_mappings(
    connection: Connection, key: UUID, wanted: Mapping[str, NetworkSource | None]
) -> None:
    """Write a network's sources on hosts, and raise the versions of these hosts."""
    known = {
        row.name: row.id
        for row in connection.execute(
            select(hosts.c.name, hosts.c.id).where(
                hosts.c.name.in_(sorted(lookup_name("host", name) for name in wanted)),
                hosts.c.admin != HostAdmin.RETIRED.value,
            )
        )
    }
    for name in wanted:
        if name not in known:
            raise NotFoundError("host", name)
    lock_hosts(connection, *known.values())
    delete_unused_sources(connection, key)
    for name, source in wanted.items():
        there = (network_hosts.c.network_id == key, network_hosts.c.host_id == known[name])
        before = connection.execute(select(network_hosts).where(*there)).one_or_none()
        if before is not None:
            left = NetworkSource(kind=before.kind, name=before.source)
            if left != source:
                store_replaced_source(connection, key, known[name], left)
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


def _count_users(connection: Connection, key: UUID) -> int:
    """Return how many unfinished requests and existing VMs use a network."""
    finished = [state.value for state in FINISHED]
    requested = (
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
    return connection.execute(requested).scalar_one() + connection.execute(present).scalar_one()


def _update_network(
    connection: Connection,
    key: UUID,
    before: Network,
    offers: Offers | None,
    *,
    isolated: bool | None,
    filtered: bool | None,
) -> None:
    """Change a network's offers, isolation and filtering as far as they are given."""
    values: dict[str, Any] = {}
    if offers is not None:
        if before.tenant is not None:
            allowed = f"no change: {before.name} is {before.tenant}'s alone"
            raise InvalidError("offers", "another", allowed)
        values["offered_to_all"] = offers.to is None
        set_offers(connection, key, offers.to or ())
    said = {"isolated": isolated, "filtered": filtered}
    values |= {field: value for field, value in said.items() if value is not None}
    if values:
        connection.execute(update(networks).where(networks.c.id == key).values(**values))


def _get_network(
    connection: Connection, name: str, there: ColumnElement[bool] | None = None
) -> Network:
    """Return a network by its name, or raise `NotFoundError`."""
    query = select(networks).where(networks.c.name == lookup_name("network", name))
    if there is not None:
        query = query.where(there)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFoundError("network", name)
    return _networks_of_rows(connection, [row])[0]


def _networks_of_rows(connection: Connection, rows: Sequence[Row[Any]]) -> tuple[Network, ...]:
    """Return the records of networks from their rows, with sources, offers and counts."""
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
    owners, offers = read_offers(connection, keys)
    warnings = subnet_warnings(connection, keys)
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
            tenant=owners.get(row.id),
            offered_to=(None if row.offered_to_all or row.id in owners else offers.get(row.id, ())),
            isolated=row.isolated,
            filtered=row.filtered,
            warnings=tuple(warnings.get(row.id, ())),
        )
        for row in rows
    )
