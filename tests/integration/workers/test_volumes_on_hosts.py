"""A volume of real QEMU hosts keeps its bytes from guest to guest, by workers that die over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from hypervisor import HostConnection, data_volume_name, disk_serial
from lab.cluster import LabHost
from registry.requests import Vm
from tests.integration.workers.site import Site, open_site
from tests.servers.lab_guests import run_in_guest
from tests.servers.lab_hosts import LabCluster, lab_cluster  # noqa: F401
from tests.servers.running import eventually

pytestmark = [pytest.mark.sqlite, pytest.mark.qemu, pytest.mark.slow]

WRITTEN = "kept-by-the-volume"


@pytest.fixture
def lab(lab_cluster: Callable[[int], LabCluster]) -> LabCluster:  # noqa: F811
    return lab_cluster(1)


@pytest.fixture
def site(tmp_path: Path, lab: LabCluster) -> Iterator[Site]:
    with open_site(tmp_path) as site:
        site.add_host(lab.hosts[0])
        yield site
        site.start("workers")
        site.delete_all_and_wait()


def in_guest(host: LabHost, vm: Vm, words: str) -> list[str]:
    with HostConnection(host.uri, deadline_s=60) as connection:
        return run_in_guest(connection, str(vm.id), words)


def disk_of(host: LabHost, vm: Vm, volume_id: UUID) -> str | None:
    """The guest's device of a volume, by its serial number."""
    said = in_guest(host, vm, f"grep -lx {disk_serial(volume_id)} /sys/block/vd*/serial")
    return f"/dev/{said[0].split('/')[3]}" if said else None


def boots(lab: LabCluster, vm: Vm) -> bool:
    """Whether a guest said that it is up."""
    log = lab.serial_log(1, f"fuga-{vm.id}")
    return log.exists() and "LAB-GUEST-READY" in log.read_text(errors="replace")


def test_a_volume_keeps_its_bytes_though_workers_die_over_it(site: Site, lab: LabCluster) -> None:
    [host], volumes = lab.hosts, site.registry.volumes
    first = site.start("workers")
    site.request(host, count=2)
    eventually(site.all_run)
    one, two = site.vms()
    eventually(lambda: all(boots(lab, vm) for vm in (one, two)))
    first.end()
    volume = volumes.create("data", tenant="a", size_gib=1, actor="test").id

    def outlive(step: str) -> None:
        """Let a worker die right after a step on the host, before the step is recorded."""
        worker = site.start("workers", FUGA_KILL_AT=f"volumes.after_{step}")
        eventually(lambda: site.sweep() or worker.process.poll() is not None)
        assert volumes.get(volume).state == step

    def reach(state: str) -> None:
        worker = site.start("workers")
        eventually(lambda: site.sweep() or volumes.get(volume).state == state)
        worker.end()

    volumes.attach(volume, one.id, actor="test")
    outlive("creating")
    outlive("attaching")
    reach("attached")
    device = eventually(lambda: disk_of(host, one, volume))
    in_guest(host, one, f"echo {WRITTEN} | dd of={device} conv=fsync")

    volumes.detach(volume, actor="test")
    outlive("detaching")
    reach("available")
    assert disk_of(host, one, volume) is None

    volumes.attach(volume, two.id, actor="test")
    reach("attached")
    device = eventually(lambda: disk_of(host, two, volume))
    assert in_guest(host, two, f"head -n 1 {device}") == [WRITTEN]

    site.start("workers")
    site.registry.vms.delete(two.id, actor="test")
    eventually(lambda: site.sweep() or volumes.get(volume).state == "available")
    assert data_volume_name(volume) in lab.images(1)
    volumes.remove(volume, actor="test")
    eventually(lambda: site.sweep() or volumes.get(volume).state == "removed")
    assert data_volume_name(volume) not in lab.images(1)
    assert site.registry.check() == []
