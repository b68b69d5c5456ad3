"""What snapshots by libvirt's tools leave: it goes with the VM, and keeps it from moving."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hypervisor import DomainSpec, MigrationObstacle, MigrationRefusedError, OperationFailedError
from hypervisor.model import IMAGE_PREFIX
from tests.contract.moving_grounds import POOL_PATH, Grounds, real
from tests.servers.lab_hosts import lab_cluster

__all__ = ["lab_cluster", "real"]

pytestmark = pytest.mark.qemu

#: What an operator types, by what it leaves: {vm} is the domain, {pool} the folder of its pool.
RUNNING = {
    "disk only": ["snapshot-create-as {vm} one --disk-only --atomic"],
    "one on another, forgotten": [
        "snapshot-create-as {vm} one --disk-only --no-metadata",
        "snapshot-create-as {vm} two --disk-only --no-metadata",
    ],
    "under a name of its own": [
        "snapshot-create-as {vm} one --disk-only --diskspec vda,file={pool}/own.img"
    ],
    "with memory": [
        "snapshot-create-as {vm} one --live --memspec file={pool}/memory.save"
        " --diskspec vda,file={pool}/own.img"
    ],
    "of the seed, too": [
        "snapshot-create-as {vm} one --disk-only --diskspec vdb,snapshot=external,"
        "file={pool}/seed.own --no-metadata"
    ],
    "internal": ["snapshot-create-as {vm} one --diskspec vdb,snapshot=no"],
    "pulled from its disk": [
        "snapshot-create-as {vm} one --disk-only --no-metadata --diskspec vda,file={pool}/own.img",
        "blockpull {vm} vda --wait",
    ],
}
OFF = {
    "disk only": ["snapshot-create-as {vm} one --disk-only"],
    "internal": ["snapshot-create-as {vm} one"],
    "a managed save": [],
}


@contextmanager
def left_as_found(real: Grounds) -> Iterator[None]:
    """Compare the files of the source's pool before and after."""
    before = files(real)
    yield
    assert files(real) == before


def files(real: Grounds) -> set[str]:
    assert real.lab is not None
    return real.lab.images(1)


def virsh(real: Grounds, *lines: str, vm: DomainSpec) -> None:
    for line in lines:
        words = line.format(vm=vm.name, pool=POOL_PATH).split()
        real.in_host(1, "virsh", "-q", *words)


