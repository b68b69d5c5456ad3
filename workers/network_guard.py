"""Network restrictions of a VM's network interface, from the settings and the host."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from hypervisor import Guard
from registry.hosts import HostAccess
from registry.networks import InterfaceRules

#: Each network costs a rule on each interface.
_MAX_NETWORKS: Final = 64
_SHORTEST_PREFIX: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNetworks:
    """Networks of hosts, and the gateway ports that guests may reach there."""

    networks: tuple[str, ...] = ()  #: IPv4, as CIDR
    gateway_ports: tuple[int, ...] = (53, 67, 123)


def merge_networks(networks: Iterable[str]) -> tuple[str, ...]:
    """Merge IP networks of hosts into as few as possible; raise ValueError for invalid ones."""
    parsed = [_parse_network(each) for each in networks]
    ipv4 = [each for each in parsed if isinstance(each, ipaddress.IPv4Network)]
    ipv6 = [each for each in parsed if isinstance(each, ipaddress.IPv6Network)]
    merged = (*ipaddress.collapse_addresses(ipv4), *ipaddress.collapse_addresses(ipv6))
    if len(merged) > _MAX_NETWORKS:
        raise ValueError(
            f"{len(merged)} networks after merging; at most {_MAX_NETWORKS} are possible: name"
            " larger networks that contain several"
        )
    return tuple(map(str, merged))


def _parse_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Parse an IP network of hosts; raise ValueError if it is invalid or too large."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"{error}; write networks such as 10.1.0.0/16") from error
    if network.prefixlen < _SHORTEST_PREFIX:
        raise ValueError(
            f"{text} is more than hosts have: no network shorter than /{_SHORTEST_PREFIX}"
        )
    return network


def network_guard(host: HostAccess, interface: InterfaceRules, known: HostNetworks) -> Guard | None:
    """Return the guard of a VM's network interface; None for the test driver."""
    if host.domain_type == "test":
        return None
    closed = [*known.networks, *_ipv4_addresses((interface.gateway, urlsplit(host.uri).hostname))]
    networks = [ipaddress.IPv4Network(each) for each in closed]
    servers = dict.fromkeys(_ipv4_addresses((interface.gateway, *interface.dns)))
    return Guard(
        filtered=interface.filtered,
        isolated=interface.isolated,
        address=interface.address,
        subnet=interface.subnet,
        reaches=interface.reaches,
        closed=tuple(map(str, ipaddress.collapse_addresses(networks))),
        services=tuple(
            each
            for each in servers
            if any(ipaddress.IPv4Address(each) in network for network in networks)
        ),
        ports=known.gateway_ports,
    )


def _ipv4_addresses(names: tuple[str | None, ...]) -> list[str]:
    """Return the IPv4 addresses among these names; filtered interfaces pass no IPv6."""
    found = []
    for name in names:
        try:
            found.append(str(ipaddress.IPv4Address(name or "")))
        except ValueError:
            continue
    return found
