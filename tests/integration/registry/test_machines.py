"""A machine is one host, however many URIs lead to it."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from registry import AnotherMachineError, ConflictError, InvalidError, MoveRefusedError, Registry
from registry.db.engine import Database
from registry.differences import Difference
from registry.hosts import Host, HostReport
from registry.hosts.machines import _candidate_machines
from registry.lifecycle import HostAdminEvent
from tests.raw_sql import RawSql
from tests.register import (
    ACTOR,
    TEST_URIS,
    a_cluster,
    a_domain,
    a_report,
    a_stranger,
    add_host,
    add_request,
    place,
    run_vm,
    running,
    take_lease,
)

MACHINE = "4c4c4544-0044-4b10-8051-b4c04f4e5931"
OTHER = "9f0c1d52-7f6e-4f19-9a3b-0d6f2a7c1e55"


@pytest.fixture
def first(register: Registry) -> Host:
    """A host that is up, of which the machine is known."""
    a_cluster(register)
    return look(register, "h1")


def a_look(register: Registry, *domains: Any, machine: str | None, hostname: str) -> HostReport:
    seen = a_report(*domains, started_at=register.now(), hostname=hostname)
    return replace(seen, machine_uuid=machine)


def look(
    register: Registry,
    name: str,
    *domains: Any,
    machine: str | None = MACHINE,
    hostname: str = "kvm7",
) -> Host:
    report = a_look(register, *domains, machine=machine, hostname=hostname)
    return register.hosts.record_report(register.hosts.get(name).id, report)


def second(register: Registry, name: str = "h2", **fields: Any) -> Host:
    """Register a host whose machine is the first one's, and look at it."""
    add_host(register, name, up=False, **fields)
    return look(register, name)


def capacity(host: Host) -> set[int | None]:
    return {each.capacity for each in host.inventories}


def accepts(register: Registry) -> dict[str, bool]:
    view = register.rounds.read_cluster(take_lease(register))
    return {host.name: host.accepts for host in view.hosts}


def test_a_machine_that_is_a_host_already_is_held_back_with_that_hosts_name(
    register: Registry, first: Host
) -> None:
    found = second(register)

    assert found.health == "enrolling"
    assert found.same_machine_as == "h1"
    assert "registered as host h1" in (found.last_error or "")
    assert capacity(found) == {0}
    assert capacity(register.hosts.get("h1")) == {16, 32_768, 300}
    assert accepts(register) == {"h1": True, "h2": False}
    (event,) = register.events.list(kind="same_machine")
    assert (event.data["name"], event.data["first"]) == ("h2", "h1")
    assert ("same_machine", "note") in [
        (each.difference, each.remedy) for each in register.differences.list("h2")
    ]
    for _ in range(2):
        look(register, "h2")
    assert len(register.events.list(kind="same_machine")) == 1
    assert register.check() == []


def test_an_override_gives_a_second_host_no_capacity(register: Registry, first: Host) -> None:
    second(register, overrides={"vcpus": 64})
    register.hosts.update("h2", overrides={"memory_mib": 1024}, actor=ACTOR)

    assert capacity(look(register, "h2")) == {0}
    assert accepts(register)["h2"] is False


def test_of_two_that_enrol_in_one_transaction_one_is_the_host(register: Registry) -> None:
    hosts = [add_host(register, name, up=False) for name in ("h1", "h2", "h3")]
    reports = {
        host.id: a_look(register, machine=MACHINE, hostname="kvm7") for host in reversed(hosts)
    }

    register.hosts.record_reports(reports)

    assert {host.name: host.same_machine_as for host in register.hosts.all()} == {
        "h1": None,
        "h2": "h1",
        "h3": "h1",
    }