def removed(real: Grounds, spec: DomainSpec) -> bool:
    return real.source.host.remove(
        spec.mark.vm_id,
        assignment_id=spec.mark.assignment_id,
        generation=spec.mark.generation,
        pool=spec.pool,
        volumes=(spec.volume, spec.seed_volume or f"fuga-{spec.mark.assignment_id}-seed.img"),
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", RUNNING)
def test_a_vm_that_ran_goes_with_the_files_of_its_snapshots(real: Grounds, what: str) -> None:
    real.rest_on("image")
    with left_as_found(real):
        spec = real.running(seed=True)
        virsh(real, *RUNNING[what], vm=spec)
        with pytest.raises(MigrationRefusedError) as refusal:
            real.check(real.arriving(spec))
        assert refusal.value.obstacle in {
            MigrationObstacle.SNAPSHOTS,
            MigrationObstacle.HOST_DEVICE,
        }

        assert removed(real, spec)

    assert real.states(spec)[0] is None


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", OFF)
def test_a_vm_that_is_off_goes_with_the_files_of_its_snapshots(real: Grounds, what: str) -> None:
    with left_as_found(real):
        spec = real.off()
        virsh(real, *OFF[what], vm=spec)
        if OFF[what]:
            wanted = real.arriving(spec)
            for move in (real.check, real.cold):
                with pytest.raises(MigrationRefusedError, match="virsh"):
                    move(wanted)

        assert removed(real, spec)


def test_what_a_forgotten_snapshot_left_goes_by_its_name(real: Grounds) -> None:
    with left_as_found(real):
        spec = real.off()
        for name in (f"fuga-{spec.mark.assignment_id}.half", f"fuga-{spec.mark.assignment_id}.b.c"):
            real.in_host(1, "touch", f"{POOL_PATH}/{name}")

        assert removed(real, spec)


def test_files_that_no_domain_and_no_snapshot_names_are_told(real: Grounds) -> None:
    spec = real.off()
    stray = f"{uuid.uuid4()}.img"
    virsh(real, *OFF["disk only"], vm=spec)
    real.in_host(1, "touch", f"{POOL_PATH}/{stray}")
    try:
        unnamed = set(real.source.host.report(spec.pool).unnamed)
    finally:
        real.in_host(1, "rm", f"{POOL_PATH}/{stray}")

    assert stray in unnamed
    assert not unnamed & {spec.volume, f"fuga-{spec.mark.assignment_id}.one", "base.qcow2"}
    assert removed(real, spec)


def test_files_of_a_snapshot_in_another_pool_of_the_host_go_too(real: Grounds) -> None:
    pool = f"other-{uuid.uuid4()}"
    folder = f"/var/lib/libvirt/{pool}"
    real.in_host(1, "mkdir", folder)
    real.in_host(1, "virsh", "-q", "pool-create-as", pool, "dir", "--target", folder)
    try:
        with left_as_found(real):
            spec = real.off()
            virsh(
                real,
                f"snapshot-create-as {{vm}} one --disk-only --diskspec vda,file={folder}/own.img",
                vm=spec,
            )
            over = ["-f", "qcow2", "-F", "qcow2", "-b", f"{folder}/own.img", f"{folder}/on-it.img"]
            real.in_host(1, "qemu-img", "create", *over)
            with pytest.raises(OperationFailedError, match=f"as volume {pool}/on-it.img rests"):
                removed(real, spec)
            real.in_host(1, "rm", f"{folder}/on-it.img")
            real.in_host(1, "cp", f"{POOL_PATH}/base.qcow2", f"{folder}/of-others.img")

            assert removed(real, spec)

        real.in_host(1, "test", "!", "-e", f"{folder}/own.img")
        real.in_host(1, "test", "-e", f"{folder}/of-others.img")
    finally:
        real.in_host(1, "virsh", "-q", "pool-destroy", pool)
        real.in_host(1, "rm", "-rf", folder)


def test_what_others_need_stays(real: Grounds) -> None:
    """Another domain's disk, an image, what is in no pool, and all below a volume of others."""
    real.rest_on("image")
    spec, other = real.off(), real.off()
    frozen, clone, image = (f"{uuid.uuid4()}.qcow2" for _ in range(3))
    image = f"{IMAGE_PREFIX}{image}"
    outside = f"/var/lib/libvirt/{uuid.uuid4()}.img"
    virsh(
        real,
        f"snapshot-create-as {{vm}} one --disk-only --diskspec vda,file={{pool}}/{frozen}",
        f"snapshot-create-as {{vm}} two --disk-only --diskspec vda,file={{pool}}/{image}",
        f"snapshot-create-as {{vm}} three --disk-only --diskspec vda,file={outside}",
        vm=spec,
    )
    over = ["-f", "qcow2", "-F", "qcow2", "-b", f"{POOL_PATH}/{frozen}", f"{POOL_PATH}/{clone}"]
    real.in_host(1, "qemu-img", "create", *over)
    attached = f"fuga-{spec.mark.assignment_id}.x"
    real.in_host(1, "cp", f"{POOL_PATH}/base.qcow2", f"{POOL_PATH}/{attached}")
    virsh(real, f"attach-disk {{vm}} {{pool}}/{attached} vdc --config", vm=other)
    kept = {image, attached, other.volume, "base.qcow2"}
    try:
        before = files(real)
        with pytest.raises(OperationFailedError, match=f"as volume {spec.pool}/{clone} rests on"):
            removed(real, spec)
        assert files(real) == before
        virsh(real, f"vol-delete {clone} {spec.pool}", vm=spec)

        assert removed(real, spec)

        assert kept <= files(real)
        assert not {spec.volume, frozen} & files(real)
        real.in_host(1, "test", "-e", outside)
    finally:
        for name in (frozen, clone, image, attached):
            real.in_host(1, "rm", "-f", f"{POOL_PATH}/{name}")
        real.in_host(1, "rm", "-f", outside)
        real.in_host(1, "virsh", "-q", "pool-refresh", "default")


def test_what_rests_on_a_disk_is_named_to_who_would_start_from_the_disk(real: Grounds) -> None:
    spec = real.off()
    assert real.source.host.overlays_of(spec.pool, spec.volume) == []

    virsh(
        real, "snapshot-create-as {vm} one --disk-only --diskspec vda,file={pool}/own.img", vm=spec
    )

    assert real.source.host.overlays_of(spec.pool, spec.volume) == ["own.img"]
    assert real.source.host.overlays_of(spec.pool, "no such volume") == []
    assert removed(real, spec)
