"""MAC and IP addresses of VMs.

A VM has its MAC address from its creation on, also when it is rebuilt. It gets its IP address with
its first place, in the transaction that places it, and keeps the address until it is proven gone.
"""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, select, update

from registry.db.bulk import chunks, insert_returning, is_any_of, update_rows
from registry.db.dialect import has_one_writer
from registry.db.schema import (
    hosts,
    interfaces,
    network_addresses,
    network_hosts,
    networks,
    request_networks,
    vms,
)
from registry.records.cluster import RequestView
from registry.records.networks import GuestNetwork, InterfaceRules, NetworkLimit, NetworkSource
from registry.records.requests import WaitingStatus
from registry.subnets import address_text, parse_subnet, prefix_length, reachable_ranges

NO_ADDRESS: Final = "no_address"
NO_NETWORK: Final = "network_missing"
_ISOLATED_BLOCK: Final = 0xF6  #: the second byte of the MACs of isolated guests
ISOLATED_PREFIX: Final = f"02:{_ISOLATED_BLOCK:02x}:"  #: prefix of the MACs of that block


def create_interfaces(
    connection: Connection, vm_ids: Sequence[UUID], network_id: UUID | None = None
) -> None:
    """Create the interfaces of new VMs, each with a MAC address that no other VM ever had."""
    own = select(networks.c.isolated).where(networks.c.id == network_id)
    isolated = True if network_id is None else connection.scalars(own).one()
    for some in chunks(vm_ids):
        missing = list(some)
        while missing:
            rows = [
                {"vm_id": vm_id, "mac": _random_mac(isolated=isolated), "network_id": network_id}
                for vm_id in missing
            ]
            fresh = insert_returning(
                connection, interfaces, rows, ["vm_id"], unless_there=True, unique=["mac"]
            )
            given = {row.vm_id for row in fresh}
            missing = [vm_id for vm_id in missing if vm_id not in given]


def assign_addresses(connection: Connection, vm_ids: Iterable[UUID]) -> frozenset[UUID]:
    """Assign IP addresses to VMs on networks with a subnet; return the VMs without a free one."""
    with_subnets = connection.scalars(select(networks.c.id).where(networks.c.cidr.is_not(None)))
    if not with_subnets.all():
        return frozenset()
    wanting: defaultdict[UUID, list[UUID]] = defaultdict(list)
    for some in chunks(list(vm_ids)):
        query = (
            select(interfaces.c.vm_id, interfaces.c.network_id)
            .join(networks, networks.c.id == interfaces.c.network_id)
            .outerjoin(network_addresses, network_addresses.c.vm_id == interfaces.c.vm_id)
            .where(
                is_any_of(connection, interfaces.c.vm_id, some),
                networks.c.cidr.is_not(None),
                network_addresses.c.address.is_(None),
            )
            .order_by(interfaces.c.network_id, interfaces.c.vm_id)
        )
        for row in connection.execute(query):
            wanting[row.network_id].append(row.vm_id)
    without: set[UUID] = set()
    for network_id, waiting in wanting.items():
        free = (
            select(network_addresses.c.address)
            .where(
                network_addresses.c.network_id == network_id, network_addresses.c.vm_id.is_(None)
            )
            .order_by(network_addresses.c.address)
            .limit(len(waiting))
        )
        if not has_one_writer(connection):
            free = free.with_for_update(skip_locked=True)
        found = connection.scalars(free).all()
        given = [
            {"network_id": network_id, "address": address, "vm_id": vm_id}
            for vm_id, address in zip(waiting, found, strict=False)
        ]
        update_rows(connection, network_addresses, given, keys=("network_id", "address"))
        without.update(waiting[len(found) :])
    return frozenset(without)


def free_addresses(connection: Connection, vm_ids: Iterable[UUID]) -> None:
    """Free the IP addresses of VMs that are gone, or were not placed after all."""
    for some in chunks(list(vm_ids)):
        connection.execute(
            update(network_addresses)
            .where(is_any_of(connection, network_addresses.c.vm_id, some))
            .values(vm_id=None)
        )


def network_limits(
    connection: Connection,
    request_ids: Collection[UUID],
    all_hosts: Collection[UUID],
    *,
    waits: ColumnElement[bool],
) -> dict[UUID, NetworkLimit]:
    """Return the limits that networks set on requests; ``waits`` selects waiting VMs."""
    names: dict[UUID, Row[Any]] = {}
    for some in chunks(sorted(request_ids)):
        query = (
            select(request_networks.c.request_id, networks)
            .join(networks, networks.c.id == request_networks.c.network_id)
            .where(is_any_of(connection, request_networks.c.request_id, some))
        )
        names |= {row.request_id: row for row in connection.execute(query)}
    keys = sorted({row.id for row in names.values()})
    mapped: defaultdict[UUID, set[UUID]] = defaultdict(set)
    for row in connection.execute(
        select(network_hosts.c.network_id, network_hosts.c.host_id).where(
            network_hosts.c.network_id.in_(keys)
        )
    ):
        mapped[row.network_id].add(row.host_id)
    free = Counter(
        {
            row.network_id: row.free
            for row in connection.execute(
                select(network_addresses.c.network_id, func.count().label("free"))
                .where(
                    network_addresses.c.network_id.in_(keys), network_addresses.c.vm_id.is_(None)
                )
                .group_by(network_addresses.c.network_id)
            )
        }
    )
    held = _count_held_addresses(connection, names, waits)
    everywhere = frozenset(all_hosts)
    return {
        request_id: NetworkLimit(
            network=row.name,
            without=frozenset() if row.source is not None else everywhere - mapped[row.id],
            left=None if row.cidr is None else free[row.id] + held[request_id],
        )
        for request_id, row in names.items()
    }


