"""IP addresses of callers, and the networks by which calls and connections are limited."""

from __future__ import annotations

import ipaddress

from starlette.types import Scope


def address_of(scope: Scope) -> str:
    """Return the IP address of a call's peer; ``unknown`` if the server names none."""
    client = scope.get("client")
    return str(client[0]) if client else "unknown"


def network_of(address: str) -> str:
    """Return the network that one party uses: an IPv4 address, or a /64 of IPv6."""
    address = as_ipv4(address)
    if ":" not in address:
        return address
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False))


def site_of(address: str) -> str | None:
    """Return the /48 of IPv6 that an address is part of; None for IPv4.

    A customer gets a /48, or a part of it, which contains many /64 networks.
    """
    address = as_ipv4(address).partition("%")[0]
    if ":" not in address:
        return None
    return str(ipaddress.ip_network((ipaddress.ip_address(address), 48), strict=False))


def as_ipv4(address: str) -> str:
    """Return the IPv4 address of an IPv4-mapped IPv6 address; return others unchanged.

    A socket that listens on ``::`` shows IPv4 callers as ``::ffff:192.0.2.1``: they would all be in
    one /64.
    """
    if not address.lower().startswith("::ffff:"):
        return address
    try:
        mapped = ipaddress.IPv6Address(address).ipv4_mapped
    except ValueError:
        return address
    return address if mapped is None else str(mapped)
