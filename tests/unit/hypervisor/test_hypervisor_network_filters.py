"""What is written of a card; `tests/contract/test_guests_apart.py` has what comes of it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from hypervisor import Guard
from hypervisor.xml import network_filters

FIXED = Guard(filtered=True, isolated=True, address="10.0.0.5")
APART = replace(FIXED, subnet="10.0.0.0/24", reaches=("10.0.0.1/32", "10.0.0.8/29"))
#: What every card has: loopback addresses closed, and of nobody in particular services.
CLOSED = (("CLOSED", "127.0.0.0"), ("CLOSED_MASK", "255.0.0.0"))
SERVED = (*(("PORTS", port) for port in ("53", "67", "123")), ("SERVICES", "255.255.255.255"))
ADDRESS = (*CLOSED, ("IP", "10.0.0.5"), *SERVED)
LEARNING = (*CLOSED, ("CTRL_IP_LEARNING", "dhcp"), *SERVED)
OF_APART = (
    *CLOSED,
    ("IP", "10.0.0.5"),
    *SERVED[:-1],
    ("REACHES", "10.0.0.1"),
    ("REACHES", "10.0.0.8"),
    ("REACHES_MASK", "255.255.255.255"),
    ("REACHES_MASK", "255.255.255.248"),
    SERVED[-1],
    ("SUBNET", "10.0.0.0"),
    ("SUBNET_MASK", "255.255.255.0"),
)
BY_DHCP = Guard(filtered=True, isolated=False)
OPEN = Guard(filtered=False, isolated=False)


def a_domain(inside: str = "") -> ET.Element:
    return ET.fromstring(
        "<domain><devices><interface type='bridge'><source bridge='br0'/>"
        f"{inside}</interface></devices></domain>"
    )


@pytest.mark.parametrize(
    ("guard", "name", "parameters"),
    [
        (replace(FIXED, isolated=False), network_filters.FIXED.name, ADDRESS),
        (FIXED, network_filters.ISOLATED.name, ADDRESS),
        (APART, network_filters.APART.name, OF_APART),
        (BY_DHCP, network_filters.BY_DHCP.name, LEARNING),
        (replace(BY_DHCP, isolated=True), network_filters.ISOLATED_BY_DHCP.name, LEARNING),
        (OPEN, None, ()),
    ],
)
def test_a_card_carries_its_filter_and_is_written_once(guard, name, parameters):
    domain = a_domain()

    first, again = (
        network_filters.protect_interfaces(domain, guard),
        network_filters.protect_interfaces(domain, guard),
    )

    [card] = network_filters.interface_filters(domain)
    assert (card.filter, card.parameters, card.isolated) == (name, parameters, guard.isolated)
    assert (first, again) == (guard is not OPEN, False)
    assert network_filters.is_filtered(domain) == guard.filtered


@pytest.mark.parametrize("other", ["clean-traffic", "fuga-fixed-0123456789ab"])
def test_a_card_of_another_address_or_filter_is_written_anew(other: str):
    domain = a_domain(
        f"<port isolated='yes'/><filterref filter='{other}'>"
        "<parameter name='IP' value='10.0.0.9'/></filterref>"
    )
    assert not network_filters.is_filtered(domain)

    assert network_filters.protect_interfaces(domain, FIXED)

    assert len(domain.findall("devices/interface/filterref")) == 1
    assert len(domain.findall("devices/interface/port")) == 1
    assert network_filters.is_filtered(domain)


def test_names_of_filters_tell_their_rules_and_what_is_not_accepted_is_dropped():
    for each in (
        network_filters.FIXED,
        network_filters.ISOLATED,
        network_filters.APART,
        network_filters.BY_DHCP,
        network_filters.ISOLATED_BY_DHCP,
    ):
        document = ET.fromstring(each.xml)
        last = max(document.iterfind("rule"), key=lambda rule: int(rule.get("priority", "0")))
        assert last.attrib == {"action": "drop", "direction": "inout", "priority": "1000"}
        assert len(last) == 0
    assert network_filters.FIXED.name != network_filters.BY_DHCP.name
    # Frames to all that a Linux guest cannot send; other programs can.
    for isolated in (network_filters.ISOLATED, network_filters.ISOLATED_BY_DHCP):
        assert '<ip dstipaddr="255.255.255.255" /></rule>' in isolated.xml
    assert not network_filters.same_rules(
        ET.fromstring(network_filters.FIXED.xml), ET.fromstring(network_filters.BY_DHCP.xml)
    )


def test_every_filter_drops_what_a_dhcp_server_sends_by_either_port():
    for each in (
        network_filters.FIXED,
        network_filters.ISOLATED,
        network_filters.APART,
        network_filters.BY_DHCP,
        network_filters.ISOLATED_BY_DHCP,
    ):
        rules = ET.fromstring(each.xml).iterfind("rule")
        dropped = {
            (name, match.get(name))
            for rule in rules
            if (rule.get("action"), rule.get("direction")) == ("drop", "out")
            for match in rule.iterfind("ip")
            for name in ("srcportstart", "dstportstart")
        }
        assert {("srcportstart", "67"), ("dstportstart", "68")} <= dropped


@pytest.mark.parametrize(
    ("xml", "can"),
    [
        ("<network><bridge name='virbr0'/></network>", True),
        ("<network><forward mode='nat'/><bridge name='virbr0'/></network>", True),
        ("<network><forward mode='bridge'/><bridge name='br0'/></network>", True),
        (
            "<network><forward mode='bridge'/><bridge name='ovs'/>"
            "<virtualport type='openvswitch'/></network>",
            False,
        ),
        ("<network><forward mode='bridge'><interface dev='eth0'/></forward></network>", False),
        ("<network><forward mode='passthrough'/></network>", False),
        ("<network><forward mode='hostdev'/></network>", False),
    ],
)
def test_networks_on_which_libvirt_filters_nothing_are_known(xml: str, can: bool):
    assert (network_filters.filter_obstacle(ET.fromstring(xml)) is None) == can
