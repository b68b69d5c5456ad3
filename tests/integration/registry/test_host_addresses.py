"""Hosts found by the IP and MAC addresses of their last report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from registry import InvalidError, Registry
from tests.register import a_report, add_host


def names(register: Registry, **query: str) -> list[str]:
    return [host.name for host in register.hosts.list(**query).items]


def test_a_host_is_found_by_what_its_last_report_says_of_its_network(register: Registry) -> None:
    for number, (mac, address) in enumerate(
        [("52:54:00:00:00:01", "10.0.0.1"), ("52:54:00:00:00:02", "10.0.0.11")], 1
    ):
        host = add_host(register, f"h{number}")
        report = replace(
            a_report(hostname=f"h{number}"),
            interfaces={"eth0": "52:54:00:00:00:ff", "eth1": mac},
            addresses=(address, f"fd00::{number}"),
        )
        register.hosts.record_report(host.id, report)
    add_host(register, "h3")

    assert register.hosts.latest_report("h1").interfaces["eth1"] == "52:54:00:00:00:01"
    assert names(register, address="10.0.0.1") == ["h1"]
    assert names(register, address="fd00:0::2") == ["h2"]
    assert names(register, mac="52-54-00-00-00-02") == ["h2"]
    assert names(register, mac="52:54:00:00:00:FF") == ["h1", "h2"]
    assert names(register, address="10.0.0.1", mac="52:54:00:00:00:02") == []
    assert names(register, address="10.0.0.9") == []


@pytest.mark.parametrize(
    ("query", "value"),
    [("address", "10.0.0"), ("address", "%"), ("mac", "52:54"), ("mac", "%%:%%:%%:%%:%%:%%")],
)
def test_what_is_no_address_is_refused(register: Registry, query: str, value: str) -> None:
    with pytest.raises(InvalidError, match=query):
        names(register, **{query: value})
