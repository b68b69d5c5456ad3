"""Moves between hosts that see one pool: nothing is copied, and one host at a time has the disk."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hypervisor import (
    DomainState,
    MigrationObstacle,
    MigrationRefusedError,
    MoveSpec,
    OperationFailedError,
)
from hypervisor.model import IMAGE_PREFIX
from tests.contract.moving_grounds import SLOW_MIB_S, Grounds, real
from tests.servers.lab_hosts import lab_cluster
from tests.servers.running import eventually

__all__ = ["lab_cluster", "real"]

pytestmark = pytest.mark.qemu

RUNNING, STOPPED = DomainState.RUNNING, DomainState.STOPPED
POOL = "shared"


@pytest.fixture
def shared(real: Grounds, tmp_path: Path) -> Iterator[Grounds]:
    """Two hosts whose pools of one name are one folder, as on a server's file system."""
    assert real.lab is not None
    base = real.lab.hosts[0].images_dir
    assert base is not None
    (tmp_path / "base.qcow2").write_bytes((base / "base.qcow2").read_bytes())
    for uri in real.lab.uris:
        virsh(uri, "pool-create-as", POOL, "dir", "--target", str(tmp_path))
    real.source.pool = real.destination.pool = POOL
    yield real
    real.empty()
    for uri in real.lab.uris:
        virsh(uri, "pool-destroy", POOL)
    real.source.pool = real.destination.pool = "default"


def virsh(uri: str, *words: str) -> None:
    subprocess.run(["virsh", "-q", "-c", uri, *words], check=True, timeout=60)


def to_move(shared: Grounds, *, off: bool = False, image: bool = False) -> MoveSpec:
    if image:  # each host has a copy in the pool, of which the disk keeps its first host's
        assert shared.lab is not None
        uri = shared.lab.uris[0]
        for ground in (shared.source, shared.destination):
            ground.base_volume = f"{IMAGE_PREFIX}{uuid.uuid4()}.1.qcow2"
            virsh(uri, "vol-clone", "--pool", POOL, "base.qcow2", ground.base_volume)
    spec = replace(shared.source.spec(), pool=POOL)
    shared.source.made[-1] = spec
    if off:
        shared.source.create_volume(spec, capacity_gib=1)
        shared.source.host.define(spec)
    else:
        shared.running(of=spec)
    return shared.arriving(spec, copy_disk=False, volume=spec.volume)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("image", [False, True])
def test_a_guest_moves_and_its_disk_stays_where_it_is(shared: Grounds, image: bool) -> None:
    wanted = to_move(shared, image=image)
    spec = shared.source.made[-1]
    shared.begin_beating(spec)
    shared.order(shared.source, spec, "echo before | dd of=/dev/vda bs=1M seek=900 conv=fsync")
    shared.check(wanted)

    done = shared.live(wanted)

    assert done.disk_bytes == 0
    assert shared.states(wanted) == (None, RUNNING)
    eventually(lambda: len(shared.beats(shared.destination, wanted)) > 3)
    assert shared.beats(shared.source, wanted)[-1] < shared.beats(shared.destination, wanted)[0]
    said = shared.order(
        shared.destination, wanted, "dd if=/dev/vda bs=1M skip=900 count=1|head -n1"
    )
    assert said[0].startswith("before")
    # The old assignment goes, and leaves the disk, which is the new one's.
    assert shared.source.host.remove(
        wanted.vm_id,
        assignment_id=spec.mark.assignment_id,
        generation=spec.mark.generation,
        pool=POOL,
        volumes=(),
    )
    assert wanted.volume in shared.destination.volumes()
    shared.order(
        shared.destination, wanted, "echo after | dd of=/dev/vda bs=1M seek=901 conv=fsync"
    )


