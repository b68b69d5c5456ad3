"""libvirt network filters on a host. In the child process only."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

import libvirt

from hypervisor.errors import OperationFailedError
from hypervisor.model import MAX_CLOSED_NETWORKS, Guard
from hypervisor.xml import domain as domain_xml
from hypervisor.xml import network_filters

_OPERATION: Final = "filter"
_WHOLE: Final = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE


def can_filter(conn: libvirt.virConnect) -> bool | None:
    """Return whether a host supports network filters; None for the test driver."""
    if conn.getType() == "TEST":
        return None
    try:
        conn.numOfNWFilters()
    except libvirt.libvirtError as error:
        if error.get_error_code() in {libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_NO_CONNECT}:
            return False
        raise
    return True


def add_host_addresses(
    conn: libvirt.virConnect, guard: Guard, sources: Collection[tuple[str | None, str | None]]
) -> Guard:
    """Return a guard that also closes the host's addresses on its libvirt networks.

    The broadcast addresses of these networks are closed, too, but for guests that may send
    broadcasts there. Addresses on the guest's own networks become services. ``sources`` holds
    kind and name of each of those networks.
    """
    if not guard.filtered or conn.getType() == "TEST":
        return guard
    services, closed = list(guard.services), list(guard.closed)
    for network in _active_networks(conn):
        bridge = network.find("bridge")
        names = {("network", network.findtext("name"))}
        if bridge is not None:
            names.add(("bridge", bridge.get("name")))
        is_own = not names.isdisjoint(sources)
        for address in network_filters.addresses_of(network):
            closed.append(str(address.ip))
            if is_own:
                services.append(str(address.ip))
            if guard.isolated or not is_own:  # it is an address of the host, too
                closed.append(str(address.network.broadcast_address))
    merged = network_filters.collapse_networks(closed)
    if len(merged) > MAX_CLOSED_NETWORKS:
        raise OperationFailedError(
            _OPERATION,
            f"{len(merged)} networks and addresses of this host, those of its libvirt included,"
            f" have to be closed to its guests; at most {MAX_CLOSED_NETWORKS} are possible: let"
            " FUGA_HOST_NETWORKS name networks that contain several",
        )
    return replace(guard, closed=merged, services=tuple(dict.fromkeys(services)))


def define_filter(conn: libvirt.virConnect, domain: ET.Element, guard: Guard | None) -> None:
    """Define the network filter that a domain's interfaces need.

    Raises
    ------
    OperationFailedError
        If the host cannot filter: no guest may run unfiltered.
    """
    wanted = None if guard is None else network_filters.build_filter(guard)
    if wanted is None or conn.getType() == "TEST":
        return
    if not can_filter(conn):
        raise OperationFailedError(
            _OPERATION,
            "this host's libvirt has no network filters (nwfilter), so nothing would prevent the"
            " guest from using other guests' addresses",
            libvirt.VIR_ERR_NO_SUPPORT,
        )
    for interface in network_filters.interface_filters(domain):
        _check_network_filterable(conn, interface)
    try:
        found = conn.nwfilterLookupByName(wanted.name)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_NWFILTER:
            raise
    else:
        there = domain_xml.parse_tree(found.XMLDesc(0))
        if network_filters.same_rules(there, domain_xml.parse_tree(wanted.xml)):
            return
        if there.findtext("uuid") != domain_xml.parse_tree(wanted.xml).findtext("uuid"):
            raise OperationFailedError(
                _OPERATION,
                f"the network filter {wanted.name} of this host is not fuga's: undefine it",
            )
    conn.nwfilterDefineXML(wanted.xml)


def refresh_filters(
    conn: libvirt.virConnect, domain: libvirt.virDomain, guard: Guard | None
) -> None:
    """Redefine a stopped domain with the filters that its guard now needs."""
    if guard is None or conn.getType() == "TEST":
        return
    document = domain_xml.parse_tree(domain.XMLDesc(_WHOLE))
    sources = [
        (interface.kind, interface.source)
        for interface in network_filters.interface_filters(document)
    ]
    guard = add_host_addresses(conn, guard, sources)
    define_filter(conn, document, guard)
    if network_filters.protect_interfaces(document, guard):
        conn.defineXML(ET.tostring(document, encoding="unicode"))


def _check_network_filterable(
    conn: libvirt.virConnect, interface: network_filters.InterfaceFilters
) -> None:
    """Raise `OperationFailedError` if libvirt cannot filter a network's traffic."""
    reason = None
    if interface.kind == "network" and interface.source is not None:
        network = conn.networkLookupByName(interface.source)
        reason = network_filters.filter_obstacle(domain_xml.parse_tree(network.XMLDesc(0)))
    elif interface.kind != "bridge":
        reason = f"it is of type {interface.kind}"
    if reason is not None:
        raise OperationFailedError(
            _OPERATION,
            f"libvirt filters nothing on {interface.kind} {interface.source}: {reason}."
            " Use a Linux bridge, or ask the operators for a network without filters",
            libvirt.VIR_ERR_CONFIG_UNSUPPORTED,
        )


def _active_networks(conn: libvirt.virConnect) -> Iterator[ET.Element]:
    """Yield the XML of the host's active libvirt networks."""
    try:
        found = conn.listAllNetworks(libvirt.VIR_CONNECT_LIST_NETWORKS_ACTIVE)
    except libvirt.libvirtError as error:
        if error.get_error_code() in {libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_NO_CONNECT}:
            return  # such a host has only bridges
        raise
    for network in found:
        try:
            yield domain_xml.parse_tree(network.XMLDesc(0))
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_NETWORK:
                raise