def limited_request(
    view: RequestView, limit: NetworkLimit, everywhere: Sequence[UUID]
) -> RequestView:
    """Return a request reduced to what its network allows: free addresses, hosts with a source."""
    view = replace(view, network=limit)
    detail: dict[str, Any] = {"network": limit.network}
    if limit.left is not None and limit.left < view.count:
        detail |= {"addresses_left": limit.left}
        short = WaitingStatus(count=view.count - limit.left, reason=NO_ADDRESS, detail=detail)
        if limit.left < view.min_count:
            short = replace(short, count=view.count)
            return replace(view, avoid=tuple(everywhere), short=short, shut_out=True)
        view = replace(view, count=limit.left, short=short)
    if limit.without:
        avoid = tuple(sorted({*view.avoid, *limit.without}))
        view = replace(view, avoid=avoid)
        if limit.without.issuperset(everywhere):
            short = WaitingStatus(count=view.count, reason=NO_NETWORK, detail=detail)
            view = replace(view, short=short, shut_out=True)
    return view


def read_guest_network(connection: Connection, vm_id: UUID, host_id: UUID) -> GuestNetwork | None:
    """Return a VM's network attachment on a host, or None if the host lacks the network.

    On a host's own network, which all tenants share, VMs are isolated.
    """
    row = connection.execute(
        select(
            interfaces.c.mac,
            networks,
            network_hosts.c.kind.label("kind_there"),
            network_hosts.c.source.label("source_there"),
            hosts.c.network.label("own"),
            network_addresses.c.address,
        )
        .select_from(hosts)
        .outerjoin(interfaces, interfaces.c.vm_id == vm_id)
        .outerjoin(networks, networks.c.id == interfaces.c.network_id)
        .outerjoin(
            network_hosts,
            and_(
                network_hosts.c.network_id == networks.c.id, network_hosts.c.host_id == hosts.c.id
            ),
        )
        .outerjoin(network_addresses, network_addresses.c.vm_id == interfaces.c.vm_id)
        .where(hosts.c.id == host_id)
    ).one()
    if row.id is None:
        return GuestNetwork(mac=row.mac, kind="network", source=row.own)
    source = _source_on_host(row)
    if source is None:
        return None
    subnet = parse_subnet(row.cidr, row.gateway, row.dns, row.excluded)
    return GuestNetwork(
        mac=row.mac,
        kind=source.kind,
        source=source.name,
        address=(
            f"{address_text(row.address)}/{prefix_length(row.cidr)}"
            if row.address is not None
            else None
        ),
        gateway=subnet.gateway if subnet is not None else None,
        dns=subnet.dns if subnet is not None else (),
        interface_rules=_to_interface_rules(row),
    )


def read_interface_rules(connection: Connection, vm_id: UUID) -> InterfaceRules:
    """Return the filter rules of a VM's network interface, which apply on any host."""
    query: Select[Any] = (
        select(networks, network_addresses.c.address)
        .select_from(vms)
        .outerjoin(interfaces, interfaces.c.vm_id == vms.c.id)
        .outerjoin(networks, networks.c.id == interfaces.c.network_id)
        .outerjoin(network_addresses, network_addresses.c.vm_id == vms.c.id)
        .where(vms.c.id == vm_id)
    )
    row = connection.execute(query).one()
    return _to_interface_rules(row) if row.id is not None else InterfaceRules()


def _count_held_addresses(
    connection: Connection, request_ids: Collection[UUID], waits: ColumnElement[bool]
) -> Counter[UUID]:
    """Return the number of waiting VMs with an IP address from an earlier place, by request."""
    held: Counter[UUID] = Counter()
    for some in chunks(sorted(request_ids)):
        query = (
            select(vms.c.request_id, func.count().label("held"))
            .join(network_addresses, network_addresses.c.vm_id == vms.c.id)
            .where(is_any_of(connection, vms.c.request_id, some), waits)
            .group_by(vms.c.request_id)
        )
        held.update({row.request_id: row.held for row in connection.execute(query)})
    return held


def _to_interface_rules(row: Row[Any]) -> InterfaceRules:
    """Return the filter rules of a VM's network interface from a row of its network."""
    rules = InterfaceRules(
        isolated=row.isolated,
        filtered=row.filtered,
        address=address_text(row.address) if row.address is not None else None,
    )
    subnet = parse_subnet(row.cidr, row.gateway, row.dns, row.excluded)
    if subnet is not None:
        rules = replace(rules, gateway=subnet.gateway, dns=subnet.dns)
    reaches = reachable_ranges(subnet) if subnet is not None and row.isolated else None
    if subnet is None or reaches is None or rules.address is None:
        return rules
    return replace(rules, subnet=subnet.cidr, reaches=reaches)


def _source_on_host(row: Row[Any]) -> NetworkSource | None:
    """Return the source of a network on a host: the host's own, else the default, else None."""
    if row.source_there is not None:
        return NetworkSource(kind=row.kind_there, name=row.source_there)
    return NetworkSource(kind=row.kind, name=row.source) if row.source is not None else None


def _random_mac(*, isolated: bool) -> str:
    """Return a random MAC address, locally administered, of the block of isolated guests or not.

    Filters of hosts identify isolated guests by the block:
    `hypervisor.xml.network_filters.ISOLATED_MACS`.
    """
    block = _ISOLATED_BLOCK
    if not isolated:
        others = [each for each in range(256) if each != _ISOLATED_BLOCK]
        block = secrets.choice(others)
    return ":".join(f"{byte:02x}" for byte in (0x02, block, *secrets.token_bytes(4)))