@pytest.mark.parametrize("image", [False, True])
def test_a_vm_that_is_off_is_defined_there_and_nothing_is_copied(
    shared: Grounds, image: bool
) -> None:
    wanted = to_move(shared, off=True, image=image)
    assert shared.destination.host.has_volume(POOL, wanted.volume)
    assert not shared.destination.host.has_volume(POOL, f"{wanted.volume}.not-there")
    shared.check(wanted)

    done = shared.cold(wanted)

    assert done.disk_bytes == 0
    assert shared.states(wanted) == (STOPPED, STOPPED)
    shared.source.host.undefine(wanted.vm_id)
    shared.start_at_destination(wanted)
    assert shared.states(wanted) == (None, RUNNING)


def test_a_disk_in_use_is_opened_by_no_second_host(shared: Grounds) -> None:
    wanted = to_move(shared, off=True)
    shared.cold(wanted)
    shared.source.host.start_paused(wanted.vm_id)
    shared.source.host.resume(wanted.vm_id)

    with pytest.raises(OperationFailedError, match='Failed to get "write" lock'):
        shared.destination.host.start_paused(wanted.vm_id)

    assert shared.states(wanted) == (RUNNING, STOPPED)
    # And once it is free again, it may.
    shared.source.host.destroy(wanted.vm_id)
    shared.start_at_destination(wanted)
    with pytest.raises(OperationFailedError, match='Failed to get "write" lock'):
        shared.source.host.start_paused(wanted.vm_id)


def test_a_move_that_is_called_off_leaves_the_disk_to_the_source(shared: Grounds) -> None:
    wanted = to_move(shared)
    spec = shared.source.made[-1]

    with pytest.raises(OperationFailedError, match="called off"):
        shared.live(replace(wanted, bandwidth_mib_s=SLOW_MIB_S), deadline_s=2.0)

    assert shared.states(wanted) == (RUNNING, None)
    shared.order(shared.source, spec, "echo still | dd of=/dev/vda bs=1M seek=900 conv=fsync")
    shared.live(wanted)
    assert shared.states(wanted) == (None, RUNNING)


def test_a_folder_of_the_same_name_is_no_shared_pool(
    shared: Grounds, tmp_path_factory: pytest.TempPathFactory
) -> None:
    wanted = to_move(shared, off=True)
    assert shared.lab is not None
    uri = shared.lab.uris[1]
    virsh(uri, "pool-destroy", POOL)
    virsh(uri, "pool-create-as", POOL, "dir", "--target", str(tmp_path_factory.mktemp("other")))

    for ask in (shared.check, shared.cold):
        with pytest.raises(MigrationRefusedError) as refusal:
            ask(wanted)
        assert refusal.value.obstacle is MigrationObstacle.POOL


FOREIGN = """<domain type='qemu'><name>foreign</name><memory unit='MiB'>32</memory>
<os><type>hvm</type></os><devices><disk type='{kind}' device='disk'>
<driver name='qemu' type='{form}'/><source {source}/><target dev='vda' bus='virtio'/>
</disk></devices></domain>"""
SECOND = "second"
DESCRIPTOR = '# Disk DescriptorFile\nversion=1\ncreateType="monolithicFlat"\nRW 2048 FLAT "{}" 0\n'
#: How a foreign domain names its disk, and the files, each on the one before, that it has on ours.
#: A name ending in `.data` has its content in the file before, `.vmdk` is a text that names it, and
#: `.link` is a symbolic link to it.
FOREIGN_DISKS = {
    "ours": ("file", ()),
    "a file on ours": ("file", ("over.qcow2",)),
    "ours, by its pool": ("volume", ()),
    "a file on ours, by its pool": ("volume", ("over.qcow2",)),
    "a file of a second pool": ("file", ("over.qcow2", f"{SECOND}/top.qcow2")),
    "a file of a second pool, by that": ("volume", ("over.qcow2", f"{SECOND}/top.qcow2")),
    "a file with its content in ours": ("file", (f"{SECOND}/over.data",)),
    "a file on one with its content in ours": ("file", ("over.data", f"{SECOND}/top.qcow2")),
    "a descriptor with ours as an extent": ("file", (f"{SECOND}/over.vmdk",)),
    "a descriptor, by its pool": ("volume", ("over.vmdk",)),
    "a link to ours": ("file", ("other.link",)),
    "a link in a second pool": ("volume", (f"{SECOND}/other.link",)),
    "a file on a link": ("file", (f"{SECOND}/other.link", "top.qcow2")),
}


