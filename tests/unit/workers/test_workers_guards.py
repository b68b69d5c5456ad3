"""What workers close of hosts to their guests."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from pydantic import ValidationError

from registry.hosts import HostAccess
from registry.networks import InterfaceRules
from workers.network_guard import HostNetworks, network_guard
from workers.settings import WorkerSettings

HOST = HostAccess(
    id=UUID(int=1),
    name="h1",
    uri="qemu+tls://h1.example.org/system",
    domain_type="kvm",
    pool="default",
    network="default",
    base_volume=None,
    memory_backing_mib=None,
)
CARD = InterfaceRules(
    address="10.0.0.5", gateway="10.0.0.1", dns=("10.0.0.2", "10.1.0.53", "9.9.9.9")
)
KNOWN = HostNetworks(networks=("10.1.0.0/16",))


@pytest.mark.parametrize(
    ("uri", "card", "known", "closed", "services"),
    [
        # A gateway may be a host; a name server elsewhere needs no permission.
        (HOST.uri, CARD, HostNetworks(), ("10.0.0.1/32",), ("10.0.0.1",)),
        (HOST.uri, CARD, KNOWN, ("10.0.0.1/32", "10.1.0.0/16"), ("10.0.0.1", "10.1.0.53")),
        ("qemu+tls://10.1.0.7/system", CARD, KNOWN, ("10.0.0.1/32", "10.1.0.0/16"), None),
        (
            "qemu+tls://10.2.0.7:16515/system",
            InterfaceRules(),
            KNOWN,
            ("10.1.0.0/16", "10.2.0.7/32"),
            (),
        ),
        ("qemu+tls://[fd00::7]/system", InterfaceRules(), HostNetworks(), (), ()),
        ("qemu:///system", InterfaceRules(), HostNetworks(), (), ()),
    ],
)
def test_addresses_of_hosts_are_closed_and_servers_of_guests_among_them_serve(
    uri, card, known, closed, services
):
    guard = network_guard(replace(HOST, uri=uri), card, known)

    assert guard is not None
    assert guard.closed == closed
    assert services is None or guard.services == services


def test_networks_of_hosts_are_merged_and_ipv6_which_no_card_lets_pass_makes_no_rule():
    settings = WorkerSettings(
        host_networks="10.1.0.0/24, 10.1.1.0/24,10.1.0.7/32,fd00::/64", gateway_ports="3128,53"
    )

    assert settings.host_networks == ("10.1.0.0/23", "fd00::/64")
    assert settings.known_host_networks() == HostNetworks(
        networks=("10.1.0.0/23",), gateway_ports=(53, 3128)
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"host_networks": "10.1.0.7/16"}, "write networks such as 10.1.0.0/16"),
        ({"host_networks": "hosts"}, "write networks such as 10.1.0.0/16"),
        ({"host_networks": "0.0.0.0/0"}, "no network shorter than /8"),
        (
            {"host_networks": [f"10.{each}.0.0/16" for each in range(0, 200, 2)]},
            "100 networks after merging; at most 64",
        ),
        ({"gateway_ports": ""}, "0 ports; 1 to 16"),
        ({"gateway_ports": "70000"}, "65535"),
    ],
)
def test_a_setting_that_cannot_be_kept_says_what_can(fields, words):
    with pytest.raises(ValidationError, match=words):
        WorkerSettings(**fields)
