"""Differences between hosts and the ledger are answered, shown, and repaired on a word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from registry import AnotherMachineError, AssignmentState, ConflictError, Registry, VmDesiredEvent
from registry.differences import Difference
from registry.hosts import Host
from registry.networks import NetworkSource
from registry.tasks import Build
from tests.register import (
    ACTOR,
    a_cluster,
    a_domain,
    a_report,
    a_stranger,
    add_host,
    remove_vm,
    running,
)
from tests.work import work


@pytest.fixture
def host(register: Registry) -> Host:
    return a_cluster(register)[0]


@pytest.fixture
def build(register: Registry, host: Host) -> Build:
    """One VM that runs on h1."""
    return running(register, host)


def look(
    register: Registry, *domains: Any, name: str = "h1", machine: str | None = None, **fields: Any
) -> Host:
    """Let the monitor look at a host, after whatever happened before."""
    seen = a_report(*domains, started_at=register.now(), **fields)
    report = replace(seen, machine_uuid=machine)
    return register.hosts.record_report(register.hosts.get(name).id, report)


def found(register: Registry, host: str | None = None) -> list[tuple[str, str]]:
    return [(each.difference, each.remedy) for each in register.differences.list(host)]


def tasks(register: Registry) -> list[str]:
    return [due.task for due in register.assignments.send_due_tasks(resend_after_s=0)]


def volume(key: UUID) -> str:
    return f"fuga-{key}.qcow2"


def test_a_host_that_is_as_the_ledger_says_has_no_difference(
    register: Registry, build: Build
) -> None:
    look(register, a_domain(build))

    assert found(register) == []


def test_a_vm_that_lost_its_power_with_its_host_is_started_again(
    register: Registry, build: Build
) -> None:
    look(register, a_domain(build, "stopped", off_reason="host"))

    vm = register.vms.get(build.vm_id)
    assert vm.observed == "stopped"
    assert vm.power is not None
    assert vm.power.state == "starting"
    assert tasks(register) == ["workers.switch_power"]
    assert found(register, "h1") == [("vm_lost_power", "repair")]
    event = register.events.list(kind="vm_observed", subject_id=str(build.vm_id))[-1]
    assert "rebooted" in (event.reason or "")
    assert register.check() == []


def test_a_guest_that_powered_itself_off_stays_so_also_when_its_host_reboots(
    register: Registry, build: Build
) -> None:
    look(register, a_domain(build, "stopped", off_reason="guest"))
    look(register, a_domain(build, "stopped", off_reason="host"))

    assert register.vms.get(build.vm_id).power is None
    assert found(register) == [("vm_stopped", "note")]


def test_a_vm_that_its_tenant_stopped_is_not_started_with_its_host(
    register: Registry, build: Build
) -> None:
    register.vms.change_power(build.vm_id, VmDesiredEvent.STOP, actor=ACTOR)

    look(register, a_domain(build, "stopped", off_reason="host"))

    power = register.vms.get(build.vm_id).power
    assert power is not None
    assert power.state == "stopping"


def test_a_missing_vm_stays_lost_until_an_operator_has_it_built_anew(
    register: Registry, build: Build
) -> None:
    key = build.claim.assignment_id
    look(register)
    assert found(register) == [("vm_missing", "confirm")]
    assert tasks(register) == []

    register.differences.repair("h1", Difference.VM_MISSING, str(build.vm_id), actor="ops")

    assert register.assignments.state(key) == AssignmentState.QUARANTINED
    assert tasks(register) == ["workers.delete_vm"]
    remove_vm(register, key)
    vm = register.vms.get(build.vm_id)
    assert (vm.observed, vm.host) == ("absent", None)
    assert "lost" in (vm.last_error or "")
    assert found(register) == []
    (event,) = register.events.list(kind="repair_asked")
    assert (event.actor, event.data["difference"]) == ("ops", "vm_missing")
    assert register.check() == []


def test_a_label_has_missing_vms_built_anew_without_asking(
    register: Registry, build: Build
) -> None:
    look(register)
    register.hosts.update("h1", labels=["on_missing=rebuild"], actor=ACTOR)
    assert found(register) == [("vm_missing", "repair")]

    look(register)

    assert register.assignments.state(build.claim.assignment_id) == AssignmentState.QUARANTINED
    assert tasks(register) == ["workers.delete_vm"]
    assert register.check() == []


@pytest.mark.parametrize("state", ["running", "stopped"])
@pytest.mark.parametrize("labels", [[], ["on_missing=rebuild"]])
def test_a_missing_vm_that_another_host_shows_is_not_built_anew(
    register: Registry, build: Build, labels: list[str], state: str
) -> None:
    """An operator moved it with other tools: what is there may be the only one."""
    add_host(register, "h2")
    register.hosts.update("h1", labels=labels, actor=ACTOR)
    look(register, a_domain(build, state), name="h2")

    look(register)

    assert register.assignments.state(build.claim.assignment_id) == AssignmentState.ACTIVE
    if not labels:
        with pytest.raises(ConflictError, match="host h2 shows its domain"):
            register.differences.repair("h1", Difference.VM_MISSING, str(build.vm_id), actor="ops")
    assert found(register, "h2") == [("wrong_host", "confirm")]
    assert tasks(register) == []


def test_what_a_released_vm_left_on_another_host_is_nobodys_leftover_while_the_vm_lives(
    register: Registry, build: Build
) -> None:
    look(register)
    register.differences.repair("h1", Difference.VM_MISSING, str(build.vm_id), actor="ops")
    remove_vm(register, build.claim.assignment_id)
    add_host(register, "h2")
    name, disk = f"fuga-{build.vm_id}", (volume(build.claim.assignment_id),)

    look(register, a_domain(build, "stopped"), name="h2", volumes=disk)

    assert found(register, "h2") == [("wrong_host", "confirm"), ("disk_elsewhere", "note")]
    assert tasks(register) == []
    with pytest.raises(ConflictError, match="its VM has no host"):
        register.differences.repair("h2", Difference.WRONG_HOST, name, actor="ops")
    register.vms.delete(build.vm_id, actor=ACTOR)
    look(register, a_domain(build, "stopped"), name="h2", volumes=disk)
    assert found(register, "h2") == [("leftover", "repair"), ("leftover", "repair")]


def test_a_stranger_is_left_alone_and_no_word_changes_that(register: Registry, host: Host) -> None:
    look(register, a_stranger("theirs"))

    assert found(register) == [("stranger", "note")]
    with pytest.raises(ConflictError, match="left alone"):
        register.differences.repair("h1", Difference.STRANGER, "theirs", actor="ops")
    with pytest.raises(ConflictError, match="no difference"):
        register.differences.repair("h1", Difference.STRANGER, "gone", actor="ops")


def test_a_strangers_disk_that_claims_more_than_the_pool_holds_is_named(
    register: Registry, host: Host
) -> None:
    look(register, a_stranger("theirs", disk_gib=300, capped_disk="big.vmdk (7264316083 GiB)"))

    [difference] = register.differences.list()
    assert "300 disk_gib; its disk big.vmdk (7264316083 GiB) claims more" in difference.what


def test_what_this_register_does_not_know_goes_on_an_operators_word(
    register: Registry, host: Host
) -> None:
    key = uuid4()
    theirs = a_stranger("fuga-x", assignment_id=key, generation=1)
    look(register, theirs, volumes=(volume(key),))
    assert found(register) == [("unknown_mark", "confirm"), ("unknown_mark", "note")]
    with pytest.raises(ConflictError, match="no repair destroys what runs"):
        register.differences.repair("h1", Difference.UNKNOWN_MARK, "fuga-x", actor="ops")
    theirs = replace(theirs, state="stopped")
    look(register, theirs, volumes=(volume(key),))

    register.differences.repair("h1", Difference.UNKNOWN_MARK, "fuga-x", actor="ops")
    look(register, theirs, volumes=(volume(key),))

    [due] = register.assignments.send_due_tasks(resend_after_s=0)
    left = register.assignments.claim_leftover(due.id, "w1", 60)
    assert left is not None
    assert (left.name, left.assignment_id, left.requested) == ("fuga-x", key, True)
    assert (left.disk_stays, left.seed_stays) == (True, True)
    look(register)
    assert tasks(register) == []


def test_a_disk_that_this_register_does_not_know_is_never_removed(
    register: Registry, host: Host
) -> None:
    name = volume(uuid4())
    look(register, volumes=(name,))

    [difference] = register.differences.list()

    assert difference.on_confirmation is None
    assert f"virsh vol-delete {name} default" in difference.action
    with pytest.raises(ConflictError, match="not repaired by a word"):
        register.differences.repair("h1", Difference.UNKNOWN_MARK, name, actor="ops")


@pytest.mark.parametrize(
    ("here", "machine", "said"),
    [
        ("running", "one", "has no difference"),
        ("running", None, "may be one machine"),
        ("stopped", "two", "may be the only one"),
        ("running", "two", "no repair destroys what runs: switch it off there first"),
    ],
)
def test_nobody_is_advised_to_destroy_what_may_be_the_vm_itself(
    register: Registry, build: Build, here: str, machine: str | None, said: str
) -> None:
    add_host(register, "h2")
    look(register, a_domain(build, here), machine="one")
    look(register, a_domain(build, "running"), name="h2", machine=machine)

    with pytest.raises(ConflictError, match=said):
        register.differences.repair("h2", Difference.WRONG_HOST, f"fuga-{build.vm_id}", actor="ops")


def test_a_vm_on_the_wrong_host_goes_only_while_it_runs_on_the_right_one(
    register: Registry, build: Build
) -> None:
    add_host(register, "h2")
    look(register, a_domain(build, "stopped"), name="h2", machine="two")
    look(register)
    name = f"fuga-{build.vm_id}"
    assert found(register, "h2") == [("wrong_host", "confirm")]

    with pytest.raises(ConflictError, match="the only one"):
        register.differences.repair("h2", Difference.WRONG_HOST, name, actor="ops")
    look(register, a_domain(build))
    with pytest.raises(ConflictError, match="may be one machine"):
        register.differences.repair("h2", Difference.WRONG_HOST, name, actor="ops")
    look(register, a_domain(build), machine="one")
    look(register, a_domain(build))
    with pytest.raises(ConflictError, match="may be one machine"):  # it reports no UUID any more
        register.differences.repair("h2", Difference.WRONG_HOST, name, actor="ops")
    look(register, a_domain(build), machine="one")
    for _ in range(2):  # the second time after what kept it was mended: it is tried at once
        register.differences.repair("h2", Difference.WRONG_HOST, name, actor="ops")
        assert tasks(register) == ["workers.remove_leftover"]

    assert register.assignments.state(build.claim.assignment_id) == AssignmentState.ACTIVE


def test_leftovers_are_told_from_older_generations(register: Registry, build: Build) -> None:
    register.vms.delete(build.vm_id, actor=ACTOR)
    remove_vm(register, build.claim.assignment_id)

    look(register, a_domain(build), volumes=(volume(build.claim.assignment_id),))

    assert found(register) == [("leftover", "repair"), ("leftover", "repair")]


def test_a_host_that_shrank_below_what_is_committed_is_told(
    register: Registry, build: Build
) -> None:
    look(register, a_domain(build), memory_mib=1024)

    assert found(register) == [("capacity_shrank", "note")]


def test_of_a_silent_host_nothing_is_said_but_that(register: Registry, build: Build) -> None:
    host = register.hosts.get("h1")
    register.hosts.record_miss(host.id, "timeout", unreachable_after=1, down_after=9)

    assert found(register) == [("silent", "note")]


def test_another_machine_in_a_hosts_place_is_not_believed_until_an_operator_does(
    register: Registry, build: Build
) -> None:
    look(register, a_domain(build), machine="one")

    for _ in range(2):
        with pytest.raises(AnotherMachineError, match="two instead of one"):
            look(register, machine="two")

    assert register.vms.get(build.vm_id).observed == "running"
    assert found(register) == [("another_machine", "confirm")]
    assert len(register.events.list(kind="another_machine")) == 1
    register.differences.repair("h1", Difference.ANOTHER_MACHINE, "two", actor="ops")
    assert look(register, machine="two").machine_uuid == "two"
    assert register.vms.get(build.vm_id).observed == "lost"
    assert found(register) == [("vm_missing", "confirm")]


def test_another_number_of_a_machine_with_our_vms_is_only_told(
    register: Registry, build: Build
) -> None:
    look(register, a_domain(build), machine="one")

    host = look(register, a_domain(build), machine="two")

    assert (host.machine_uuid, host.found_machine_uuid) == ("two", None)
    assert len(register.events.list(kind="machine_changed")) == 1
    assert found(register) == []


def test_a_host_that_holds_nothing_may_be_built_anew(register: Registry, host: Host) -> None:
    look(register, machine="one")

    assert look(register, machine="two").machine_uuid == "two"


def test_a_guest_that_its_qemu_paused_is_noted(register: Registry, build: Build) -> None:
    look(register, a_domain(build))
    look(register, replace(a_domain(build), state="paused"))

    assert found(register) == [("vm_paused", "note")]
    paused = register.vms.get(build.vm_id)
    assert (paused.observed, paused.paused_since is not None) == ("running", True)
    look(register, replace(a_domain(build), state="paused"))
    assert register.vms.get(build.vm_id).paused_since == paused.paused_since
    assert len(register.events.list(kind="vm_paused", tenant=paused.tenant)) == 1
    look(register, a_domain(build))
    assert found(register) == []
    assert register.vms.get(build.vm_id).paused_since is None


@pytest.mark.parametrize(("seen", "noted"), [(False, True), (True, False), (None, False)])
def test_a_vm_that_runs_unfiltered_is_noted(
    register: Registry, host: Host, build: Build, seen: bool | None, noted: bool
) -> None:
    look(register, replace(a_domain(build), filtered=seen))

    assert found(register) == ([("vm_unfiltered", "note")] if noted else [])


def test_a_vm_on_a_network_that_operators_leave_unfiltered_is_as_they_want_it(
    register: Registry, host: Host
) -> None:
    lan = NetworkSource(kind="bridge", name="br0")
    register.networks.add("lan", default=lan, filtered=False, actor=ACTOR)
    build = running(register, host, network="lan")

    look(register, replace(a_domain(build), filtered=False))

    assert found(register) == []


def test_a_host_without_filters_says_so_until_it_has_them(register: Registry, host: Host) -> None:
    report = replace(a_report(started_at=register.now()), can_filter=False)
    without = register.hosts.record_report(host.id, report)
    report = replace(a_report(started_at=register.now()), can_filter=True)
    with_them = register.hosts.record_report(host.id, report)

    assert without.can_filter is False
    assert any("nwfilter" in each for each in without.warnings)
    assert (with_them.can_filter, with_them.warnings) == (True, ())


def test_files_that_neither_the_ledger_nor_a_domain_names_are_told(
    register: Registry, build: Build
) -> None:
    names = tuple(sorted(f"{number}.img" for number in range(7)))
    own = volume(build.claim.assignment_id)
    seen = a_report(a_domain(build), volumes=(*names, own), started_at=register.now())
    key = register.hosts.get("h1").id

    register.hosts.record_report(key, replace(seen, unnamed=(*names, own)))

    [stray] = register.differences.list("h1")
    assert (stray.difference, stray.remedy, stray.on_confirmation) == (
        Difference.STRAY_FILES,
        "note",
        None,
    )
    assert stray.what == "7 files: 0.img, 1.img, 2.img, 3.img, 4.img and 2 more"
    register.hosts.update("h1", labels=["shared_pool=nfs"], actor=ACTOR)
    assert register.differences.list("h1") == ()  # another host may need them


def test_copies_of_images_that_a_host_that_is_gone_left_are_called_that(
    register: Registry, host: Host
) -> None:
    names = ("a.img", f"fuga-image-{uuid4()}.1.qcow2")
    seen = replace(a_report(volumes=names, started_at=register.now()), unnamed=names)

    register.hosts.record_report(host.id, seen)

    [stray] = register.differences.list("h1")
    assert "1 named fuga-image-… are copies of images that no host of this" in stray.what
    assert "qemu-img info" in stray.what


def test_a_base_volume_of_a_host_is_no_stray_file(register: Registry) -> None:
    host = add_host(register, "h2", base_volume="base.qcow2")
    seen = a_report(volumes=("base.qcow2",), started_at=register.now())

    register.hosts.record_report(host.id, replace(seen, unnamed=("base.qcow2",)))

    assert register.differences.list("h2") == ()


def test_a_list_costs_as_many_statements_for_many_hosts_as_for_one(
    register: Registry, build: Build
) -> None:
    for number in range(8):
        add_host(register, f"other{number}", labels=[f"shared_pool=nfs{number // 2}"])
        look(register, a_stranger(), name=f"other{number}")
    look(register, a_domain(build))

    with work() as one:
        assert len(register.differences.list("other1")) == 1
    with work() as all_of_them:
        assert len(register.differences.list()) == 8

    assert len(all_of_them.statements) <= len(one.statements)
