"""Real worker processes on the filesystem broker, building real guests on a lab host."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hypervisor import domain_name
from registry import AssignmentState, VmDesiredEvent
from registry.requests import Vm
from tests.integration.workers.site import ServiceProcess, Site, domain_states, open_site, virsh
from tests.servers.lab_hosts import LabCluster, lab_cluster  # noqa: F401
from tests.servers.running import eventually

pytestmark = [pytest.mark.sqlite, pytest.mark.qemu, pytest.mark.slow]

MARKER = b"LAB-GUEST-READY"
POWERED_OFF = b"LAB-GUEST-POWEROFF"
BUILD_POINTS = [
    "create.after_volume",
    "create.after_define",
    "create.before_resume",
    "create.after_activate",
]


@pytest.fixture
def lab(lab_cluster: Callable[[int], LabCluster]) -> LabCluster:  # noqa: F811
    return lab_cluster(1)


@pytest.fixture
def site(tmp_path: Path, lab: LabCluster) -> Iterator[Site]:
    with open_site(tmp_path) as site:
        site.add_host(lab.hosts[0])
        yield site


def assert_the_host_has(lab: LabCluster, vm: Vm) -> None:
    """One VM runs, with its disk and its seed, and nothing else is there."""
    assert domain_states(lab.uris[0]) == {str(vm.id): "running"}
    images = lab.images(1) - {"base.qcow2"}
    [disk] = {name for name in images if name.endswith(".qcow2")}
    assert images == {disk, disk.replace(".qcow2", "-seed.img")}


def assert_the_host_is_empty(lab: LabCluster) -> None:
    assert domain_states(lab.uris[0]) == {}
    assert lab.images(1) == {"base.qcow2"}


def test_vms_are_created_boot_and_are_deleted_without_a_trace(site: Site, lab: LabCluster) -> None:
    site.start("workers")
    site.request(lab.hosts[0], count=3)

    eventually(site.all_run)

    assert set(domain_states(lab.uris[0]).values()) == {"running"}
    for vm in site.vms():
        log = lab.serial_log(1, domain_name(str(vm.id)))
        eventually(lambda log=log: MARKER in log.read_bytes())
    site.delete_all_and_wait()
    assert_the_host_is_empty(lab)
    assert site.registry.check() == []


def test_a_guest_is_stopped_started_and_rebooted(site: Site, lab: LabCluster) -> None:
    site.start("workers")
    site.request(lab.hosts[0])
    eventually(site.all_run)
    [vm] = site.vms()
    log = lab.serial_log(1, domain_name(str(vm.id)))

    def booted(times: int) -> None:
        eventually(lambda: log.read_bytes().count(MARKER) == times)

    def switch(event: VmDesiredEvent, timeout_s: int = 300) -> Vm:
        site.registry.vms.change_power(vm.id, event, timeout_s=timeout_s, actor="cli")

        def done() -> bool:
            site.sweep()
            return site.registry.vms.get(vm.id).power is None

        eventually(done)
        return site.registry.vms.get(vm.id)

    booted(1)
    assert switch(VmDesiredEvent.STOP).observed == "stopped"
    assert domain_states(lab.uris[0]) == {str(vm.id): "shut off"}
    assert POWERED_OFF in log.read_bytes()

    assert switch(VmDesiredEvent.START).observed == "running"
    booted(2)
    virsh(lab.uris[0], "shutdown", str(vm.id))  # as a guest that has had enough
    eventually(lambda: domain_states(lab.uris[0]) == {str(vm.id): "shut off"})
    site.report(lab.hosts[0])
    [off] = site.vms()
    assert (off.desired, off.observed, off.host) == ("running", "stopped", lab.hosts[0].name)
    assert site.registry.assignments.send_due_tasks(resend_after_s=0) == ()

    switch(VmDesiredEvent.START)
    booted(3)
    assert switch(VmDesiredEvent.REBOOT).observed == "running"
    booted(4)
    switch(VmDesiredEvent.REBOOT, timeout_s=0)
    booted(5)
    assert switch(VmDesiredEvent.STOP, timeout_s=0).observed == "stopped"

    assert log.read_bytes().count(POWERED_OFF) == 3  # the others got no word
    site.delete_all_and_wait()
    assert_the_host_is_empty(lab)
    assert site.registry.check() == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("point", BUILD_POINTS)
def test_a_vm_whose_worker_was_killed_runs_once_and_leaves_nothing(
    site: Site, lab: LabCluster, point: str, tmp_path: Path
) -> None:
    killed = site.start("workers", FUGA_KILL_AT=point, FUGA_KILL_MARK=str(tmp_path / "killed"))
    site.request(lab.hosts[0])
    eventually(lambda: ended(killed, site))
    assert killed.process.returncode == -signal.SIGKILL

    site.start("workers")
    eventually(site.all_run)

    [vm] = site.vms()
    assert_the_host_has(lab, vm)
    site.delete_all_and_wait()
    assert_the_host_is_empty(lab)


def test_a_deletion_whose_worker_was_killed_leaves_nothing(
    site: Site, lab: LabCluster, tmp_path: Path
) -> None:
    killed = site.start(
        "workers", FUGA_KILL_AT="delete.after_destroy", FUGA_KILL_MARK=str(tmp_path / "killed")
    )
    site.request(lab.hosts[0])
    eventually(site.all_run)
    site.delete_all()
    eventually(lambda: ended(killed, site))

    site.start("workers")
    eventually(site.all_gone)

    assert_the_host_is_empty(lab)


def stopping_at(point: str, folder: Path) -> dict[str, str]:
    """Environment of a worker that stops at a point.

    It has one thread: another one, stopped in the middle of a transaction,
    would keep SQLite's write lock from everybody.
    """
    return {
        "FUGA_STOP_AT": point,
        "FUGA_KILL_MARK": str(folder / "stopped"),
        "FUGA_CONCURRENCY": "1",
    }


@pytest.mark.sampled(2)
@pytest.mark.parametrize("point", ["create.after_define", "create.before_resume"])
def test_a_worker_stopped_past_its_lease_and_continued_starts_nothing_twice(
    site: Site, lab: LabCluster, point: str, tmp_path: Path
) -> None:
    stopped = site.start("workers", **stopping_at(point, tmp_path))
    site.request(lab.hosts[0])
    eventually(lambda: site.sweep() or stopped.is_stopped())
    site.start("workers")
    eventually(site.all_run)
    [vm] = site.vms()
    marker = lab.serial_log(1, domain_name(str(vm.id)))
    eventually(lambda: MARKER in marker.read_bytes())

    stopped.send(signal.SIGCONT)

    eventually(lambda: stopped.logged("build_ended", outcome="claim_lost"))
    assert_the_host_has(lab, vm)
    assert marker.read_bytes().count(MARKER) == 1
    site.delete_all_and_wait()
    assert_the_host_is_empty(lab)


def test_a_worker_continued_after_its_vm_was_deleted_leaves_nothing(
    site: Site, lab: LabCluster, tmp_path: Path
) -> None:
    stopped = site.start("workers", **stopping_at("create.after_volume", tmp_path))
    [assignment_id] = site.request(lab.hosts[0])
    eventually(lambda: site.sweep() or stopped.is_stopped())
    site.delete_all()
    site.start("workers")
    eventually(site.all_gone)
    assert site.registry.assignments.state(assignment_id) == AssignmentState.RELEASED

    stopped.send(signal.SIGCONT)

    eventually(lambda: stopped.logged("build_ended", outcome="claim_lost"))
    assert_the_host_is_empty(lab)


def test_a_worker_that_is_told_to_end_does_not_wait_for_a_host_that_hangs(
    site: Site, lab: LabCluster
) -> None:
    worker = site.start("workers", FUGA_STOP_GRACE_S="1", FUGA_LOOKUP_DEADLINE_S="600")
    eventually(lambda: worker.logged("worker_started"))
    [assignment_id] = site.request(lab.hosts[0])
    with lab.faulty(1, "hang-daemon", until="resume-daemon"):
        eventually(
            lambda: (
                site.sweep()
                or site.registry.assignments.state(assignment_id) == AssignmentState.CREATING
            )
        )

        worker.send(signal.SIGTERM)

        assert worker.process.wait(30) == 0
    site.start("workers")
    eventually(site.all_run)
    site.delete_all_and_wait()
    assert_the_host_is_empty(lab)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_end_ends_with_status_0_and_takes_its_children_along(
    site: Site, lab: LabCluster, number: signal.Signals
) -> None:
    worker = site.start("workers")
    site.request(lab.hosts[0], count=2)
    eventually(site.all_run)

    worker.send(number)

    assert worker.process.wait(30) == 0
    assert worker.logged("worker_stopped")
    assert [line for line in worker.lines() if "Traceback" in str(line)] == []
    eventually(lambda: children_in_session_tree(worker.pid) == [])
    site.start("workers")
    site.delete_all_and_wait()
    assert_the_host_is_empty(lab)


def ended(service: ServiceProcess, site: Site) -> bool:
    site.sweep()
    return service.process.poll() is not None


def children_in_session_tree(pid: int) -> list[int]:
    """Processes whose parent is, or was in the same breath, the given one."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError):
            continue
        if parent == pid:
            found.append(int(stat.parent.name))
    return found
