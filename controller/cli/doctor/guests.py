"""`fuga doctor`: which addresses of hosts are closed to guests."""

from __future__ import annotations

import ipaddress
import queue
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from controller.cli.doctor.check_result import CheckResult
from controller.cli.doctor.encryption import is_local
from controller.terminal.name_lists import first_names

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str], Collection[str]]

_ABOUT: Final = "guests and hosts"
_NAMED: Final = 5  #: hosts and networks that a finding names
_RESOLVERS: Final = 32
_WITHIN_S: Final = 5.0  #: for the names of all hosts
_MAX_SUGGESTED: Final = 8
_SHORTEST_SUGGESTED: Final = 16
#: libvirt's test driver has no network.
_NO_NETWORK: Final = "test"
_KVM: Final = "kvm"


class GuestSettings(Protocol):
    """The workers' settings that are read here; this package does not import `workers`."""

    host_networks: Sequence[str]


def guest_findings(
    settings: GuestSettings,
    hosts: Sequence[Mapping[str, Any]],
    networks: Sequence[Mapping[str, Any]],
    lab_uris: Collection[str] = (),
    *,
    resolve: Resolve | None = None,
) -> Iterator[CheckResult]:
    """Check that `FUGA_HOST_NETWORKS` contains the addresses of hosts and gateways."""
    judged = [
        host
        for host in hosts
        if host["admin"] != "retired"
        and host["domain_type"] != _NO_NETWORK
        and host.get("uri") not in lab_uris
    ]
    if not judged:
        return
    closed = [ipaddress.ip_network(each) for each in settings.host_networks]
    yield from _host_findings(judged, closed, resolve or resolve_name)
    yield from _network_findings(networks, closed)


def _host_findings(
    hosts: Sequence[Mapping[str, Any]], closed: Sequence[Any], resolve: Resolve
) -> Iterator[CheckResult]:
    """Check that `FUGA_HOST_NETWORKS` contains the addresses of the hosts."""
    found = addresses_of([str(host.get("uri", "")) for host in hosts], resolve)
    # Emulated guests are those of a lab: no tenant's work is on them.
    well = all(host["domain_type"] != _KVM for host in hosts)
    open_hosts: list[str] = []
    unknown: list[str] = []
    addresses: set[ipaddress.IPv4Address] = set()
    for host in hosts:
        known = found[str(host.get("uri", ""))]
        if not known:
            unknown.append(host["name"])
        # Filters of interfaces drop all IPv6.
        ipv4 = [each for each in known if isinstance(each, ipaddress.IPv4Address)]
        outside = [each for each in ipv4 if not any(each in network for network in closed)]
        if outside:
            open_hosts.append(f"{host['name']} ({', '.join(map(str, outside))})")
            addresses.update(outside)
    if open_hosts:
        wanted = ",".join([*map(str, closed), *map(str, _suggested_networks(addresses))])
        yield CheckResult(
            _ABOUT,
            well,
            f"guests reach what listens on {first_names(open_hosts, _NAMED)}: FUGA_HOST_NETWORKS"
            f" does not contain these; for every worker, export FUGA_HOST_NETWORKS={wanted}",
            note=True,
        )
    if unknown:
        yield CheckResult(
            _ABOUT,
            well or bool(closed),
            f"no address is known here of {first_names(unknown, _NAMED)}: check that"
            " FUGA_HOST_NETWORKS of every worker contains all networks in which hosts have"
            " addresses",
            note=True,
        )
    if not open_hosts and not unknown:
        yield CheckResult(_ABOUT, True, f"addresses of {len(hosts)} hosts are closed to guests")


def _network_findings(
    networks: Sequence[Mapping[str, Any]], closed: Sequence[Any]
) -> Iterator[CheckResult]:
    """Check that `FUGA_HOST_NETWORKS` contains gateways, and no networks of guests."""
    outside, within = [], []
    unfiltered = [each["name"] for each in networks if not each.get("filtered", True)]
    if unfiltered:
        yield CheckResult(
            _ABOUT,
            True,
            f"guests of networks without filters ({first_names(unfiltered, _NAMED)}) reach what"
            " listens on their hosts, libvirt and moves included, unless a firewall on each host"
            " drops it",
            note=True,
        )
    for network in networks:
        subnet = network.get("subnet") or {}
        if not network.get("filtered", True):
            continue
        gateway = subnet.get("gateway")
        if gateway and not any(ipaddress.ip_address(gateway) in each for each in closed):
            outside.append(f"{network['name']} ({gateway})")
        cidr = subnet.get("cidr")
        whole = None if cidr is None else ipaddress.IPv4Network(cidr)
        ipv4 = [each for each in closed if isinstance(each, ipaddress.IPv4Network)]
        if whole and not network.get("isolated") and any(whole.subnet_of(each) for each in ipv4):
            within.append(f"{network['name']} ({cidr})")
    if len(outside) > 1:
        yield CheckResult(
            _ABOUT,
            True,
            f"gateways of networks {first_names(outside, _NAMED)} are not in FUGA_HOST_NETWORKS:"
            " guests of other networks reach their ports; add those that are addresses of hosts",
            note=True,
        )
    if within:
        yield CheckResult(
            _ABOUT,
            False,
            f"FUGA_HOST_NETWORKS contains networks of guests: {first_names(within, _NAMED)};"
            " these guests do not reach each other: name smaller networks, of hosts alone",
        )


def _suggested_networks(
    addresses: Collection[ipaddress.IPv4Address],
) -> list[ipaddress.IPv4Network]:
    """Return few networks, of /16 at most, that contain the addresses."""
    for length in range(24, _SHORTEST_SUGGESTED - 1, -1):
        found = {ipaddress.IPv4Network((each, length), strict=False) for each in addresses}
        merged = list(ipaddress.collapse_addresses(found))
        if len(merged) <= _MAX_SUGGESTED:
            break
    return merged


def addresses_of(uris: Sequence[str], resolve: Resolve) -> Mapping[str, Collection[Address]]:
    """Return the IP addresses of the host in each URI; none for a name that does not resolve."""
    found: dict[str, Collection[Address]] = dict.fromkeys(uris, ())
    names: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    left = 0
    for uri in found:
        name = urlsplit(uri).hostname
        if name is None or is_local(name):
            continue
        try:
            found[uri] = (ipaddress.ip_address(name),)
        except ValueError:
            names.put((uri, name))
            left += 1
    done: queue.SimpleQueue[tuple[str, Collection[Address]]] = queue.SimpleQueue()

    def resolve_pending() -> None:
        while True:
            try:
                uri, name = names.get_nowait()
            except queue.Empty:
                return
            done.put((uri, tuple(ipaddress.ip_address(each) for each in resolve(name))))

    # A resolver that hangs cannot be stopped: the process ends without it.
    for _ in range(min(_RESOLVERS, left)):
        threading.Thread(target=resolve_pending, daemon=True).start()
    ends_at = time.monotonic() + _WITHIN_S
    for _ in range(left):
        try:
            uri, addresses = done.get(timeout=max(0.0, ends_at - time.monotonic()))
        except queue.Empty:
            break
        found[uri] = addresses
    return found


def resolve_name(name: str) -> Collection[str]:
    """Return the IP addresses of a host's name; none if it does not resolve."""
    try:
        return {str(each[4][0]).split("%")[0] for each in socket.getaddrinfo(name, None)}
    except (OSError, UnicodeError):
        return ()
