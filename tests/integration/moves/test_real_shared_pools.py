"""Real guests on a pool that two hosts share: moved by workers, and started elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from hypervisor import HostConnection
from lab.cluster import LabHost
from registry.rounds import Placement
from tests.integration.moves.test_real_moves import boots, is_over
from tests.integration.workers.site import Site, domain_states, open_site, virsh
from tests.register import a_commit, take_lease
from tests.servers.lab_guests import run_in_guest
from tests.servers.lab_hosts import LabCluster, lab_cluster  # noqa: F401
from tests.servers.running import eventually

pytestmark = [pytest.mark.sqlite, pytest.mark.qemu, pytest.mark.slow]

POOL = "shared"
ROOT = Path(__file__).resolve().parents[3]
FENCE = f'#!/bin/sh\nexec {ROOT}/lab/scripts/host-fault {{directory}} "$1" power-off\n'


@pytest.fixture
def lab(lab_cluster: Callable[[int], LabCluster]) -> LabCluster:  # noqa: F811
    return lab_cluster(2)


@pytest.fixture
def folder(tmp_path: Path, lab: LabCluster) -> Iterator[Path]:
    """A folder that both hosts have for a pool, with the image that disks rest on."""
    folder = tmp_path / "nfs"
    folder.mkdir()
    base = lab.hosts[0].images_dir
    assert base is not None
    (folder / "base.qcow2").write_bytes((base / "base.qcow2").read_bytes())
    for host in lab.hosts:
        give_pool(host, folder)
    yield folder
    for host in lab.hosts:
        virsh(host.uri, "pool-destroy", POOL)


def give_pool(host: LabHost, folder: Path) -> None:
    virsh(host.uri, "pool-create-as", POOL, "dir", "--target", str(folder))


@pytest.fixture
def site(tmp_path: Path, lab: LabCluster, folder: Path) -> Iterator[Site]:
    fence = tmp_path / "fence"
    fence.write_text(FENCE.format(directory=lab.directory))
    fence.chmod(0o755)
    with open_site(tmp_path) as site:
        for number, host in enumerate(lab.hosts, 1):
            site.add_host(replace(host, pool=POOL))
            site.registry.hosts.update(
                host.name,
                labels=["shared_pool=nfs", "on_failure=replace"],
                fence_target=str(number),
                actor="cli",
            )
        site.start("workers", FUGA_FENCE_COMMAND=f'["{fence}", "{{target}}"]')
        yield site
        site.delete_all_and_wait()


def in_guest(host: LabHost, vm_id: UUID, words: str) -> list[str]:
    with HostConnection(host.uri, deadline_s=30.0) as connection:
        return run_in_guest(connection, str(vm_id), words)


def disks(folder: Path) -> set[str]:
    return {each.name for each in folder.glob("fuga-*.qcow2")}


def place_what_waits(site: Site, host: LabHost) -> None:
    lease = take_lease(site.registry)
    there = site.registry.hosts.get(host.name)
    [waits] = site.registry.rounds.read_cluster(lease).requests
    part = Placement(
        request_id=waits.id, host_id=there.id, count=waits.count, shared_pool=waits.shared_pool
    )
    site.registry.rounds.commit_round(a_commit(lease, (part,), {there.id: there.version}))


def test_a_guest_moves_without_its_disk_and_outlives_its_host_with_it(
    site: Site, lab: LabCluster, folder: Path
) -> None:
    first, second = lab.hosts
    site.request(first)
    eventually(site.all_run)
    [vm] = site.vms()
    disk = f"fuga-{vm.assignment_id}.qcow2"
    eventually(lambda: boots(lab, 1, vm) == 1)
    assert disks(folder) == {disk}

    move = site.registry.moves.create(vm.id, second.name, reason="by hand", actor="test").id
    eventually(lambda: is_over(site, move))
    assert site.registry.moves.get(move).last_error is None
    eventually(lambda: site.sweep() or domain_states(first.uri) == {})
    assert domain_states(second.uri) == {str(vm.id): "running"}
    assert disks(folder) == {disk}
    in_guest(second, vm.id, "echo written | dd of=/dev/vda bs=1M seek=900 conv=fsync")

    # Its host is cut off, its guest runs on: until it is fenced nothing else opens the disk.
    lab.fault(2, "cut-network")
    down = site.registry.hosts.get(second.name)
    site.registry.hosts.record_miss(down.id, "timeout", unreachable_after=1, down_after=1)
    assert site.registry.fencing.request_for_failed_hosts(take_lease(site.registry)) == (
        second.name,
    )
    eventually(lambda: site.sweep() or site.vms()[0].host is None)
    place_what_waits(site, first)
    eventually(lambda: site.sweep() or site.all_run())

    eventually(lambda: boots(lab, 1, vm) == 1)  # its log went with the domain that left
    [again] = site.vms()
    assert (again.host, disks(folder)) == (first.name, {disk})
    said = in_guest(first, vm.id, "dd if=/dev/vda bs=1M skip=900 count=1 2>/dev/null|head -n1")
    assert said == ["written"]

    # The host that returns loses its domain, and nobody's disk.
    lab.restore()
    give_pool(second, folder)
    eventually(lambda: report(site, second) or site.sweep() or domain_states(second.uri) == {})
    assert domain_states(first.uri) == {str(vm.id): "running"}
    assert disks(folder) == {disk}
    assert site.registry.check() == []


def report(site: Site, host: LabHost) -> None:
    site.report(replace(host, pool=POOL))
