"""libvirt network filters (nwfilter) of guests' network interfaces.

A filter becomes tables of the bridge that an interface is connected to. fuga's filters let a guest
send only from its own MAC and IPv4 address, reach only service ports of hosts, and receive only
frames for it or broadcasts. libvirt's own `clean-traffic` is not enough: it learns the address from
the guest's first packet, passes other protocols such as IPv6, and is missing on some hosts. Names
of filters contain a digest of their rules, so filters of two releases can coexist.
"""

from __future__ import annotations

import hashlib
import ipaddress
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hypervisor.model import Guard

_PREFIX: Final = "fuga-"
_BROADCAST: Final = {"dstmacaddr": "ff:ff:ff:ff:ff:ff"}
_MULTICAST: Final = {"dstmacaddr": "01:00:5e:00:00:00", "dstmacmask": "ff:ff:ff:80:00:00"}
_NO_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - of a guest without an address
_TO_ALL: Final = "255.255.255.255"
_LOOPBACK: Final = "127.0.0.0/8"
_TO_IT: Final = {"dstmacaddr": "$MAC"}
#: The MAC block of isolated guests; `registry.networks.addresses` assigns from it.
ISOLATED_MACS: Final = "02:f6:00:00:00:00"
_BLOCK_MASK: Final = "ff:ff:00:00:00:00"

#: Names and values; a name with several values is a list.
Parameters = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Rule:
    """One filter rule; direction ``out`` is traffic from the guest."""

    action: str
    direction: str
    priority: int
    protocol: str | None = None
    matches: Mapping[str, str] | None = None


def _accept_rule(direction: str, protocol: str, /, **matches: str) -> _Rule:
    """Return a filter rule that accepts traffic, at the usual priority."""
    return _Rule("accept", direction, -500, protocol, matches)


def _drop_rule(direction: str, priority: int, protocol: str, /, **matches: str) -> _Rule:
    """Return a filter rule that drops traffic."""
    return _Rule("drop", direction, priority, protocol, matches)


_UDP: Final = {"protocol": "udp"}
# All else is dropped: IPv6 with neighbour discovery and router advertisements (fuga assigns no IPv6
# addresses, so forged ones could not be detected), VLAN-tagged frames, and other protocols.
_RULES: Final[Sequence[_Rule]] = (
    _drop_rule("out", -1000, "mac", match="no", srcmacaddr="$MAC"),
    # DHCP server answers, which would redirect other guests' traffic.
    _drop_rule("out", -950, "ip", **_UDP, srcportstart="67", srcportend="67"),
    _drop_rule("out", -950, "ip", **_UDP, dstportstart="68", dstportend="68"),
    _accept_rule("out", "arp", arpsrcmacaddr="$MAC", arpsrcipaddr="$IP"),
    # ARP probe before an address is used (RFC 5227).
    _accept_rule("out", "arp", arpsrcmacaddr="$MAC", arpsrcipaddr=_NO_ADDRESS, arpdstipaddr="$IP"),
    _accept_rule("out", "ip", srcipaddr="$IP"),
    # Only frames for this guest, not those that the bridge floods.
    _accept_rule("in", "arp", **_TO_IT),
    _accept_rule("in", "arp", **_BROADCAST),
    _accept_rule("in", "ip", **_TO_IT),
    _accept_rule("in", "ip", **_BROADCAST),
    _accept_rule("in", "ip", **_MULTICAST),
    _Rule("drop", "inout", 1000),
)
# Isolated guests of all hosts have MACs of one block, and no frame passes between two of them.
# Guests of earlier releases have other MACs. Broadcasts of isolated guests reach only their DHCP
# server.
_GROUPS: Final = ("ff:00:00:00:00:00", "01:00:00:00:00:00", "33:00:00:00:00:00")
_OF_GROUP: Final = "ff:00:00:00:00:00"  # libvirt cannot mask the single multicast bit
_ISOLATED: Final[Sequence[_Rule]] = (
    _drop_rule("out", -900, "mac", dstmacaddr=ISOLATED_MACS, dstmacmask=_BLOCK_MASK),
    _drop_rule("in", -900, "mac", srcmacaddr=ISOLATED_MACS, srcmacmask=_BLOCK_MASK),
    *(_drop_rule("out", -800, "ip", dstmacaddr=group, dstmacmask=_OF_GROUP) for group in _GROUPS),
    # Hosts take packets to these addresses for their own, whatever MAC the frame is for.
    _drop_rule("out", -800, "ip", dstipaddr=_TO_ALL),
    _drop_rule("out", -800, "ip", dstipaddr="224.0.0.0", dstipmask="240.0.0.0"),
)


