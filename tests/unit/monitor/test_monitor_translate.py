"""What a hypervisor shows, in the words of the register center."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from hypervisor import DomainState, HostDomain, HostPoll, HostVolume, Mark, OperationFailedError
from monitor.translate import to_report
from registry.db.ids import uuid7

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def a_domain(**changes: Any) -> HostDomain:
    values: dict[str, Any] = {
        "uuid": str(uuid7()),
        "name": "d",
        "state": DomainState.RUNNING,
        "vcpus": 2,
        "memory_mib": 128,
        "mark": None,
    }
    return HostDomain(**values | changes)


def a_mark(assignment_id: str) -> Mark:
    return Mark(vm_id=str(uuid7()), assignment_id=assignment_id, generation=3, tenant="a", round=7)


A_LOOK = HostPoll(
    hostname="lab1",
    vcpus=4,
    memory_mib=8192,
    disk_gib=500,
    cpu_busy_percent=12.5,
    memory_used_mib=900,
    disk_used_gib=3,
    domains=(),
    volumes=(),
)


def translated(*domains: HostDomain, volumes: tuple[HostVolume, ...] = ()) -> Any:
    seen = replace(A_LOOK, domains=domains, volumes=volumes)
    return to_report(seen, started_at=AT, polled_at=AT, took_ms=12)


def test_a_report_carries_capacity_and_consumption() -> None:
    report = translated(
        volumes=(HostVolume(name="base.qcow2", capacity_bytes=1, allocation_bytes=1),)
    )

    assert report.detected == {"vcpus": 4, "memory_mib": 8192, "disk_gib": 500}
    assert (report.cpu_busy_percent, report.memory_used_mib, report.disk_used_gib) == (12.5, 900, 3)
    assert report.volumes == ("base.qcow2",)
    assert (report.hostname, report.took_ms, report.started_at) == ("lab1", 12, AT)


def test_our_domain_is_known_by_the_assignment_in_its_mark() -> None:
    assignment_id = uuid7()
    seen = a_domain(mark=a_mark(str(assignment_id)), cpu_time_ns=5, memory_used_mib=90)

    [domain] = translated(seen).domains

    assert str(domain.uuid) == seen.uuid
    assert (domain.assignment_id, domain.generation) == (assignment_id, 3)
    assert (domain.state, domain.cpu_time_ns, domain.memory_used_mib) == ("running", 5, 90)


@pytest.mark.parametrize("mark", [None, a_mark("not-a-uuid")], ids=["no mark", "a broken mark"])
def test_a_domain_without_a_mark_that_we_wrote_is_a_stranger(mark: Mark | None) -> None:
    [domain] = translated(a_domain(mark=mark, disk_gib=20)).domains

    assert domain.assignment_id is None
    assert domain.generation is None
    assert (domain.vcpus, domain.memory_mib, domain.disk_gib) == (2, 128, 20)


@pytest.mark.parametrize(
    "nonsense",
    [
        {"vcpus": -1},
        {"memory_mib": 2**54},
        {"disk_gib": 2**64},
        {"memory_used_mib": 2**63},
        {"disk_used_gib": 2**63},
        {"machine_uuid": "m" * 100},
        {"domains": (a_domain(vcpus=10**30),)},
        {"domains": (a_domain(memory_mib=2**62), a_domain(memory_mib=2**62))},
        {"domains": (a_domain(disk_gib=2**63),)},
        {"domains": (a_domain(uuid="x"),)},
    ],
)
def test_a_host_that_tells_what_no_host_has_did_not_answer(nonsense: dict[str, Any]) -> None:
    with pytest.raises(OperationFailedError, match="report failed"):
        to_report(replace(A_LOOK, **nonsense), started_at=AT, polled_at=AT, took_ms=12)