def test_of_two_that_enrol_at_the_same_moment_one_is_the_host(register: Registry) -> None:
    hosts = [add_host(register, f"h{number}", up=False) for number in range(6)]
    start = threading.Barrier(len(hosts))

    def enrol(host: Host) -> None:
        start.wait()
        register.hosts.record_report(host.id, a_look(register, machine=MACHINE, hostname="kvm7"))

    threads = [threading.Thread(target=enrol, args=(host,)) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = register.hosts.all()
    assert [host.same_machine_as for host in found].count(None) == 1
    assert [host.health for host in found].count("up") == 1


def test_a_retired_host_gives_its_machine_back(register: Registry, first: Host) -> None:
    second(register)
    register.hosts.change_admin("h1", HostAdminEvent.DRAIN, actor=ACTOR)
    register.hosts.change_admin("h1", HostAdminEvent.RETIRE, actor=ACTOR)

    found = look(register, "h2")

    assert (found.same_machine_as, found.health) == (None, "up")
    assert capacity(found) == {16, 32_768, 300}
    assert accepts(register) == {"h2": True}
    again = add_host(register, "h1", up=False)
    assert look(register, again.name).same_machine_as == "h2"


def test_rows_that_are_doubled_already_leave_the_first_one_open(
    register: Registry, first: Host, raw: RawSql
) -> None:
    add_host(register, "h2")
    look(register, "h2", machine=OTHER)
    raw.run(f"UPDATE hosts SET machine_uuid = '{MACHINE}' WHERE name = 'h2'")

    assert look(register, "h1").same_machine_as is None
    assert look(register, "h2").same_machine_as == "h1"


def test_vms_on_a_second_host_are_watched_on_and_what_nobody_claimed_is_placed_elsewhere(
    register: Registry, first: Host
) -> None:
    h2 = add_host(register, "h2")
    build = running(register, h2)
    (reserved,) = place(register, add_request(register), register.hosts.get("h2")).assignment_ids

    found = look(register, "h2", a_domain(build))
    seen = look(register, "h1", a_domain(build))

    assert (found.health, found.same_machine_as) == ("up", "h1")
    assert register.vms.get(build.vm_id).observed == "running"
    assert register.assignments.state(reserved) == "released"
    vcpus = next(each for each in seen.inventories if each.resource == "vcpus")
    assert vcpus.capacity == 15
    assert register.check() == []


def test_vms_and_files_under_either_name_of_a_machine_are_no_differences(
    register: Registry, first: Host
) -> None:
    h2 = add_host(register, "h2")
    builds = [running(register, host) for host in (first, h2)]
    volumes = tuple(f"fuga-{build.claim.assignment_id}.qcow2" for build in builds)
    domains = [a_domain(build) for build in builds]
    stranger, stray = a_stranger(), "stray.img"
    seen = replace(
        a_look(register, *domains, stranger, machine=MACHINE, hostname="kvm7"),
        volumes=(*volumes, stray),
        unnamed=(stray,),
    )
    for name in ("h1", "h2", "h1"):
        report = replace(seen, started_at=register.now(), polled_at=register.now())
        register.hosts.record_report(register.hosts.get(name).id, report)

    found = [(each.host, each.difference) for each in register.differences.list()]

    assert found == [("h1", "stranger"), ("h1", "stray_files"), ("h2", "same_machine")]


def test_a_second_host_tells_of_no_foreign_domain_and_a_retired_one_of_none_any_more(
    register: Registry, first: Host, raw: RawSql
) -> None:
    build = running(register, first)
    theirs = a_stranger()
    second(register)

    look(register, "h2", a_domain(build), theirs)
    assert not register.events.list(kind="stranger_seen")
    look(register, "h1", a_domain(build), theirs)
    assert raw.rows("SELECT h.name FROM strangers s JOIN hosts h ON h.id = s.host_id") == [
        {"name": "h1"}
    ]

    add_host(register, "h3")
    look(register, "h3", theirs, machine=OTHER)
    register.hosts.change_admin("h3", HostAdminEvent.DRAIN, actor=ACTOR)
    register.hosts.change_admin("h3", HostAdminEvent.RETIRE, actor=ACTOR)
    assert len(raw.rows("SELECT * FROM strangers")) == 1


def test_a_uri_that_leads_to_another_hosts_machine_says_whose_it_is(
    register: Registry, first: Host
) -> None:
    h2 = add_host(register, "h2")
    build = running(register, h2)
    look(register, "h2", a_domain(build), machine=OTHER)
    register.hosts.update("h2", uri="test+unix:///elsewhere", actor=ACTOR, uri_policy=TEST_URIS)

    with pytest.raises(AnotherMachineError, match="which is host h1"):
        look(register, "h2")

    assert register.vms.get(build.vm_id).observed == "running"
    with pytest.raises(ConflictError, match="is host h1"):
        register.differences.repair("h2", Difference.ANOTHER_MACHINE, MACHINE, actor="ops")


def test_an_empty_host_whose_uri_leads_to_another_hosts_machine_is_held_back(
    register: Registry, first: Host
) -> None:
    add_host(register, "h2")
    look(register, "h2", machine=OTHER)

    assert look(register, "h2").same_machine_as == "h1"


@pytest.mark.parametrize("shows", ["its domain", "its disk", "nothing"])
def test_a_machine_that_reports_no_uuid_any_more_is_the_host_by_what_it_shows(
    register: Registry, first: Host, shows: str
) -> None:
    register.hosts.update("h1", labels=["on_missing=rebuild"], actor=ACTOR)
    assert look(register, "h1", machine=None).machine_uuid == MACHINE  # it holds no VM yet
    assert [each.difference for each in register.differences.list()] == ["no_machine_uuid"]
    build = running(register, register.hosts.get("h1"))
    domains = (a_domain(build),) if shows == "its domain" else ()
    volumes = (f"fuga-{build.claim.assignment_id}.qcow2",) if shows == "its disk" else ()
    report = replace(a_look(register, *domains, machine=None, hostname="kvm8"), volumes=volumes)
    key = build.claim.assignment_id

    if shows != "nothing":
        seen = register.hosts.record_report(first.id, report)
        assert (seen.health, seen.machine_uuid, seen.machine_name) == ("up", MACHINE, "kvm7")
        assert "no_machine_uuid" in [each.difference for each in register.differences.list()]
        look(register, "h1", a_domain(build))
        assert register.differences.list() == ()
        return
    with pytest.raises(AnotherMachineError, match=f"no UUID instead of {MACHINE}"):
        register.hosts.record_report(first.id, report)
    assert register.assignments.state(key) == "active"
    (found,) = register.differences.list()
    assert (found.difference, found.remedy) == ("another_machine", "confirm")

    register.differences.repair("h1", Difference.ANOTHER_MACHINE, found.subject, actor="ops")

    assert look(register, "h1", machine=None).machine_uuid is None
    assert register.assignments.state(key) == "quarantined"


@pytest.mark.parametrize(
    ("uuid", "is_another"), [("03000200-0400-0500-0006-000700080009", True), (MACHINE, False)]
)
def test_of_a_uuid_that_vendors_leave_in_many_boards_the_name_decides(
    register: Registry, uuid: str, is_another: bool
) -> None:
    a_cluster(register)
    first = look(register, "h1", machine=uuid)
    (key,) = place(register, add_request(register), first).assignment_ids
    build = run_vm(register, key)

    with pytest.raises(AnotherMachineError) if is_another else nullcontext():
        look(register, "h1", machine=uuid, hostname="kvm8")
    look(register, "h1", a_domain(build), machine=uuid)
    register.vms.delete(build.vm_id, actor=ACTOR)

    removal = register.assignments.claim_removal(key, "w1", 60.0)
    assert removal is not None
    assert removal.host.machine == (f"{uuid}/kvm7" if is_another else uuid)


def test_nothing_comes_to_a_host_at_whose_address_another_machine_answers(
    register: Registry, first: Host, raw: RawSql
) -> None:
    add_host(register, "h2")
    h2 = look(register, "h2", machine=OTHER)
    builds = [running(register, each) for each in (first, h2)]
    look(register, "h1", a_domain(builds[0]))
    assert accepts(register) == {"h1": True, "h2": True}

    with pytest.raises(AnotherMachineError):
        look(register, "h2", machine=str(uuid4()))

    assert register.hosts.get("h2").health == "up"  # until it missed a few polls
    assert accepts(register) == {"h1": True, "h2": False}
    raw.run("UPDATE hosts SET domain_type = 'qemu'")
    for build, there in ((builds[0], "h2"), (builds[1], "h1")):
        with pytest.raises(MoveRefusedError, match="another machine answers as host h2"):
            register.moves.create(build.vm_id, there, reason="rack", actor=ACTOR)
    look(register, "h2", a_domain(builds[1]), machine=OTHER)
    assert accepts(register) == {"h1": True, "h2": True}


@pytest.mark.parametrize("state", ["releasing", "arriving", "leaving"])
def test_a_host_with_a_vm_that_leaves_or_arrives_is_no_other_machine(
    register: Registry, first: Host, raw: RawSql, state: str
) -> None:
    build = running(register, first)
    look(register, "h1", a_domain(build))
    raw.run(f"UPDATE assignments SET state = '{state}'")  # whatever its way there

    with pytest.raises(AnotherMachineError):
        look(register, "h1", machine=OTHER)
    assert look(register, "h1", a_domain(build)).found_machine_uuid is None


def test_a_libvirt_that_makes_up_its_uuid_at_each_start_stays_one_machine(
    register: Registry, first: Host
) -> None:
    second(register)

    # The second host is seen first after the restart: the first one's UUID is the old one.
    assert look(register, "h2", machine=OTHER).same_machine_as == "h1"
    assert look(register, "h2", machine=OTHER).same_machine_as == "h1"
    assert look(register, "h1", machine=OTHER).same_machine_as is None
    assert look(register, "h2", machine=OTHER).same_machine_as == "h1"


def test_a_host_that_leads_to_a_machine_of_its_own_again_is_open(
    register: Registry, first: Host
) -> None:
    second(register)

    assert look(register, "h2", machine=OTHER).same_machine_as == "h1"
    look(register, "h1")
    found = look(register, "h2", machine=OTHER)

    assert (found.same_machine_as, found.health) == (None, "up")
    (event,) = register.events.list(kind="own_machine")
    assert event.data["before"] == "h1"


def test_machines_with_one_uuid_are_told_apart_by_an_operators_label(
    register: Registry, first: Host
) -> None:
    second(register)
    register.hosts.update("h2", labels=["machine=rack-2"], actor=ACTOR)

    assert look(register, "h2", hostname="kvm8").same_machine_as is None
    assert look(register, "h1").same_machine_as is None
    register.hosts.update("h2", labels=[], actor=ACTOR)
    assert look(register, "h2", hostname="kvm8").same_machine_as == "h1"


def test_a_label_does_not_make_two_machines_of_one(register: Registry, first: Host) -> None:
    second(register)
    register.hosts.update("h2", labels=["machine=rack-2"], actor=ACTOR)

    assert look(register, "h2", hostname="kvm7").same_machine_as == "h1"


def test_hosts_whose_libvirt_tells_no_machine_are_hosts_of_their_own(register: Registry) -> None:
    a_cluster(register, hosts=2)

    assert look(register, "h1", machine=None).same_machine_as is None
    assert look(register, "h2", machine=None).same_machine_as is None


def test_nothing_moves_to_a_second_host(register: Registry, first: Host, raw: RawSql) -> None:
    build = running(register, first)
    add_host(register, "h2")
    look(register, "h2")
    raw.run("UPDATE hosts SET domain_type = 'qemu'")

    with pytest.raises(MoveRefusedError, match="the machine of another host"):
        register.moves.create(build.vm_id, "h2", reason="rack", actor=ACTOR)


@pytest.mark.parametrize("key", ["zone", "shared_pool", "machine", "on_failure", "on_missing"])
def test_a_label_that_the_engine_reads_has_one_value(register: Registry, key: str) -> None:
    both = [f"{key}=east", "ssd", f"{key}=west"]

    with pytest.raises(InvalidError, match=f"{key}=east and {key}=west.*one label {key}="):
        add_host(register, "h1", labels=tuple(both), up=False)
    add_host(register, "h1", labels=("rack=a", "rack=b", f"{key}=east"), up=False)
    with pytest.raises(InvalidError, match=f"one label {key}="):
        register.hosts.update("h1", labels=both, actor=ACTOR)


def test_a_host_that_has_two_zones_of_old_is_warned_about(register: Registry, raw: RawSql) -> None:
    add_host(register, "h1")
    raw.run("""UPDATE hosts SET labels = '["zone=a", "zone=b"]'""")

    assert any("zone=a and zone=b" in each for each in register.hosts.get("h1").warnings)


def test_looks_and_misses_count_after_the_databases_clock_stepped_back(
    register: Registry, first: Host
) -> None:
    ahead = replace(
        a_look(register, machine=MACHINE, hostname="kvm7"),
        polled_at=register.now() + timedelta(hours=1),
    )
    register.hosts.record_report(first.id, ahead)

    for _ in range(2):
        missed = register.hosts.record_miss(
            first.id, "gone", unreachable_after=1, down_after=9, started_at=register.now()
        )
    assert (missed.health, missed.missed_polls) == ("unreachable", 2)
    assert look(register, "h1").health == "up"


def test_what_was_sent_before_the_clock_stepped_back_is_sent_again(
    register: Registry, first: Host, raw: RawSql
) -> None:
    place(register, add_request(register), first)
    assert len(register.assignments.send_due_tasks(resend_after_s=60)) == 1
    assert register.assignments.send_due_tasks(resend_after_s=60) == ()

    ahead = "2099-01-01 00:00:00.000000" + ("" if raw.dialect == "sqlite" else "+00:00")
    raw.run(f"UPDATE assignments SET sent_at = '{ahead}'")

    assert len(register.assignments.send_due_tasks(resend_after_s=60)) == 1


def test_a_worker_is_told_the_machine_that_has_the_vm_not_the_one_that_answers(
    register: Registry, first: Host
) -> None:
    (key,) = place(register, add_request(register), first).assignment_ids
    run_vm(register, key)
    with pytest.raises(AnotherMachineError):
        look(register, "h1", machine=OTHER)
    register.vms.delete(register.vms.list().items[0].id, actor=ACTOR)

    removal = register.assignments.claim_removal(key, "w1", 60.0)

    assert removal is not None
    assert removal.host.machine == MACHINE


@pytest.mark.parametrize("shows", ["its domain", "nothing"])
def test_a_worker_accepts_a_machine_without_a_uuid_once_a_report_showed_its_vm(
    register: Registry, first: Host, shows: str
) -> None:
    build = running(register, first)
    domains = (a_domain(build),) if shows == "its domain" else ()
    with nullcontext() if domains else pytest.raises(AnotherMachineError):
        register.hosts.record_report(
            first.id, a_look(register, *domains, machine=None, hostname="kvm7")
        )
    register.vms.delete(build.vm_id, actor=ACTOR)

    removal = register.assignments.claim_removal(build.claim.assignment_id, "w1", 60.0)

    assert removal is not None
    assert removal.host.machine == (f"?{MACHINE}" if domains else MACHINE)


def test_a_worker_accepts_no_machine_without_a_uuid_once_its_vms_are_not_shown(
    register: Registry, first: Host
) -> None:
    build = running(register, first)
    register.hosts.record_report(
        first.id, a_look(register, a_domain(build), machine=None, hostname="kvm7")
    )
    with pytest.raises(AnotherMachineError):
        register.hosts.record_report(first.id, a_look(register, machine=None, hostname="kvm7"))
    register.vms.delete(build.vm_id, actor=ACTOR)

    removal = register.assignments.claim_removal(build.claim.assignment_id, "w1", 60.0)

    assert removal is not None
    assert removal.host.machine == MACHINE


@pytest.mark.parametrize(
    ("pool", "believed"),
    [("its own", True), ("labelled", False), ("shared without a label", False)],
)
def test_a_disk_shows_that_a_machine_is_the_host_unless_other_machines_see_it_too(
    register: Registry, first: Host, pool: str, believed: bool
) -> None:
    build = running(register, first)
    volumes = [f"fuga-{build.claim.assignment_id}.qcow2"]
    look(register, "h1", a_domain(build))
    if pool == "labelled":
        register.hosts.update("h1", labels=["shared_pool=nfs"], actor=ACTOR)
    if pool == "shared without a label":
        elsewhere = running(register, add_host(register, "h2"))
        volumes.append(f"fuga-{elsewhere.claim.assignment_id}.qcow2")
    answer = replace(
        a_look(register, machine=OTHER, hostname="kvm8"),
        volumes=(*volumes, f"fuga-{uuid4()}.qcow2"),
    )

    with nullcontext() if believed else pytest.raises(AnotherMachineError):
        register.hosts.record_report(first.id, answer)

    assert register.hosts.get("h1").machine_uuid == (OTHER if believed else MACHINE)
    assert (register.vms.get(build.vm_id).observed == "running") is not believed


@pytest.mark.parametrize("holds", ["h1", "h2"])
def test_a_second_name_of_a_machine_is_no_other_user_of_its_pool(
    register: Registry, first: Host, holds: str
) -> None:
    second(register)
    add_host(register, "h3")
    for name in ("h1", "h2", "h3"):
        register.hosts.update(name, labels=["shared_pool=nfs"], actor=ACTOR)
    look(
        register, holds, a_stranger("fuga-x", assignment_id=uuid4(), generation=1, state="stopped")
    )

    register.differences.repair(holds, Difference.UNKNOWN_MARK, "fuga-x", actor=ACTOR)
    [due] = register.assignments.send_due_tasks(resend_after_s=0)
    left = register.assignments.claim_leftover(due.id, "w1", 60)

    assert left is not None
    assert [each.name for each in left.neighbours] == ["h3"]


@pytest.fixture
def namesakes(register: Registry, first: Host) -> tuple[Host, Host]:
    """Two machines with one UUID, named `kvm7` and `kvm8`, that a label of the second tells apart.

    What is missing at the second is to be rebuilt without asking.
    """
    labels = ("machine=rack-2", "on_missing=rebuild")
    add_host(register, "h2", up=False, labels=labels)
    return register.hosts.get("h1"), look(register, "h2", hostname="kvm8")


@pytest.mark.parametrize(("host", "other"), [("h2", "kvm7"), ("h1", "kvm8.example.org")])
def test_of_machines_with_one_uuid_that_exchange_addresses_no_vm_is_lost(
    register: Registry, namesakes: tuple[Host, Host], host: str, other: str
) -> None:
    build = running(register, register.hosts.get(host))
    own = {"h1": "kvm7", "h2": "kvm8"}[host]
    look(register, host, a_domain(build), hostname=own)

    known_as = {"h1": "h2", "h2": "h1"}[host]
    for _ in range(2):
        with pytest.raises(
            AnotherMachineError, match=f"named {other[:4]}, which is host {known_as}"
        ):
            look(register, host, hostname=other)

    assert register.vms.get(build.vm_id).observed == "running"
    (event,) = register.events.list(kind="another_machine")
    assert (event.data["name_before"], event.data["machine_name"]) == (own, other[:4])
    (found,) = register.differences.list(host)
    assert found.what == f"machine {MACHINE} named {other[:4]} instead of the one named {own}"
    with pytest.raises(ConflictError, match=f"is host {known_as}"):
        register.differences.repair(host, Difference.ANOTHER_MACHINE, MACHINE, actor="ops")

    look(register, host, a_domain(build), hostname=own)
    assert register.differences.list(host) == ()
    assert len(register.events.list(kind="another_machine")) == 1


@pytest.mark.parametrize("shown", ["vms of another host", "other interfaces"])
def test_a_machine_that_took_over_the_name_with_the_address_is_not_believed(
    register: Registry, namesakes: tuple[Host, Host], shown: str
) -> None:
    first, other = running(register, namesakes[0]), running(register, namesakes[1])

    def seen(*domains: Any, interface: str) -> HostReport:
        report = a_look(register, *domains, machine=MACHINE, hostname="kvm8")
        return replace(report, interfaces={"eth0": interface})

    def record(report: HostReport) -> None:
        register.hosts.record_report(register.hosts.get("h2").id, report)

    look(register, "h1", a_domain(first))
    record(seen(a_domain(other), interface="52:54:00:00:00:02"))
    if shown == "vms of another host":
        taken = seen(a_domain(first), interface="52:54:00:00:00:02")
    else:
        taken = seen(interface="52:54:00:00:00:01")

    with pytest.raises(AnotherMachineError):
        record(taken)

    assert register.vms.get(other.vm_id).observed == "running"
    [difference] = register.differences.list("h2")
    assert difference.difference == Difference.ANOTHER_MACHINE
    if shown == "vms of another host":
        assert register.hosts.get("h2").found_machine_name == "kvm7"
        with pytest.raises(ConflictError):
            register.differences.repair("h2", Difference.ANOTHER_MACHINE, MACHINE, actor="ops")
    else:
        assert difference.what.startswith(f"another machine with the UUID {MACHINE}")
        register.differences.repair("h2", Difference.ANOTHER_MACHINE, MACHINE, actor="ops")
        record(seen(interface="52:54:00:00:00:01"))
        assert register.vms.get(other.vm_id).observed != "running"


def test_a_machine_whose_name_nobody_has_is_the_host_once_an_operator_says_so(
    register: Registry, namesakes: tuple[Host, Host]
) -> None:
    build = running(register, namesakes[1])
    look(register, "h2", a_domain(build), hostname="kvm8")
    with pytest.raises(AnotherMachineError, match="named kvm9 instead of the one named kvm8"):
        look(register, "h2", hostname="kvm9")

    register.differences.repair("h2", Difference.ANOTHER_MACHINE, MACHINE, actor="ops")

    assert look(register, "h2", hostname="kvm9").machine_name == "kvm9"
    assert look(register, "h2", hostname="kvm9").found_machine_uuid is None


@pytest.mark.parametrize("shown", ["kvm7.example.org", "KVM7", "kvm7."])
def test_a_host_name_with_another_domain_is_no_other_machine(
    register: Registry, namesakes: tuple[Host, Host], shown: str
) -> None:
    running(register, namesakes[0])

    seen = look(register, "h1", hostname=shown)
    assert (seen.machine_name, seen.machine_domain) == (
        "kvm7",
        "example.org" if "example" in shown else None,
    )
    # Without its domain, while the network's names are not answered, it is known by the last one.
    assert look(register, "h1", hostname="kvm7").machine_domain == seen.machine_domain
    assert look(register, "h2", hostname=shown.replace("7", "8")).same_machine_as is None


@pytest.mark.parametrize(
    ("other", "is_one"),
    [("node1.rack-b.x", False), ("node1", True), ("node1.rack-a.x.", True), ("NODE1.", True)],
)
def test_of_one_uuid_and_name_domains_tell_machines_apart(
    register: Registry, other: str, is_one: bool
) -> None:
    add_host(register, "h1", up=False, labels=("machine=a",))
    look(register, "h1", hostname="node1.rack-a.x")
    add_host(register, "h2", up=False, labels=("machine=b",))

    assert look(register, "h2", hostname=other).same_machine_as == ("h1" if is_one else None)
    assert look(register, "h1", hostname="node1").same_machine_as is None
    if not is_one:
        assert look(register, "h2", hostname="node1").same_machine_as is None


def test_the_older_host_gets_no_vms_while_the_younger_ones_machine_answers_at_its_address(
    register: Registry, namesakes: tuple[Host, Host]
) -> None:
    build = running(register, namesakes[1])
    look(register, "h2", a_domain(build), hostname="kvm8")

    assert look(register, "h1", hostname="kvm8").same_machine_as == "h2"
    assert accepts(register)["h1"] is False
    [event] = register.events.list(kind="machine_changed")
    assert (event.data["name_before"], event.data["machine_name"]) == ("kvm7", "kvm8")

    assert look(register, "h1", hostname="kvm7").same_machine_as is None
    assert accepts(register)["h1"] is True


def test_a_label_that_an_earlier_release_wrote_counts_from_the_next_report(
    register: Registry, first: Host, raw: RawSql
) -> None:
    second(register)
    register.hosts.update("h2", labels=["machine=rack-2"], actor=ACTOR)
    raw.run("UPDATE hosts SET machine_label = NULL")

    assert look(register, "h2", hostname="kvm8").same_machine_as is None
    assert look(register, "h2", hostname="kvm8").same_machine_as is None
    assert look(register, "h1").same_machine_as is None
    labels = [row["machine_label"] for row in raw.rows("SELECT * FROM hosts ORDER BY id")]
    assert labels == [None, "rack-2"]


def test_a_host_name_that_grows_in_lower_case_is_stored(register: Registry, first: Host) -> None:
    seen = look(register, "h1", hostname="\u0390" * 255 + "." + "\u0390" * 255)

    assert len(seen.machine_name or "") == len(seen.machine_domain or "") == 255


def test_a_machine_with_a_uuid_of_its_own_may_get_another_name(
    register: Registry, first: Host
) -> None:
    running(register, first)

    assert look(register, "h1", hostname="renamed").machine_name == "renamed"


def test_a_label_is_refused_to_a_second_name_that_has_a_domain_now(
    register: Registry, first: Host
) -> None:
    add_host(register, "h2", up=False, labels=("machine=rack-2",))

    assert look(register, "h2", hostname="kvm7.example.org").same_machine_as == "h1"


def test_a_worker_is_told_the_name_where_machines_share_a_uuid(
    register: Registry, namesakes: tuple[Host, Host]
) -> None:
    shown = {}
    for host, name in zip(namesakes, ("kvm7", "kvm8"), strict=True):
        (key,) = place(register, add_request(register), host).assignment_ids
        claimed = register.assignments.claim_build(key, "w1", 60.0)
        assert claimed is not None
        shown[name] = claimed.host.machine

    assert shown == {name: f"{MACHINE}/{name}" for name in ("kvm7", "kvm8")}


def test_of_a_uuid_that_many_machines_report_few_rows_are_read(
    register: Registry, register_url: str, first: Host
) -> None:
    names = [f"kvm{number}" for number in range(10, 30)]
    keys = {
        add_host(register, name, up=False, labels=(f"machine={name}",)).id: name for name in names
    }
    register.hosts.record_reports(
        {key: a_look(register, machine=MACHINE, hostname=name) for key, name in keys.items()}
    )
    host = register.hosts.get(names[0])
    assert all(each.same_machine_as is None for each in register.hosts.all())

    with Database(register_url).read() as connection:
        report = a_look(register, machine=MACHINE, hostname=names[0])
        found = _candidate_machines(connection, [(host, report)])
        again = _candidate_machines(connection, [(host, replace(report, hostname=names[1]))])

    assert {each.host for each in found.values()} == {names[0]}
    assert {each.host for each in again.values()} == {names[0], names[1]}