def _dhcp_request_rule(source: str) -> _Rule:
    """Return a filter rule that accepts the guest's DHCP requests from an address."""
    ports = {"srcportstart": "68", "srcportend": "68", "dstportstart": "67", "dstportend": "67"}
    return _Rule(
        "accept", "out", -850, "ip", {"srcipaddr": source, "dstipaddr": _TO_ALL, **_UDP, **ports}
    )


_DHCP_REQUEST_RULES: Final = (_dhcp_request_rule(_NO_ADDRESS), _dhcp_request_rule("$IP"))
# A host accepts packets to any of its addresses from any network. The rules are stateless, so TCP
# connections from these addresses of a host to its guests are blocked as well.
_SERVICE: Final = {"srcipaddr": "$IP", "dstipaddr": "$SERVICES[@1]"}
_HOSTS: Final[Sequence[_Rule]] = (
    *(
        _Rule(
            "accept",
            "out",
            -780,
            "ip",
            {**_SERVICE, "protocol": protocol, "dstportstart": "$PORTS[@2]"},
        )
        for protocol in ("udp", "tcp")
    ),
    _Rule("accept", "out", -780, "ip", {**_SERVICE, "protocol": "icmp"}),
    _drop_rule("out", -760, "ip", dstipaddr="$CLOSED[@1]", dstipmask="$CLOSED_MASK[@1]"),
)


@dataclass(frozen=True, slots=True)
class Filter:
    """A network filter of libvirt: its name and its XML."""

    name: str
    xml: str


@dataclass(frozen=True, slots=True)
class InterfaceFilters:
    """Network and filter of a domain's interface."""

    kind: str | None  #: bridge, network, or another that libvirt cannot filter
    source: str | None
    filter: str | None
    parameters: Parameters
    isolated: bool


# The guest reaches some parts of its subnet and no other guest, neither on other hosts nor by a
# router that reflects packets. The source address of each guest is enforced, so a receiver can
# identify guests by it.
_SOME: Final = "$REACHES[@1]"
_SOME_MASK: Final = "$REACHES_MASK[@1]"
_ARP_TO_SOME: Final = {"arpdstipaddr": _SOME, "arpdstipmask": _SOME_MASK}
_ARP_OF_SOME: Final = {"arpsrcipaddr": _SOME, "arpsrcipmask": _SOME_MASK}
_FROM_IT: Final = {"arpsrcmacaddr": "$MAC", "arpsrcipaddr": "$IP"}


def _early_accept_rule(direction: str, protocol: str, /, **matches: str) -> _Rule:
    """Return a filter rule that accepts traffic before the usual rules apply."""
    return _Rule("accept", direction, -700, protocol, matches)


_APART: Final[Sequence[_Rule]] = (
    # Broadcast and multicast IP packets are for other guests only.
    *(_drop_rule("in", -800, "ip", dstmacaddr=group, dstmacmask=_OF_GROUP) for group in _GROUPS),
    _early_accept_rule("out", "arp", **_FROM_IT, **_ARP_TO_SOME),
    _early_accept_rule("out", "arp", **_FROM_IT, arpdstipaddr="$IP"),
    _early_accept_rule(
        "out", "arp", arpsrcmacaddr="$MAC", arpsrcipaddr=_NO_ADDRESS, arpdstipaddr="$IP"
    ),
    _early_accept_rule("out", "ip", srcipaddr="$IP", dstipaddr=_SOME, dstipmask=_SOME_MASK),
    _drop_rule("out", -600, "arp"),
    _drop_rule("out", -600, "ip", dstipaddr="$SUBNET", dstipmask="$SUBNET_MASK"),
    _early_accept_rule("in", "arp", **_ARP_OF_SOME, arpdstipaddr="$IP"),
    # Gratuitous ARP of a gateway that changes its MAC.
    _early_accept_rule("in", "arp", **_ARP_OF_SOME, **_ARP_TO_SOME),
    _early_accept_rule("in", "ip", **_TO_IT, srcipaddr=_SOME, srcipmask=_SOME_MASK),
    _drop_rule("in", -600, "arp"),
    _drop_rule("in", -600, "ip", srcipaddr="$SUBNET", srcipmask="$SUBNET_MASK"),
)


