"""What the doctor says of moves: whether hosts can exchange VMs, and what the settings mean."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from controller.cli.doctor.hosts import move_findings
from workers.settings import WorkerSettings

LARGE = {"name": "large", "resources": {"vcpus": 8, "memory_mib": 65_536}}
SMALL = {"name": "small", "resources": {"vcpus": 1, "memory_mib": 3072}}


def a_host(name: str, **fields: Any) -> dict[str, Any]:
    uri = f"qemu+tls://{name}.example.org/system"
    return {"name": name, "admin": "active", "domain_type": "kvm", "uri": uri} | fields


def found(hosts: list[dict[str, Any]] | None = None, **settings: Any) -> list[tuple[bool, str]]:
    read = WorkerSettings(**settings)
    return [(each.well, each.message) for each in move_findings(read, hosts or [], [SMALL, LARGE])]


def test_two_hosts_exchange_vms_and_one_does_not() -> None:
    [(well, problem)] = found([a_host("h1"), a_host("h2")])

    assert well
    assert problem.startswith("2 hosts exchange VMs, if they reach each other by name")
    assert found([a_host("h1"), a_host("h2", domain_type="test")]) == []
    assert found([a_host("h1"), a_host("h2", admin="retired")]) == []
    assert found([a_host("h1"), a_host("h2", same_machine_as="h1")]) == []


def test_ports_of_moves_are_those_of_the_settings() -> None:
    [(well, problem)] = found([a_host("h1"), a_host("h2")], move_ports="50000-65535")

    assert well
    assert problem.endswith("on ports 50000 to 65535")


@pytest.mark.parametrize("ports", ["80-65535", "50000-50014", "50100-50000", "50000", "a-b"])
def test_ports_that_are_too_few_or_no_range_are_refused(ports: str) -> None:
    with pytest.raises(ValidationError):
        WorkerSettings(move_ports=ports)  # type: ignore[arg-type]


def test_moves_that_are_unencrypted_are_wrong() -> None:
    hosts = [a_host("h1"), a_host("h2")]

    [_, (well, problem)] = found(hosts, move_encrypt=False)

    assert not well
    assert "FUGA_MOVE_ENCRYPT" in problem


def test_a_bandwidth_at_which_large_vms_never_arrive_is_wrong() -> None:
    [(well, problem)] = found(move_bandwidth_mib_s=8, move_deadline_s=3600)

    assert not well
    assert "28800 MiB move within FUGA_MOVE_DEADLINE_S (3600 s)" in problem
    assert problem.endswith("too few for VMs of type large")
    assert found(move_bandwidth_mib_s=19, move_deadline_s=3600) == []


def test_a_limit_that_has_no_effect_is_wrong() -> None:
    [(well, problem)] = found(moves_at_once=1, moves_per_host=2)

    assert not well
    assert "FUGA_MOVES_AT_ONCE (1) is below FUGA_MOVES_PER_HOST (2)" in problem