def foreign_domain(folder: Path, name: str, kind: str, over: tuple[str, ...]) -> str:
    """Make the files, of which no libvirt knows yet, and return the domain's definition."""
    top = name
    for each in over:
        if each.endswith(".vmdk"):
            (folder / each).write_text(DESCRIPTOR.format(folder / top))
        elif each.endswith(".link"):
            (folder / each).symlink_to(folder / top)
        else:
            make_over(folder / top, folder / each)
        top = each
    pool = SECOND if top.startswith(f"{SECOND}/") else POOL
    source = f"file='{folder / top}'"
    if kind == "volume":
        source = f"pool='{pool}' volume='{top.rpartition('/')[2]}'"
    form = "vmdk" if top.endswith(".vmdk") else "qcow2"
    return FOREIGN.format(kind=kind, form=form, source=source)


def make_over(below: Path, path: Path) -> None:
    """Make a file with another as its backing file, or as its external data file."""

    def qemu_img(*words: str | Path) -> None:
        subprocess.run(["qemu-img", words[0], "-q", "-f", "qcow2", *words[1:]], check=True)

    if path.suffix != ".data":
        qemu_img("create", "-b", below, "-F", "qcow2", path)
        return
    other = path.with_suffix(".raw")
    qemu_img("create", "-o", f"data_file={other}", path, "1M")
    qemu_img("amend", "-o", f"data_file={below}", path)  # it would create the file again
    other.unlink()


@pytest.fixture
def with_second_pool(shared: Grounds, tmp_path: Path) -> Iterator[Grounds]:
    assert shared.lab is not None
    (tmp_path / SECOND).mkdir()
    for uri in shared.lab.uris:
        virsh(uri, "pool-create-as", SECOND, "dir", "--target", str(tmp_path / SECOND))
    yield shared
    for uri in shared.lab.uris:
        virsh(uri, "pool-destroy", SECOND)


@pytest.mark.parametrize("disk", FOREIGN_DISKS)
def test_what_a_foreign_domain_uses_is_found_on_each_host_and_deleted_by_none(
    with_second_pool: Grounds, tmp_path: Path, disk: str
) -> None:
    shared = with_second_pool
    assert shared.lab is not None
    spec = to_move(shared, off=True)
    name = shared.source.made[-1].volume
    here, there = shared.lab.uris[:2]
    kind, over = FOREIGN_DISKS[disk]
    xml = tmp_path / "foreign.xml"
    xml.write_text(foreign_domain(tmp_path, name, kind, over))
    removal = {
        "assignment_id": shared.source.made[-1].mark.assignment_id,
        "generation": None,
        "pool": POOL,
        "volumes": [name],
    }
    try:
        for uri in (there, here):
            virsh(uri, "define", str(xml))
            ground = shared.source if uri == here else shared.destination
            assert "foreign" in ground.host.domains_using(POOL, [name])
            with pytest.raises(OperationFailedError, match="domain foreign"):
                ground.host.delete_volume(pool=POOL, name=name)
            with pytest.raises(OperationFailedError, match="undefine foreign, or give it"):
                ground.host.remove(spec.vm_id, **removal)
            assert (tmp_path / name).exists()
            virsh(uri, "undefine", "foreign")
    finally:
        for each in over:
            (tmp_path / each).unlink(missing_ok=True)

    assert shared.source.host.remove(spec.vm_id, **removal)
    assert not (tmp_path / name).exists()