def _build_filter(kind: str, rules: Sequence[_Rule]) -> Filter:
    """Return a libvirt network filter with these rules; its name contains their digest."""
    document = ET.Element("filter", chain="root")
    for rule in rules:
        attributes = {
            "action": rule.action,
            "direction": rule.direction,
            "priority": str(rule.priority),
        }
        element = ET.SubElement(document, "rule", attributes)
        if rule.protocol is not None:
            ET.SubElement(element, rule.protocol, dict(rule.matches or {}))
    digest = hashlib.sha256(ET.tostring(document)).hexdigest()[:12]
    name = f"{_PREFIX}{kind}-{digest}"
    document.set("name", name)
    # Deterministic: concurrent or repeated definitions are equal.
    identity = ET.Element("uuid")
    identity.text = str(uuid.uuid5(uuid.NAMESPACE_URL, f"https://fuga.invalid/filter/{name}"))
    document.insert(0, identity)
    return Filter(name, ET.tostring(document, encoding="unicode"))


#: Filters for a guest with a known address, and with an address by DHCP, which the host snoops;
#: both also for isolated guests. APART also blocks parts of the guest's subnet.
FIXED: Final = _build_filter("fixed", (*_RULES, *_HOSTS))
BY_DHCP: Final = _build_filter("dhcp", (*_RULES, *_HOSTS, *_DHCP_REQUEST_RULES))
ISOLATED: Final = _build_filter("isolated", (*_RULES, *_HOSTS, *_ISOLATED))
ISOLATED_BY_DHCP: Final = _build_filter(
    "isolated-dhcp", (*_RULES, *_HOSTS, *_ISOLATED, *_DHCP_REQUEST_RULES)
)
APART: Final = _build_filter("apart", (*_RULES, *_HOSTS, *_ISOLATED, *_APART))
_NAMES: Final = frozenset(each.name for each in (FIXED, BY_DHCP, ISOLATED, ISOLATED_BY_DHCP, APART))


def build_filter(guard: Guard) -> Filter | None:
    """Return the network filter for a guard; None if it is unfiltered."""
    if not guard.filtered:
        return None
    if guard.address is None:
        return ISOLATED_BY_DHCP if guard.isolated else BY_DHCP
    if not guard.isolated:
        return FIXED
    # A list parameter must not be empty.
    return APART if guard.subnet is not None and guard.reaches else ISOLATED


def protect_interface(interface: ET.Element, guard: Guard) -> None:
    """Replace the network filter and the isolation in an interface's XML."""
    for tag in ("filterref", "port"):
        for old in interface.findall(tag):
            interface.remove(old)
    wanted = build_filter(guard)
    if wanted is not None:
        reference = ET.SubElement(interface, "filterref", filter=wanted.name)
        for name, value in _filter_parameters(guard):
            ET.SubElement(reference, "parameter", name=name, value=value)
    if guard.isolated:
        ET.SubElement(interface, "port", isolated="yes")


def protect_interfaces(domain: ET.Element, guard: Guard) -> bool:
    """Apply a guard's filter to every interface of a domain; return whether anything changed."""
    changed = False
    wanted = build_filter(guard)
    target = (
        None if wanted is None else wanted.name,
        () if wanted is None else _filter_parameters(guard),
        guard.isolated,
    )
    for interface, found in zip(
        _interface_elements(domain), interface_filters(domain), strict=True
    ):
        if (found.filter, found.parameters, found.isolated) != target:
            protect_interface(interface, guard)
            changed = True
    return changed


def interface_filters(domain: ET.Element) -> tuple[InterfaceFilters, ...]:
    """Return network and network filter of each interface of a domain."""
    return tuple(_parse_interface(interface) for interface in _interface_elements(domain))


