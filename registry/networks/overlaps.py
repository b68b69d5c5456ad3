"""Overlapping subnets: refused on one source, and warned of otherwise; and addresses of hosts.

Sources are known only by their names on hosts. One name is the same source on all hosts; two names
may still share a wire, such as a libvirt network and its bridge. A replaced source counts while
VMs that use it have a place on the host.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, select

from registry.db.bulk import chunks, is_any_of
from registry.db.locks import take_advisory_lock
from registry.db.schema import host_reports, hosts, network_addresses, network_hosts, networks
from registry.errors import ConflictError
from registry.lifecycle import HostAdmin
from registry.networks.replaced_sources import replaced_sources
from registry.records.networks import NetworkSource
from registry.subnets import address_bounds, address_text, name_servers, parse_subnet, special_range


@dataclass(frozen=True, slots=True)
class _AddressRange:
    """The address range of a network, from the first to the last as integers."""

    id: UUID
    name: str
    cidr: str
    first: int
    last: int


def lock_subnets(connection: Connection) -> None:
    """Lock the subnets, so that no other transaction adds or maps networks."""
    take_advisory_lock(connection, "subnets of networks")


def refuse_overlaps(
    connection: Connection, network_id: UUID, sources: Collection[NetworkSource]
) -> None:
    """Raise if another network on the same sources has an overlapping subnet.

    Raises
    ------
    ConflictError
        If one of ``sources`` is a source of another network, and their subnets overlap.
    """
    ranges = _read_address_ranges(connection)
    own = next((each for each in ranges if each.id == network_id), None)
    if own is None:
        return
    others = [other for one, other in _overlapping_pairs(ranges, {network_id}) if one == own]
    theirs = _network_sources(connection, [each.id for each in others])
    for other in others:
        shared = set(sources) & theirs[other.id]
        if shared:
            raise ConflictError(
                f"subnet {own.cidr} of network {own.name} overlaps {other.cidr} of network"
                f" {other.name} on {_sources_text(shared)}: their VMs would have the same"
                " addresses. Choose another subnet, or another source"
            )


def refuse_addresses_of_hosts(connection: Connection, network_id: UUID) -> None:
    """Raise if VMs of a network can get the address of a host, which they would then answer for.

    Raises
    ------
    ConflictError
        If the last report of a host has an address that the network assigns.
    """
    found = list(_assigned_host_addresses(connection, network_id))
    if found:
        _, first, host, _ = found[0]
        more = f", and {len(found) - 1} more of it are hosts'" if len(found) > 1 else ""
        raise ConflictError(
            f"address {address_text(first)} of the subnet is that of host {host}{more}: exclude"
            " the addresses of hosts, or choose another subnet"
        )


def subnet_warnings(connection: Connection, keys: Collection[UUID]) -> Mapping[UUID, list[str]]:
    """Return warnings about overlapping or unsuitable subnets of these networks, by network."""
    ranges = _read_address_ranges(connection)
    found: defaultdict[UUID, list[str]] = defaultdict(list)
    pairs = _overlapping_pairs(ranges, keys)
    wanted = {each.id for each in ranges if each.id in keys}
    sources = _network_sources(connection, wanted | {other.id for _, other in pairs})
    for one, other in pairs:
        shared = sources[one.id] & sources[other.id]
        where = f"on {_sources_text(shared)}" if shared else "on another source"
        found[one.id].append(
            f"its subnet {one.cidr} overlaps {other.cidr} of network {other.name} {where}"
        )
    for key, name in _networks_with_dhcp(connection, {each: sources[each] for each in wanted}):
        found[key].append(
            f"VMs without a network of their own use libvirt network {name}, too, by DHCP:"
            " exclude the addresses that its DHCP server assigns"
        )
    for each in replaced_sources(connection, keys):
        found[each.network_id].append(
            f"VMs on {each.host} from before it was mapped again are still on"
            f" {each.source.kind} {each.source.name}"
        )
    return found


def check_subnets(connection: Connection) -> Iterator[str]:
    """Yield a sentence for each faulty subnet of a network that earlier releases accepted."""
    ranges = _read_address_ranges(connection)
    pairs = [
        (one, other)
        for one, other in _overlapping_pairs(ranges, {each.id for each in ranges})
        if (one.name, one.id) < (other.name, other.id)
    ]
    sources = _network_sources(connection, {each.id for pair in pairs for each in pair})
    for one, other in pairs:
        shared = sources[one.id] & sources[other.id]
        if shared:
            yield (
                f"subnet {one.cidr} of network {one.name} overlaps {other.cidr} of network"
                f" {other.name} on {_sources_text(shared)}: VMs of both may have the same address;"
                " move the VMs of one to a new network and remove it"
            )
    for each in ranges:
        special = special_range(each.cidr)
        if special is not None:
            yield (
                f"subnet {each.cidr} of network {each.name} is in {special}: guests cannot use"
                " its addresses"
            )
    owners = [
        (network, address, "its name server", vm_id)
        for network, address, vm_id in _given_name_servers(connection)
    ]
    owners += [
        (network, address, f"host {host}", vm_id)
        for network, address, host, vm_id in _assigned_host_addresses(connection)
    ]
    yield from (
        f"address {address_text(address)} of network {name} is that of {owner}, and"
        f" {'a VM has it' if vm_id is not None else 'a VM may get it'}"
        for name, address, owner, vm_id in owners
    )


def _given_name_servers(connection: Connection) -> Iterator[tuple[str, int, UUID | None]]:
    """Yield name servers of networks whose addresses VMs can get, each with the VM that has it."""
    query = select(networks).where(networks.c.cidr.is_not(None)).order_by(networks.c.name)
    for row in connection.execute(query).all():
        subnet = parse_subnet(row.cidr, row.gateway, row.dns, row.excluded)
        servers = name_servers(subnet) if subnet is not None else frozenset()
        if not servers:
            continue
        given = select(network_addresses.c.address, network_addresses.c.vm_id).where(
            network_addresses.c.network_id == row.id,
            network_addresses.c.address.in_(sorted(servers)),
        )
        for address, vm_id in connection.execute(given.order_by(network_addresses.c.address)):
            yield row.name, address, vm_id


def _assigned_host_addresses(
    connection: Connection, network_id: UUID | None = None
) -> Iterator[tuple[str, int, str, UUID | None]]:
    """Yield addresses of hosts that networks assign: network, address, host, and its VM if any.

    The addresses are those in the last reports of hosts that are not retired.
    """
    reported = (
        select(hosts.c.name, host_reports.c.report["addresses"].label("addresses"))
        .join(hosts, hosts.c.id == host_reports.c.host_id)
        .where(hosts.c.admin != HostAdmin.RETIRED.value)
    )
    of_hosts = {
        int(address): row.name
        for row in connection.execute(reported)
        for address in map(ipaddress.ip_address, row.addresses or ())
        if address.version == 4
    }
    query = (
        select(networks.c.name, network_addresses.c.address, network_addresses.c.vm_id)
        .join(networks, networks.c.id == network_addresses.c.network_id)
        .order_by(networks.c.name, network_addresses.c.address)
    )
    if network_id is not None:
        query = query.where(networks.c.id == network_id)
    for some in chunks(sorted(of_hosts)):
        there = is_any_of(connection, network_addresses.c.address, some)
        for row in connection.execute(query.where(there)):
            yield row.name, row.address, of_hosts[row.address], row.vm_id


def _read_address_ranges(connection: Connection) -> list[_AddressRange]:
    """Return the address ranges of all networks with a subnet, by name."""
    query = (
        select(networks.c.id, networks.c.name, networks.c.cidr)
        .where(networks.c.cidr.is_not(None))
        .order_by(networks.c.name)
    )
    return [
        _AddressRange(row.id, row.name, row.cidr, *address_bounds(row.cidr))
        for row in connection.execute(query)
    ]


def _overlapping_pairs(
    ranges: Iterable[_AddressRange], keys: Collection[UUID]
) -> list[tuple[_AddressRange, _AddressRange]]:
    """Return the pairs of networks with overlapping subnets whose first is one of ``keys``."""
    found: list[tuple[_AddressRange, _AddressRange]] = []
    before: list[_AddressRange] = []
    for each in sorted(ranges, key=lambda one: (one.first, one.last, one.name)):
        before = [one for one in before if one.last >= each.first]
        for one in before:
            found += [pair for pair in ((one, each), (each, one)) if pair[0].id in keys]
        before.append(each)
    return sorted(found, key=lambda pair: (pair[0].name, pair[1].name))


def _network_sources(
    connection: Connection, keys: Iterable[UUID]
) -> defaultdict[UUID, set[NetworkSource]]:
    """Return the sources of networks; a default counts even if no host uses it."""
    some = sorted(keys)
    found: defaultdict[UUID, set[NetworkSource]] = defaultdict(set)
    default = select(networks.c.id, networks.c.kind, networks.c.source).where(
        is_any_of(connection, networks.c.id, some), networks.c.source.is_not(None)
    )
    mapped = (
        select(network_hosts.c.network_id, network_hosts.c.kind, network_hosts.c.source)
        .join(hosts, hosts.c.id == network_hosts.c.host_id)
        .where(
            is_any_of(connection, network_hosts.c.network_id, some),
            hosts.c.admin != HostAdmin.RETIRED.value,
        )
        .distinct()
    )
    for query in (default, mapped):
        for key, kind, source in connection.execute(query):
            found[key].add(NetworkSource(kind=kind, name=source))
    for each in replaced_sources(connection, some):
        found[each.network_id].add(each.source)
    return found


def _networks_with_dhcp(
    connection: Connection, sources: Mapping[UUID, set[NetworkSource]]
) -> Iterator[tuple[UUID, str]]:
    """Yield networks whose source is the own libvirt network of a host, with its name."""
    used = {each.name for some in sources.values() for each in some if each.kind == "network"}
    if not used:
        return
    query = (
        select(hosts.c.network)
        .where(
            is_any_of(connection, hosts.c.network, sorted(used)),
            hosts.c.admin != HostAdmin.RETIRED.value,
        )
        .distinct()
    )
    own = set(connection.scalars(query))
    for key, some in sources.items():
        names = {each.name for each in some if each.kind == "network"}
        yield from ((key, name) for name in sorted(names & own))


def _sources_text(sources: Iterable[NetworkSource]) -> str:
    """Return text that names the first of some network sources and counts the others."""
    names = sorted(f"{each.kind} {each.name}" for each in sources)
    rest = f" and {len(names) - 1} more sources" if len(names) > 1 else ""
    return f"{names[0]}{rest}"
