"""What the monitor saw becomes health, capacity, what is known of VMs, strangers, leftovers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from registry import (
    AssignmentState,
    HostAdminEvent,
    HostHealth,
    NotFoundError,
    Registry,
    VmObserved,
)
from registry.hosts import Host
from registry.tasks import Build
from tests.raw_sql import RawSql
from tests.register import (
    ACTOR,
    a_cluster,
    a_domain,
    a_report,
    a_stranger,
    add_host,
    add_request,
    now,
    place,
    remove_vm,
    start_vm,
)


@pytest.fixture
def host(register: Registry) -> Host:
    return a_cluster(register)[0]


@pytest.fixture
def build(register: Registry, host: Host) -> Build:
    """One VM on h1 whose domain was started, paused; activated a while ago."""
    (key,) = place(register, add_request(register), host).assignment_ids
    return start_vm(register, key)


def look(register: Registry, host: Host, *domains: object, **fields: object) -> Host:
    """A look that began well after whatever happened before."""
    started = now() + timedelta(seconds=5)
    report = a_report(*domains, started_at=started, **fields)  # type: ignore[arg-type]
    return register.hosts.record_report(host.id, report)


def observed(register: Registry, build: Build) -> VmObserved:
    return register.vms.get(build.vm_id).observed


# ---- health -----------------------------------------------------------------


def test_the_first_report_brings_a_host_up_with_what_it_detected(register: Registry) -> None:
    host = add_host(register, up=False)
    assert host.health == HostHealth.ENROLLING

    after = register.hosts.record_report(host.id, a_report(vcpus=8))

    assert after.health == HostHealth.UP
    assert [(each.detected, each.capacity) for each in after.inventories] == [
        (8, 8),
        (32_768, 32_768),
        (300, 300),
    ]
    assert after.last_polled_at is not None
    assert after.version == host.version


def test_an_override_goes_before_what_is_detected(register: Registry) -> None:
    host = add_host(register, up=False, overrides={"vcpus": 4}, reserved={"memory_mib": 1024})

    after = register.hosts.record_report(host.id, a_report())

    assert [each.capacity for each in after.inventories] == [4, 31_744, 300]
    cleared = register.hosts.update("h1", overrides={"vcpus": None}, actor=ACTOR)
    assert cleared.inventories[0].capacity == 16


def test_a_host_that_never_answered_stays_enrolling_and_says_why(register: Registry) -> None:
    host = add_host(register, up=False)

    for _ in range(20):
        host = register.hosts.record_miss(
            host.id, "connection refused", unreachable_after=3, down_after=10
        )

    assert host.health == HostHealth.ENROLLING
    assert (host.last_error, host.missed_polls) == ("connection refused", 20)


def test_missed_polls_make_a_host_unreachable_then_down_and_a_report_brings_it_back(
    register: Registry, host: Host
) -> None:
    healths = []
    for _ in range(5):
        after = register.hosts.record_miss(host.id, "timeout", unreachable_after=2, down_after=4)
        healths.append(after.health)
    assert healths == ["up", "unreachable", "unreachable", "down", "down"]

    back = register.hosts.record_report(host.id, a_report())

    assert (back.health, back.missed_polls, back.last_error) == (HostHealth.UP, 0, None)
    changes = register.events.list(kind="host_health", subject_id=str(host.id))
    assert [event.to_state for event in changes] == ["up", "unreachable", "down", "up"]
    assert changes[1].reason == "timeout"


def test_misses_of_several_monitors_count_as_those_of_one(
    register: Registry, raw: RawSql, host: Host
) -> None:
    raw.run(f"UPDATE hosts SET last_polled_at = {raw.before('now', '2 minutes')}")
    begun = register.now() - timedelta(minutes=1)

    def missed_after(seconds: float) -> int:
        after = register.hosts.record_miss(
            host.id,
            "timeout",
            unreachable_after=2,
            down_after=9,
            started_at=begun + timedelta(seconds=seconds),
            apart_s=6,
        )
        return after.missed_polls

    # Two monitors look every 7.5 s, a third one's look took so long that it is written late.
    counted = [missed_after(seconds) for seconds in (0, 2, 7.5, 9.5, 5, 14.9, 17)]

    assert counted == [1, 1, 2, 2, 2, 3, 3]
    changes = register.events.list(kind="host_health", subject_id=str(host.id))
    assert [event.to_state for event in changes] == ["up", "unreachable"]


@pytest.mark.parametrize("ahead_s", [0.0, 0.5])
def test_a_miss_of_a_look_that_began_before_the_host_answered_another_monitor_is_not_counted(
    register: Registry, host: Host, ahead_s: float
) -> None:
    seen = a_report(started_at=register.now() + timedelta(seconds=ahead_s))
    answered = register.hosts.record_report(host.id, seen)
    assert answered.last_polled_at is not None

    after = register.hosts.record_miss(
        host.id,
        "timeout",
        unreachable_after=1,
        down_after=9,
        started_at=answered.last_polled_at - timedelta(seconds=8),
        apart_s=6,
    )

    assert after == answered


@pytest.mark.parametrize("ahead_s", [0.0, 0.5])
def test_a_report_that_arrives_late_changes_nothing(
    register: Registry, host: Host, ahead_s: float
) -> None:
    seen = a_report(vcpus=8, started_at=register.now() + timedelta(seconds=ahead_s))
    before = register.hosts.record_report(host.id, seen)

    old = a_report(vcpus=99, started_at=now() - timedelta(minutes=5))
    after = register.hosts.record_report(host.id, old)

    assert after == before


def test_a_retired_host_is_left_alone(register: Registry, host: Host) -> None:
    retired = register.hosts.change_admin("h1", HostAdminEvent.RETIRE, actor=ACTOR)

    register.hosts.record_miss(host.id, "gone", unreachable_after=1, down_after=1)
    register.hosts.record_report(host.id, a_report(vcpus=1))

    assert register.hosts.get("h1") == retired
    assert register.hosts.latest_reports() == {}


def test_a_report_of_an_unknown_host_is_an_error(register: Registry) -> None:
    with pytest.raises(NotFoundError, match="host"):
        register.hosts.record_report(uuid4(), a_report())


def test_the_latest_report_comes_back_as_it_was(register: Registry, host: Host) -> None:
    add_host(register, "never-reached", up=False)
    report = a_report(a_stranger(), volumes=("a", "b"))

    register.hosts.record_report(host.id, report)

    assert register.hosts.latest_reports() == {host.id: report}


# ---- what is known of VMs ---------------------------------------------------


def test_a_domain_that_runs_is_known_to_run(register: Registry, host: Host, build: Build) -> None:
    look(register, host, a_domain(build, "running"))

    assert observed(register, build) == VmObserved.RUNNING


def test_a_paused_domain_of_an_active_assignment_stays_due_for_its_resume(
    register: Registry, host: Host, build: Build
) -> None:
    look(register, host, a_domain(build, "paused"))

    assert observed(register, build) == VmObserved.ABSENT
    register.assignments.yield_claim(build.claim, None)
    again = register.assignments.claim_build(build.claim.assignment_id, "w2", 60)
    assert again is not None
    assert again.state == AssignmentState.ACTIVE


def test_a_guest_that_powers_itself_off_stays_stopped_and_keeps_its_share(
    register: Registry, host: Host, build: Build
) -> None:
    register.assignments.mark_running(build.claim)

    look(register, host, a_domain(build, "stopped"))

    assert observed(register, build) == VmObserved.STOPPED
    assert register.hosts.get("h1").inventories[0].committed == 1
    assert register.assignments.send_due_tasks() == ()


def test_a_vm_missing_from_its_host_is_lost_with_an_event(
    register: Registry, host: Host, build: Build
) -> None:
    register.assignments.mark_running(build.claim)

    look(register, host)
    look(register, host)

    assert observed(register, build) == VmObserved.LOST
    (event,) = register.events.list(kind="vm_missing")
    assert (event.subject_id, event.tenant) == (str(build.vm_id), "a")
    assert event.data["host"] == "h1"
    assert register.hosts.get("h1").inventories[0].committed == 1  # its capacity stays held
    assert register.check() == []


def test_a_lost_vm_that_is_seen_again_is_known_again(
    register: Registry, host: Host, build: Build
) -> None:
    look(register, host)
    look(register, host, a_domain(build, "running"))

    assert observed(register, build) == VmObserved.RUNNING


def test_a_look_that_began_before_the_start_proves_nothing_missing(
    register: Registry, host: Host, build: Build
) -> None:
    early = a_report(started_at=now() - timedelta(seconds=30))

    register.hosts.record_report(
        host.id, replace(early, polled_at=now() + timedelta(seconds=1), took_ms=31_000)
    )

    assert observed(register, build) == VmObserved.ABSENT
    assert register.events.list(kind="vm_missing") == ()


def test_assignments_that_are_not_active_are_not_missed(register: Registry, host: Host) -> None:
    (key,) = place(register, add_request(register), host).assignment_ids
    register.assignments.claim_build(key, "w1", 60)

    look(register, host)

    assert register.events.list(kind="vm_missing") == ()


# ---- strangers --------------------------------------------------------------


def test_strangers_count_against_capacity_and_are_told_once(register: Registry, host: Host) -> None:
    look(register, host, a_stranger("x"), a_stranger("y", "stopped"))
    after = look(register, host, a_stranger("x"), a_stranger("y", "stopped"))

    assert [each.foreign for each in after.inventories] == [2, 2048, 40]
    assert [each.capacity for each in after.inventories] == [14, 30_720, 260]
    assert after.version > host.version
    seen = register.events.list(kind="stranger_seen")
    assert [event.data["domain"] for event in seen] == ["x", "y"]


def test_a_stranger_that_left_gives_capacity_back_and_is_news_when_it_returns(
    register: Registry, host: Host
) -> None:
    look(register, host, a_stranger("x", "paused"))
    after = look(register, host)
    assert [each.foreign for each in after.inventories] == [0, 0, 0]

    look(register, host, a_stranger("x"))

    assert len(register.events.list(kind="stranger_seen")) == 2


def test_our_own_domains_are_no_strangers(register: Registry, host: Host, build: Build) -> None:
    after = look(register, host, a_domain(build))

    assert [each.foreign for each in after.inventories] == [0, 0, 0]
    assert register.events.list(kind="stranger_seen") == ()


# ---- leftovers --------------------------------------------------------------


def leftovers(register: Registry) -> list[UUID]:
    return [
        each.id for each in register.assignments.send_due_tasks() if each.task.endswith("leftover")
    ]


def volume(assignment_id: UUID) -> str:
    return f"fuga-{assignment_id}.qcow2"


def test_what_an_assignment_stands_for_is_no_leftover(
    register: Registry, host: Host, build: Build
) -> None:
    look(
        register,
        host,
        a_domain(build),
        volumes=(volume(build.claim.assignment_id), "base.qcow2", "fuga-mine.qcow2"),
    )

    assert leftovers(register) == []


def test_what_is_left_of_a_released_assignment_is_found_and_removed(
    register: Registry, host: Host, build: Build
) -> None:
    key = build.claim.assignment_id
    register.assignments.mark_running(build.claim)
    register.vms.delete(build.vm_id, actor=ACTOR)
    remove_vm(register, key)

    look(register, host, a_domain(build), volumes=(volume(key),))
    look(register, host, a_domain(build), volumes=(volume(key),))

    found = leftovers(register)
    assert len(found) == 2
    domain, disk = (register.assignments.claim_leftover(each, "w1", 60) for each in found)
    assert domain is not None
    assert disk is not None
    assert (domain.kind, domain.name) == ("domain", f"fuga-{build.vm_id}")
    assert (domain.vm_uuid, domain.assignment_id) == (build.vm_id, key)
    assert (disk.kind, disk.name, disk.vm_uuid) == ("volume", volume(key), None)
    assert disk.host.name == "h1"
    assert register.assignments.claim_leftover(domain.id, "w2", 60) is None
    register.assignments.finish_leftover(domain.id)
    register.assignments.finish_leftover(domain.id)
    assert register.assignments.claim_leftover(domain.id, "w2", 60) is None
    assert len(register.events.list(kind="leftover_found")) == 2
    assert len(register.events.list(kind="leftover_removed")) == 1


def test_what_is_released_after_the_look_began_is_no_leftover(
    register: Registry, host: Host, build: Build
) -> None:
    began = register.now()
    register.assignments.mark_running(build.claim)
    register.vms.delete(build.vm_id, actor=ACTOR)
    remove_vm(register, build.claim.assignment_id)

    report = a_report(
        a_domain(build), volumes=(volume(build.claim.assignment_id),), started_at=began
    )
    register.hosts.record_report(host.id, report)

    assert leftovers(register) == []
    assert register.events.list(kind="stranger_seen") == ()


def test_a_mark_that_this_register_does_not_know_is_a_strangers(
    register: Registry, host: Host
) -> None:
    theirs = a_stranger("theirs", assignment_id=uuid4(), generation=1, vcpus=3)

    look(register, host, theirs, volumes=(volume(uuid4()),))

    assert leftovers(register) == []
    (event,) = register.events.list(kind="stranger_seen")
    assert event.data["domain"] == "theirs"
    vcpus = next(each for each in register.hosts.get("h1").inventories if each.resource == "vcpus")
    assert (vcpus.foreign, vcpus.capacity) == (3, 13)


def test_a_vm_that_somebody_moved_to_another_host_is_a_stranger_there_and_left_alone(
    register: Registry, host: Host, build: Build
) -> None:
    other = add_host(register, "h9")

    look(register, other, a_domain(build))

    assert leftovers(register) == []
    (event,) = register.events.list(kind="stranger_seen")
    assert event.data["name"] == "h9"
    assert observed(register, build) == VmObserved.ABSENT


def test_a_leftover_that_somebody_else_removed_is_forgotten(
    register: Registry, host: Host, build: Build
) -> None:
    register.assignments.mark_running(build.claim)
    register.vms.delete(build.vm_id, actor=ACTOR)
    remove_vm(register, build.claim.assignment_id)
    look(register, host, volumes=(volume(build.claim.assignment_id),))
    assert len(leftovers(register)) == 1

    look(register, host)

    assert leftovers(register) == []
