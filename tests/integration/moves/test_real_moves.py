"""Guests of real QEMU hosts move by real workers, and by workers that die over it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from hypervisor import HostConnection
from lab.cluster import BASE_VOLUME
from registry import VmDesiredEvent, VmObserved
from registry.requests import Vm
from tests.integration.workers.site import LEASE_S, Site, domain_states, open_site
from tests.servers.lab_guests import run_in_guest
from tests.servers.lab_hosts import LabCluster, guest_dir, lab_cluster  # noqa: F401
from tests.servers.running import eventually

pytestmark = [pytest.mark.sqlite, pytest.mark.qemu, pytest.mark.slow]


@pytest.fixture
def lab(lab_cluster: Callable[[int], LabCluster]) -> LabCluster:  # noqa: F811
    return lab_cluster(2)


@pytest.fixture
def site(tmp_path: Path, lab: LabCluster) -> Iterator[Site]:
    with open_site(tmp_path) as site:
        for host in lab.hosts:
            site.add_host(host)
        yield site
        site.start("workers")
        site.delete_all_and_wait()


def a_running_vm(site: Site, lab: LabCluster) -> Vm:
    site.request(lab.hosts[0])
    eventually(site.all_run)
    [vm] = site.vms()
    eventually(lambda: boots(lab, 1, vm) == 1)
    return vm


def boots(lab: LabCluster, number: int, vm: Vm) -> int:
    """How often the guest said on a host that it is up."""
    log = lab.serial_log(number, f"fuga-{vm.id}")
    return log.read_text(errors="replace").count("LAB-GUEST-READY") if log.exists() else 0


def ask(site: Site, lab: LabCluster, vm: Vm, number: int = 2) -> UUID:
    host = lab.hosts[number - 1].name
    return site.registry.moves.create(vm.id, host, reason="by hand", actor="test").id


def is_over(site: Site, move_id: UUID) -> bool:
    site.sweep()
    return site.registry.moves.get(move_id).ended_at is not None


def settled(site: Site, lab: LabCluster, vm: Vm, number: int) -> bool:
    """It runs and holds capacity on that host alone; neither pool has anything of it but there."""
    site.sweep()
    if not holds_room_there_alone(site, lab, number):
        return False
    states = [domain_states(host.uri) for host in lab.hosts]
    wanted = [{str(vm.id): "running"} if each == number else {} for each in (1, 2)]
    disks = [bool(left_behind(lab, each)) for each in (1, 2)]
    return states == wanted and disks == [each == number for each in (1, 2)]


def holds_room_there_alone(site: Site, lab: LabCluster, number: int) -> bool:
    there = {
        host.name
        for host in lab.hosts
        if any(each.committed for each in site.registry.hosts.get(host.name).inventories)
    }
    return there == {lab.hosts[number - 1].name}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["cold", "live"])
def test_a_vm_made_from_an_image_moves_there_and_back_and_boots(
    site: Site, lab: LabCluster, kind: str
) -> None:
    site.add_image("linux", guest_dir() / BASE_VOLUME)
    site.start("workers", FUGA_LEASE_S="60")
    site.request(lab.hosts[0], image="linux")
    eventually(site.all_run)
    [vm] = site.vms()
    eventually(lambda: boots(lab, 1, vm) == 1)
    write(lab, 1, vm)
    if kind == "cold":
        switch(site, vm, VmDesiredEvent.STOP)

    for number in (2, 1, 2):
        move = ask(site, lab, vm, number)
        eventually(lambda move=move: is_over(site, move))
        found = site.registry.moves.get(move)
        assert (found.kind, found.state, found.last_error) == (kind, "moved", None)
        eventually(
            lambda number=number: (
                site.sweep()
                or (
                    left_behind(lab, 3 - number) == set()
                    and holds_room_there_alone(site, lab, number)
                )
            )
        )

    if kind == "cold":
        switch(site, vm, VmDesiredEvent.START)
        eventually(lambda: boots(lab, 2, vm) == 1)
    assert read(lab, 2, vm) == ["written"]
    assert site.registry.check() == []


def switch(site: Site, vm: Vm, event: VmDesiredEvent) -> None:
    site.registry.vms.change_power(vm.id, event, actor="test")
    wanted = VmObserved.RUNNING if event == VmDesiredEvent.START else VmObserved.STOPPED
    eventually(lambda: site.sweep() or site.registry.vms.get(vm.id).observed == wanted)


def left_behind(lab: LabCluster, number: int) -> set[str]:
    """What a pool has of VMs."""
    names = {name for name in lab.images(number) if name.startswith("fuga-")}
    return {name for name in names if not name.startswith("fuga-image-")}


def write(lab: LabCluster, number: int, vm: Vm) -> None:
    in_guest(lab, number, vm, "echo written | dd of=/dev/vda bs=1M seek=900 conv=fsync; sync")


def read(lab: LabCluster, number: int, vm: Vm) -> list[str]:
    return in_guest(lab, number, vm, "dd if=/dev/vda bs=1M skip=900 count=1 2>/dev/null|head -n1")


def in_guest(lab: LabCluster, number: int, vm: Vm, words: str) -> list[str]:
    with HostConnection(lab.hosts[number - 1].uri, deadline_s=30.0) as connection:
        return run_in_guest(connection, str(vm.id), words)


def test_a_guest_moves_there_and_back_and_never_boots_again(site: Site, lab: LabCluster) -> None:
    site.start("workers", FUGA_LEASE_S="60")  # whoever takes a move over knows no standstill
    vm = a_running_vm(site, lab)

    for number in (2, 1, 2):
        move = ask(site, lab, vm, number)
        eventually(lambda move=move: is_over(site, move))
        found = site.registry.moves.get(move)
        assert (found.state, found.last_error) == ("moved", None)
        assert found.downtime_ms is not None
        assert 0 < found.downtime_ms < 60_000
        eventually(lambda number=number: settled(site, lab, vm, number))

    assert boots(lab, 1, vm) + boots(lab, 2, vm) <= 1
    assert site.registry.vms.get(vm.id).host == lab.hosts[1].name
    assert site.registry.check() == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_dies_over_a_move_leaves_the_guest_running_once(
    site: Site, lab: LabCluster, number: signal.Signals
) -> None:
    worker = site.start("workers", FUGA_MOVE_BANDWIDTH_MIB_S="8")
    vm = a_running_vm(site, lab)
    move = ask(site, lab, vm)
    eventually(
        lambda: site.sweep() or site.registry.moves.get(move).remaining_bytes not in {None, 0}
    )

    worker.send(number)
    site.start("workers", FUGA_LEASE_S=str(LEASE_S))

    eventually(lambda: is_over(site, move))
    found = site.registry.moves.get(move)
    assert (found.state, found.last_error) == ("moved", None)
    eventually(lambda: settled(site, lab, vm, 2))
    worker.send(signal.SIGCONT)
    worker.end()
    eventually(lambda: settled(site, lab, vm, 2))
    assert boots(lab, 1, vm) + boots(lab, 2, vm) <= 1
    assert site.registry.check() == []


def test_a_move_is_cancelled_in_the_middle_and_the_guest_stays(site: Site, lab: LabCluster) -> None:
    site.start("workers", FUGA_MOVE_BANDWIDTH_MIB_S="8")
    vm = a_running_vm(site, lab)
    move = ask(site, lab, vm)
    eventually(
        lambda: site.sweep() or site.registry.moves.get(move).remaining_bytes not in {None, 0}
    )

    site.registry.moves.cancel(move, actor="test")

    eventually(lambda: is_over(site, move))
    assert site.registry.moves.get(move).state == "cancelled"
    eventually(lambda: settled(site, lab, vm, 1))
    assert site.registry.check() == []


def test_a_vm_deleted_while_it_moves_leaves_nothing_at_either_end(
    site: Site, lab: LabCluster
) -> None:
    site.start("workers", FUGA_MOVE_BANDWIDTH_MIB_S="8")
    vm = a_running_vm(site, lab)
    move = ask(site, lab, vm)
    eventually(
        lambda: site.sweep() or site.registry.moves.get(move).remaining_bytes not in {None, 0}
    )

    site.registry.vms.delete(vm.id, actor="test")

    eventually(site.all_gone)
    eventually(lambda: is_over(site, move))
    site.sweep()
    assert [domain_states(host.uri) for host in lab.hosts] == [{}, {}]
    assert [left_behind(lab, each) for each in (1, 2)] == [set(), set()]
    assert site.registry.check() == []
