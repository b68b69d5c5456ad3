"""What prevents a move is found before it is begun: the fakes, and real QEMU hosts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hypervisor import DomainState, Guard, MigrationObstacle, MigrationRefusedError, MoveSpec
from tests.contract.moving_grounds import Grounds, fake_grounds, grounds, real
from tests.servers.lab_hosts import lab_cluster

__all__ = ["grounds", "lab_cluster", "real"]

RUNNING, STOPPED = DomainState.RUNNING, DomainState.STOPPED


def refused(grounds: Grounds, wanted: MoveSpec) -> MigrationObstacle:
    with pytest.raises(MigrationRefusedError) as refusal:
        grounds.check(wanted)
    assert refusal.value.detail
    return refusal.value.obstacle


def virsh(real: Grounds, number: int, *words: str) -> str:
    assert real.lab is not None
    command = ["virsh", "-q", "-c", real.lab.uris[number - 1], *words]
    return subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout


def test_what_can_move_passes_and_nothing_has_changed(grounds: Grounds) -> None:
    for spec in (grounds.running(seed=True), grounds.off()):
        before = grounds.states(spec)

        grounds.check(grounds.arriving(spec))

        assert grounds.states(spec) == before


def test_a_vm_that_is_not_there(grounds: Grounds) -> None:
    wanted = grounds.arriving(grounds.source.spec())

    assert refused(grounds, wanted) is MigrationObstacle.ABSENT


def test_a_host_is_no_other_host(grounds: Grounds) -> None:
    wanted = grounds.arriving(grounds.off())
    grounds.ends = (grounds.ends[0], grounds.ends[0])

    assert refused(grounds, wanted) is MigrationObstacle.SAME_HOST


def test_a_domain_in_the_way(grounds: Grounds) -> None:
    spec = grounds.off()
    first = grounds.arriving(spec)
    grounds.cold(first)

    grounds.check(first)  # its own
    assert refused(grounds, grounds.arriving(spec)) is MigrationObstacle.NAME_TAKEN


def test_a_pool_that_is_not_there(grounds: Grounds) -> None:
    wanted = replace(grounds.arriving(grounds.off()), pool="no-such-pool")

    assert refused(grounds, wanted) is MigrationObstacle.POOL


@pytest.mark.parametrize("which", ["volume", "seed_volume"])
def test_a_volume_that_is_not_there(grounds: Grounds, which: str) -> None:
    wanted = grounds.arriving(grounds.running(seed=True))
    grounds.destination.host.delete_volume(wanted.pool, getattr(wanted, which))

    assert refused(grounds, wanted) is MigrationObstacle.VOLUME


def test_a_pool_that_is_not_shared(grounds: Grounds) -> None:
    spec = grounds.off()
    wanted = grounds.arriving(spec, copy_disk=False, volume=spec.volume)
    grounds.destination.host.create_overlay(  # one of the same name
        pool=wanted.pool,
        name=spec.volume,
        base_volume=grounds.destination.base_volume,
        capacity_gib=1,
    )

    assert refused(grounds, wanted) is MigrationObstacle.POOL
    with pytest.raises(MigrationRefusedError):
        grounds.cold(wanted)
    grounds.source.host.start_paused(spec.mark.vm_id)
    grounds.source.host.resume(spec.mark.vm_id)
    with pytest.raises(MigrationRefusedError):
        grounds.live(wanted)
    assert grounds.states(spec) == (RUNNING, None)
    probes = grounds.source.volumes() | grounds.destination.volumes()
    assert not [name for name in probes if "probe" in name]


@pytest.mark.qemu
def test_a_pool_without_enough_room(real: Grounds, tmp_path: Path) -> None:
    spec = real.off()
    assert real.lab is not None
    images = real.lab.hosts[0].images_dir
    assert images is not None
    with (images / spec.volume).open("r+b") as file:
        file.seek(0, 2)
        file.write(b"x" * (3 << 20))
    with _small_pool(real, tmp_path) as pool:
        wanted = replace(real.arriving(spec), pool=pool)

        assert refused(real, wanted) in {MigrationObstacle.POOL, MigrationObstacle.BASE_VOLUME}
        with pytest.raises(MigrationRefusedError, match="MiB left"):
            real.check(wanted)


@contextmanager
def _small_pool(real: Grounds, folder: Path) -> Iterator[str]:
    """A pool of one MiB at the destination, in its own eyes."""
    assert real.lab is not None
    pid = (real.lab.directory / "hosts" / "2" / "pid").read_text().split()[0]
    enter = ["nsenter", "-t", pid, "-m"]
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    subprocess.run([*enter, *mount], check=True, timeout=60)
    try:
        virsh(real, 2, "pool-create-as", "small", "dir", "--target", str(folder))
        yield "small"
        virsh(real, 2, "pool-destroy", "small")
    finally:
        subprocess.run([*enter, "umount", str(folder)], check=True, timeout=60)


@pytest.mark.qemu
def test_a_volume_of_another_size(real: Grounds) -> None:
    wanted = real.arriving(real.running())
    real.destination.host.delete_volume(wanted.pool, wanted.volume)
    real.destination.host.create_overlay(
        pool=wanted.pool, name=wanted.volume, base_volume="base.qcow2", capacity_gib=2
    )

    assert refused(real, wanted) is MigrationObstacle.VOLUME


@pytest.mark.qemu
@pytest.mark.parametrize("runs", [True, False])
def test_a_base_that_is_not_there(real: Grounds, runs: bool) -> None:
    wanted = real.arriving(real.running() if runs else real.off())
    if runs:
        real.destination.host.delete_volume(wanted.pool, wanted.volume)
        real.destination.host.create_overlay(
            pool=wanted.pool, name=wanted.volume, base_volume=None, capacity_gib=1
        )
        assert refused(real, wanted) is MigrationObstacle.BASE_VOLUME
        return
    assert real.lab is not None
    images = real.lab.hosts[1].images_dir
    assert images is not None
    (images / "base.qcow2").rename(images / "hidden")
    try:
        virsh(real, 2, "pool-refresh", "default")

        assert refused(real, wanted) is MigrationObstacle.BASE_VOLUME
    finally:
        (images / "hidden").rename(images / "base.qcow2")
        virsh(real, 2, "pool-refresh", "default")


@pytest.mark.qemu
@pytest.mark.parametrize("kind", ["network", "bridge"])
def test_a_network_that_is_not_there(real: Grounds, kind: str) -> None:
    spec = real.off()
    wanted = real.arriving(spec)
    there = {"network": "default", "bridge": "br0"}[kind]

    real.check(replace(wanted, network=there, network_kind=kind))
    nowhere = replace(wanted, network="nowhere", network_kind=kind)
    assert refused(real, nowhere) is MigrationObstacle.NETWORK


@pytest.mark.qemu
def test_a_network_that_is_not_active(real: Grounds) -> None:
    wanted = real.arriving(real.off())
    virsh(real, 2, "net-destroy", "default")
    try:
        assert refused(real, wanted) is MigrationObstacle.NETWORK
    finally:
        virsh(real, 2, "net-start", "default")


@pytest.mark.qemu
def test_a_network_where_nothing_can_be_filtered(real: Grounds, tmp_path: Path) -> None:
    network = tmp_path / "network.xml"
    network.write_text(
        "<network><name>direct</name><forward mode='private'><interface dev='eth0'/></forward>"
        "</network>"
    )
    virsh(real, 2, "net-create", str(network))
    try:
        guard = Guard(filtered=True, isolated=False, address="10.0.0.7")
        wanted = replace(real.arriving(real.off()), network="direct", guard=guard)

        assert refused(real, wanted) is MigrationObstacle.NETWORK
        real.check(replace(wanted, guard=Guard(filtered=False, isolated=False)))
    finally:
        virsh(real, 2, "net-destroy", "direct")


@pytest.mark.qemu
def test_what_is_its_hosts_own(real: Grounds, tmp_path: Path) -> None:
    spec = real.off()
    disk = tmp_path / "disk"
    disk.write_bytes(b"\0" * 512)
    virsh(real, 1, "attach-disk", spec.name, str(disk), "vdc", "--config")

    assert refused(real, real.arriving(spec)) is MigrationObstacle.HOST_DEVICE


@pytest.mark.qemu
def test_a_processor_that_the_destination_lacks(real: Grounds, tmp_path: Path) -> None:
    spec = real.off()
    xml = virsh(real, 1, "dumpxml", "--inactive", spec.name)
    begin, _, rest = xml.partition("<cpu ")
    _, _, end = rest.partition("</cpu>")
    # What no emulation has.
    feature = "<feature policy='require' name='avx512f'/>"
    model = "<cpu mode='custom' match='exact'><model fallback='forbid'>qemu64</model>"
    changed = tmp_path / "domain.xml"
    changed.write_text(f"{begin}{model}{feature}</cpu>{end}")
    virsh(real, 1, "define", str(changed))

    assert refused(real, real.arriving(spec)) is MigrationObstacle.CPU_MODEL


@pytest.mark.qemu
@pytest.mark.parametrize("address", ["", "10.0.0.1 -x", "tcp://10.0.0.1", "a/b"])
def test_what_is_no_address(real: Grounds, address: str) -> None:
    wanted = replace(real.arriving(real.off()), address=address)

    assert refused(real, wanted) is MigrationObstacle.ADDRESS


class TestMisbehavingFake:
    """The ways in which only the fake can be made to fail."""

    def test_it_refuses_the_next_move_for_whatever_it_is_told(self) -> None:
        grounds = fake_grounds()
        assert grounds.fakes is not None
        wanted = grounds.arriving(grounds.off())
        grounds.fakes.refuse(MigrationObstacle.CPU_MODEL)

        assert refused(grounds, wanted) is MigrationObstacle.CPU_MODEL
        grounds.check(wanted)

    def test_hosts_in_memory_may_share_a_pool(self) -> None:
        grounds = fake_grounds()
        spec = grounds.running()
        grounds.destination.host.volumes = grounds.source.host.volumes  # type: ignore[union-attr]
        wanted = grounds.arriving(spec, copy_disk=False, volume=spec.volume)

        grounds.check(wanted)
        done = grounds.live(wanted)

        assert done.disk_bytes == 0
        assert grounds.states(spec) == (None, RUNNING)