def is_filtered(domain: ET.Element) -> bool:
    """Return whether each interface of a domain has a network filter of this release."""
    return all(interface.filter in _NAMES for interface in interface_filters(domain))


def same_rules(one: ET.Element, other: ET.Element) -> bool:
    """Return whether two network filters have the same rules; an operator may have edited one."""
    return list(_parse_rules(one)) == list(_parse_rules(other))


def filter_obstacle(network: ET.Element) -> str | None:
    """Return why libvirt cannot filter traffic of a network; None if it can.

    libvirt filters only on Linux bridges. On other networks its rules have no effect, without an
    error.
    """
    port = network.find("virtualport")
    if port is not None and port.get("type") != "802.1Qbh":
        return f"it is attached by {port.get('type')}"
    forward = network.find("forward")
    mode = None if forward is None else forward.get("mode")
    if mode in {"private", "vepa", "passthrough", "hostdev"}:
        return f"its mode is {mode}"
    if mode == "bridge" and network.find("bridge") is None:
        return "it is attached by macvtap"
    return None


def addresses_of(network: ET.Element) -> tuple[ipaddress.IPv4Interface, ...]:
    """Return the host's IPv4 addresses on a libvirt network, each with its prefix."""
    return tuple(
        ipaddress.IPv4Interface(
            f"{each.get('address')}/{each.get('netmask') or each.get('prefix') or 32}"
        )
        for each in network.iterfind("ip")
        if each.get("family", "ipv4") == "ipv4" and each.get("address")
    )


def collapse_networks(networks: Iterable[str]) -> tuple[str, ...]:
    """Collapse IPv4 networks and addresses into the fewest equivalent networks."""
    found = ipaddress.collapse_addresses(map(ipaddress.IPv4Network, networks))
    return tuple(map(str, found))


def _filter_parameters(guard: Guard) -> Parameters:
    """Return the network filter's parameters for a guard, sorted by name as libvirt does."""
    # List parameters must not be empty; loopback addresses are always closed.
    blocks = {"CLOSED": (_LOOPBACK, *guard.closed)}
    found = [("SERVICES", each) for each in guard.services or (_TO_ALL,)]
    found += [("PORTS", str(each)) for each in guard.ports]
    if guard.address is None:
        found.append(("CTRL_IP_LEARNING", "dhcp"))
    else:
        found.append(("IP", guard.address))
        if build_filter(guard) is APART and guard.subnet is not None:
            blocks |= {"REACHES": guard.reaches, "SUBNET": (guard.subnet,)}
    for name, networks in blocks.items():
        some = [ipaddress.IPv4Network(each) for each in networks]
        found += [(name, str(each.network_address)) for each in some]
        found += [(f"{name}_MASK", str(each.netmask)) for each in some]
    return tuple(sorted(found, key=lambda each: each[0]))


def _interface_elements(domain: ET.Element) -> Sequence[ET.Element]:
    """Return the network interfaces of domain XML."""
    return domain.findall("devices/interface")


def _parse_interface(interface: ET.Element) -> InterfaceFilters:
    """Return network, network filter and isolation of an interface in domain XML."""
    kind = interface.get("type")
    source, reference, port = (
        interface.find("source"),
        interface.find("filterref"),
        interface.find("port"),
    )
    return InterfaceFilters(
        kind=kind,
        source=None if source is None or kind is None else source.get(kind),
        filter=None if reference is None else reference.get("filter"),
        parameters=()
        if reference is None
        else tuple(
            (each.get("name", ""), each.get("value", "")) for each in reference.iter("parameter")
        ),
        isolated=port is not None and port.get("isolated") == "yes",
    )


def _parse_rules(document: ET.Element) -> Iterator[object]:
    """Yield the rules and references of a network filter's XML, for comparisons."""
    for rule in document.iterfind("rule"):
        yield (
            tuple(rule.get(name) for name in ("action", "direction", "priority")),
            tuple((each.tag, tuple(sorted(each.attrib.items()))) for each in rule),
        )
    yield from (each.get("filter") for each in document.iterfind("filterref"))
