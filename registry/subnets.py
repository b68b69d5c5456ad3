"""IPv4 subnets: the addresses of a network that VMs can get, computed without I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from registry.errors import InvalidError

_SHORTEST_PREFIX: Final = 16
_LONGEST_PREFIX: Final = 30
#: Special ranges that no guest can use, with their purpose (RFC 6890).
_SPECIAL: Final = {
    ipaddress.IPv4Network(block): meaning
    for block, meaning in (
        ("0.0.0.0/8", "this network"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved, with the broadcast address"),
    )
}
_LINK_LOCAL: Final = ipaddress.IPv4Network("169.254.0.0/16")
MAX_DNS: Final = 8
MAX_EXCLUDED: Final = 64
_MAX_BLOCKS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet:
    """The address range of a network's VMs, with their gateway and name servers."""

    cidr: str
    gateway: str | None = None
    dns: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()  #: single addresses and ranges such as 10.0.0.2-10.0.0.9


def check_subnet(subnet: Subnet) -> Subnet:
    """Return a network's subnet in canonical form, or raise `InvalidError`."""
    network = _parse_network(subnet.cidr)
    gateway = subnet.gateway
    if gateway is not None:
        gateway = str(_parse_host_address("subnet.gateway", gateway, network))
    for field, found, maximum in (
        ("subnet.dns", subnet.dns, MAX_DNS),
        ("subnet.excluded", subnet.excluded, MAX_EXCLUDED),
    ):
        if len(found) > maximum:
            raise InvalidError(field, len(found), f"at most {maximum}")
    checked = Subnet(
        cidr=str(network),
        gateway=gateway,
        dns=tuple(str(_parse_name_server(each, network)) for each in subnet.dns),
        excluded=tuple(_range_text(*_parse_range(each, network)) for each in subnet.excluded),
    )
    if next(usable_addresses(checked), None) is None:
        raise InvalidError("subnet.excluded", "every address", "room for one VM at least")
    return checked


def usable_addresses(subnet: Subnet) -> Iterator[int]:
    """Yield the addresses of a subnet that VMs can get, as ascending numbers."""
    network = ipaddress.IPv4Network(subnet.cidr)
    taken = [_parse_range(each, network) for each in subnet.excluded]
    taken += [(each, each) for each in _server_addresses(subnet)]
    for number in range(int(network.network_address) + 1, int(network.broadcast_address)):
        if not any(first <= number <= last for first, last in taken):
            yield number


def reachable_ranges(subnet: Subnet) -> tuple[str, ...] | None:
    """Return a subnet's address ranges without VMs: gateway, name servers, excluded ones.

    It returns None if they are too many for a filter that checks every packet.
    """
    network = ipaddress.IPv4Network(subnet.cidr)
    found = [_parse_range(each, network) for each in subnet.excluded]
    found += [(each, each) for each in _server_addresses(subnet)]
    blocks = [
        block
        for first, last in found
        if first in range(int(network[0]), int(network[-1]) + 1)
        for block in ipaddress.summarize_address_range(
            ipaddress.IPv4Address(first), ipaddress.IPv4Address(last)
        )
    ]
    merged = tuple(map(str, ipaddress.collapse_addresses(blocks)))
    return merged if len(merged) <= _MAX_BLOCKS else None


def name_servers(subnet: Subnet) -> frozenset[int]:
    """Return the name servers of a subnet that lie in it, as numbers."""
    network = ipaddress.IPv4Network(subnet.cidr)
    found = map(ipaddress.IPv4Address, subnet.dns)
    return frozenset(int(each) for each in found if each in network)


def address_bounds(cidr: str) -> tuple[int, int]:
    """Return the first and the last address of a checked subnet, as numbers."""
    network = ipaddress.IPv4Network(cidr)
    return int(network.network_address), int(network.broadcast_address)


def special_range(cidr: str) -> str | None:
    """Return the special-purpose range in which an IPv4 subnet or address lies, or None."""
    network = ipaddress.IPv4Network(cidr)
    for block, meaning in _SPECIAL.items():
        if network.overlaps(block):
            return f"{block} ({meaning})"
    return None


def address_text(number: int) -> str:
    """Return an IPv4 address in dotted notation."""
    return str(ipaddress.IPv4Address(number))


def prefix_length(cidr: str) -> int:
    """Return the length of a checked subnet's prefix."""
    return ipaddress.IPv4Network(cidr).prefixlen


def _parse_network(cidr: str) -> ipaddress.IPv4Network:
    """Parse the CIDR of a network's subnet, or raise `InvalidError`."""
    allowed = f"an IPv4 network such as 10.0.0.0/24, of /{_SHORTEST_PREFIX} to /{_LONGEST_PREFIX}"
    try:
        network = ipaddress.IPv4Network(cidr)
    except ValueError as error:
        raise InvalidError("subnet.cidr", cidr, allowed) from error
    if not _SHORTEST_PREFIX <= network.prefixlen <= _LONGEST_PREFIX:
        raise InvalidError("subnet.cidr", cidr, allowed)
    special = special_range(cidr)
    if special is not None:
        raise InvalidError("subnet.cidr", cidr, f"{allowed}, outside {special}")
    return network


def _server_addresses(subnet: Subnet) -> Sequence[int]:
    """Return the addresses of a subnet's gateway and name servers, as numbers."""
    found = (each for each in (subnet.gateway, *subnet.dns) if each is not None)
    return [int(ipaddress.IPv4Address(each)) for each in found]


def _parse_name_server(text: str, network: ipaddress.IPv4Network) -> ipaddress.IPv4Address:
    """Parse a subnet's name server, which some clouds have at a link-local address."""
    address = _parse_address("subnet.dns", text)
    special = special_range(str(address))
    if special is not None and address not in _LINK_LOCAL:
        raise InvalidError("subnet.dns", text, f"addresses of name servers, outside {special}")
    if address in (network.network_address, network.broadcast_address):
        raise InvalidError("subnet.dns", text, f"addresses of hosts in {network}, or others")
    return address


def _parse_address(field: str, text: str) -> ipaddress.IPv4Address:
    """Parse an IPv4 address of a subnet's field, or raise `InvalidError`."""
    try:
        return ipaddress.IPv4Address(text)
    except ValueError as error:
        raise InvalidError(field, text, "IPv4 addresses") from error


def _parse_host_address(
    field: str, text: str, network: ipaddress.IPv4Network
) -> ipaddress.IPv4Address:
    """Parse an address of a host within a subnet, or raise `InvalidError`."""
    address = _parse_address(field, text)
    if not network.network_address < address < network.broadcast_address:
        raise InvalidError(field, text, f"addresses of hosts in {network}")
    return address


def _parse_range(text: str, network: ipaddress.IPv4Network) -> tuple[int, int]:
    """Parse an excluded address or range of a subnet, as its first and last numbers."""
    first, dash, last = text.partition("-")
    field = "subnet.excluded"
    low = int(_parse_host_address(field, first.strip(), network))
    high = int(_parse_host_address(field, last.strip(), network)) if dash else low
    if high < low:
        raise InvalidError(field, text, "the lower address first")
    return low, high


def _range_text(first: int, last: int) -> str:
    """Return a range of IPv4 addresses as text."""
    return address_text(first) if first == last else f"{address_text(first)}-{address_text(last)}"


def parse_subnet(
    cidr: str | None, gateway: str | None, dns: Sequence[str], excluded: Sequence[str]
) -> Subnet | None:
    """Return a network's subnet from its stored columns; None if it has none."""
    if cidr is None:
        return None
    return Subnet(cidr=cidr, gateway=gateway, dns=tuple(dns), excluded=tuple(excluded))
