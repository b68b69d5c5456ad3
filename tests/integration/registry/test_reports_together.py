"""Looks at many hosts, written in one transaction, leave what they leave one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from registry import AnotherMachineError, NotFoundError, Registry, RegistryError
from registry.hosts import DomainReport, Host, HostReport
from tests.register import (
    a_cluster,
    a_domain,
    a_report,
    a_stranger,
    add_host,
    now,
    remove_vm,
    running,
)


def a_look(*domains: DomainReport, machine: UUID | None = None, **fields: Any) -> HostReport:
    machine_uuid = None if machine is None else str(machine)
    return replace(a_report(*domains, **fields), machine_uuid=machine_uuid)


def a_scene(register: Registry, name: str) -> dict[UUID, HostReport]:
    """Make hosts on which everything is that a look may find; return a look at each."""
    well, lost, strange, left, moved, late, new = (
        add_host(register, f"{name}-{what}", up=what != "new")
        for what in ("well", "lost", "strange", "left", "moved", "late", "new")
    )
    runs, stops = running(register, well), running(register, well)
    running(register, lost)
    released = running(register, left)
    register.vms.delete(released.vm_id, actor="a")
    remove_vm(register, released.claim.assignment_id)
    stays = running(register, moved)
    after = now() + timedelta(seconds=5)
    register.hosts.record_report(moved.id, a_look(a_domain(stays), machine=uuid4()))
    return {
        well.id: a_look(a_domain(runs), a_domain(stops, "stopped"), started_at=after),
        lost.id: a_look(started_at=after),
        strange.id: a_look(a_stranger(f"{name}-stranger"), started_at=after),
        left.id: a_look(a_domain(released), started_at=after),
        moved.id: a_look(started_at=after, machine=uuid4()),
        late.id: a_look(vcpus=1, started_at=after - timedelta(hours=1)),
        new.id: a_look(vcpus=8, started_at=after),
    }


def alone(register: Registry, host_id: UUID, report: HostReport) -> Host | RegistryError:
    try:
        return register.hosts.record_report(host_id, report)
    except RegistryError as error:
        return error


def told(outcomes: Iterable[Host | RegistryError], name: str) -> list[Any]:
    """Return what became of hosts, as it would be told of hosts by another name."""
    return [
        type(each)
        if isinstance(each, RegistryError)
        else (
            each.name.removeprefix(name),
            each.health,
            each.missed_polls,
            each.last_error,
            [(of.resource, of.detected, of.foreign, of.committed) for of in each.inventories],
        )
        for each in outcomes
    ]


def events(register: Registry) -> Counter[tuple[str, str | None, str | None]]:
    found = register.events.list(limit=200)
    return Counter((event.kind, event.from_state, event.to_state) for event in found)


def test_looks_written_together_leave_what_they_leave_one_by_one(register: Registry) -> None:
    a_cluster(register)
    one_by_one, together = a_scene(register, "x"), a_scene(register, "y")
    before = events(register)

    apart = [alone(register, host_id, report) for host_id, report in one_by_one.items()]
    between = events(register)
    at_once = register.hosts.record_reports(together)

    assert told(at_once.values(), "y") == told(apart, "x")
    assert [type(each) for each in apart if not isinstance(each, Host)] == [AnotherMachineError]
    assert events(register) - between == between - before
    latest = register.hosts.latest_reports()
    kept = [latest.get(host_id) == report for host_id, report in together.items()]
    assert kept == [latest.get(host_id) == report for host_id, report in one_by_one.items()]
    assert kept == [True, True, True, True, False, False, True]
    assert register.check() == []


def test_a_host_that_is_gone_keeps_no_other_look_from_being_written(register: Registry) -> None:
    (host,) = a_cluster(register)
    gone = uuid4()

    found = register.hosts.record_reports({gone: a_report(), host.id: a_report(vcpus=3)})

    assert isinstance(found[gone], NotFoundError)
    assert found[host.id] == register.hosts.get("h1")
    assert register.hosts.get("h1").inventories[0].detected == 3
