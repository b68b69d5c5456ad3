"""What the doctor says of hosts that guests reach."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from controller.cli.doctor import guests
from controller.cli.doctor.guests import guest_findings

NAMES = {"h2.example.org": {"10.1.0.8"}, "h6.example.org": {"fd00::6"}}


def a_host(name: str, uri: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "admin": "active", "domain_type": "kvm", "uri": uri} | fields


HOSTS = [
    a_host("h1", "qemu+tls://10.1.0.7/system"),
    a_host("h2", "qemu+ssh://root@h2.example.org/system"),
    a_host("h6", "qemu+tls://h6.example.org/system"),
]


def found(
    *hosts: dict[str, Any], closed: tuple[str, ...] = (), networks: Any = (), **options: Any
) -> list[tuple[bool, str]]:
    settings = SimpleNamespace(host_networks=closed)
    options = {"resolve": lambda name: NAMES.get(name, ())} | options
    findings = guest_findings(settings, hosts, networks, **options)
    return [(each.well, each.message) for each in findings]


def test_hosts_that_guests_reach_are_named_with_what_to_type():
    [(well, words)] = found(*HOSTS, closed=("10.9.0.0/16",))

    assert not well
    assert "h1 (10.1.0.7), h2 (10.1.0.8)" in words
    assert words.endswith("export FUGA_HOST_NETWORKS=10.9.0.0/16,10.1.0.0/24")


def test_what_guests_of_a_lab_reach_is_a_note():
    lab = a_host("h", "qemu+tls://10.1.0.7/system", domain_type="qemu")
    settings = SimpleNamespace(host_networks=())

    [finding] = guest_findings(settings, [lab], ())

    assert finding.level == "note"


def test_networks_without_filters_are_named():
    networks = [{"name": "wire", "filtered": False}, {"name": "lan", "filtered": True}]

    [_, (_, words)] = found(*HOSTS, closed=("10.1.0.0/16",), networks=networks)

    assert words.startswith("guests of networks without filters (wire) reach what listens")


def test_hosts_in_these_networks_and_by_ipv6_are_closed():
    assert found(*HOSTS, closed=("10.1.0.0/16",)) == [
        (True, "addresses of 3 hosts are closed to guests")
    ]


@pytest.mark.parametrize(
    ("host", "well"),
    [
        (a_host("h", "qemu:///system"), False),
        (a_host("h", "qemu+tls://nowhere.example.org/system"), False),
        (a_host("h", "qemu+tls://nowhere.example.org/system", domain_type="qemu"), True),
    ],
)
def test_a_host_whose_address_is_not_known_is_named(host, well):
    [(told_well, words)] = found(host)

    assert told_well == well
    assert words.startswith("no address is known here of h:")


@pytest.mark.parametrize(
    "host",
    [
        a_host("h", "test:///x", domain_type="test"),
        a_host("h", "qemu+tls://10.1.0.7/system", admin="retired"),
        a_host("h", "qemu+unix:///system?socket=/lab", domain_type="qemu"),
    ],
)
def test_hosts_without_guests_of_others_are_passed_over(host):
    assert found(host, lab_uris=("qemu+unix:///system?socket=/lab",)) == []


def test_of_very_many_hosts_few_are_named_and_few_networks_suggested():
    hosts = [
        a_host(f"h{each}", f"qemu+tls://10.{each % 2}.{each // 100}.{each % 100 + 1}/system")
        for each in range(12_500)
    ]

    [(_, words)] = found(*hosts)

    assert "and 12495 more" in words
    assert words.endswith("FUGA_HOST_NETWORKS=10.0.0.0/17,10.1.0.0/17")


def test_a_resolver_that_hangs_holds_the_doctor_up_for_seconds_at_most(monkeypatch):
    monkeypatch.setattr(guests, "_WITHIN_S", 0.05)
    never = threading.Event()

    [(_, words)] = found(HOSTS[1], resolve=lambda _: [never.wait()])

    assert "no address is known here of h2" in words


LAN = {"name": "lan", "subnet": {"cidr": "10.1.7.0/24", "gateway": "10.1.7.1"}}
DMZ = {"name": "dmz", "subnet": {"cidr": "10.2.0.0/24", "gateway": "10.2.0.1"}}


def test_gateways_and_subnets_of_guests_are_compared_with_networks_of_hosts():
    at = HOSTS[0]
    other = {"name": "dhcp", "subnet": None}
    unfiltered = LAN | {"name": "raw", "filtered": False}

    networks = [LAN, DMZ, other, unfiltered]
    [_, (_, raw), (well, words)] = found(at, closed=("10.1.0.0/24",), networks=networks)
    assert "without filters (raw)" in raw
    assert well
    assert words.startswith("gateways of networks lan (10.1.7.1), dmz (10.2.0.1) are not")

    [_, (well, words)] = found(at, closed=("10.1.0.0/16",), networks=[LAN, DMZ])
    assert not well
    assert "contains networks of guests: lan (10.1.7.0/24)" in words
    assert found(at, closed=("10.1.0.0/16",), networks=[LAN | {"isolated": True}])[1:] == []
