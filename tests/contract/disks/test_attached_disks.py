"""Data volumes attached to VMs and detached: the fake, the test driver, and real QEMU hosts."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from hypervisor import (
    DomainSpec,
    HypervisorError,
    MigrationObstacle,
    MigrationRefusedError,
    OperationFailedError,
    VmLimits,
    data_volume_name,
    disk_serial,
)
from tests.contract.conftest import Ground, driver_hosts, ground
from tests.contract.moving_grounds import POOL_PATH, Grounds, grounds, real
from tests.servers.lab_hosts import lab_cluster
from tests.servers.running import eventually

__all__ = ["driver_hosts", "ground", "grounds", "lab_cluster", "real"]

#: Bytes that a guest writes at the beginning of a disk.
WRITTEN = "kept-by-the-volume"


class Data:
    """A data volume of a host, attached to a VM and detached."""

    def __init__(self, at: Ground) -> None:
        self.at = at
        self.volume_id = str(uuid.uuid4())
        self.volume, self.serial = data_volume_name(self.volume_id), disk_serial(self.volume_id)
        at.host.create_overlay(
            pool=at.pool, name=self.volume, base_volume=None, base_format=None, capacity_gib=1
        )

    def attach(self, spec: DomainSpec, *, volume: str | None = None, serial: str = "") -> None:
        self.at.host.attach_disk(
            spec.mark.vm_id,
            assignment_id=spec.mark.assignment_id,
            pool=self.at.pool,
            volume=volume or self.volume,
            serial=serial or self.serial,
        )

    def detach(self, spec: DomainSpec) -> bool:
        return self.at.host.detach_disk(
            spec.mark.vm_id, assignment_id=spec.mark.assignment_id, serial=self.serial
        )

    def delete(self) -> None:
        self.at.host.delete_volume(self.at.pool, self.volume)


def attached(at: Ground, spec: DomainSpec) -> tuple[str, ...]:
    """The serials that both a look at the VM and a report show, which has the files as well."""
    found = at.find(spec).attached
    [reported] = [each for each in at.host.report(at.pool).domains if each.uuid == spec.mark.vm_id]
    assert reported.attached == found
    ids = (name.removeprefix("fuga-volume-") for name in reported.volume_files)
    assert tuple(map(disk_serial, ids)) == found
    return found


@pytest.mark.parametrize("running", [False, True], ids=["off", "running"])
def test_a_disk_is_attached_once_and_detached(ground: Ground, running: bool) -> None:
    spec, data, other = ground.spec(), Data(ground), Data(ground)
    (ground.run if running else ground.define)(spec)
    assert attached(ground, spec) == ()

    for _ in range(2):
        data.attach(spec)
        other.attach(spec)
    assert attached(ground, spec) == tuple(sorted((data.serial, other.serial)))

    for _ in range(2):
        eventually(lambda: data.detach(spec))
    assert attached(ground, spec) == (other.serial,)
    data.delete()
    assert data.volume not in ground.volumes()
    eventually(lambda: other.detach(spec))
    other.delete()


def test_a_volume_is_attached_to_one_vm_and_no_other(ground: Ground) -> None:
    one, two, data = ground.spec(), ground.spec(), Data(ground)
    ground.define(one)
    ground.define(two)
    data.attach(one)

    with pytest.raises(OperationFailedError, match=data.volume):
        data.attach(two)
    with pytest.raises(OperationFailedError, match=data.volume):
        data.delete()
    assert attached(ground, two) == ()

    assert data.detach(one)
    data.attach(two)
    assert attached(ground, two) == (data.serial,)
    assert data.detach(two)
    data.delete()


def test_a_volume_stays_when_the_vm_that_has_it_is_removed(ground: Ground) -> None:
    spec, next_one, data = ground.spec(), ground.spec(), Data(ground)
    ground.define(spec)
    data.attach(spec)
    files = ground.host.files_removed_with(
        spec.mark.vm_id,
        assignment_id=spec.mark.assignment_id,
        pool=ground.pool,
        volumes=[spec.volume],
    )
    assert data.volume not in files

    assert ground.remove(spec)

    assert data.volume in ground.volumes()
    assert data.detach(spec)
    ground.define(next_one)
    data.attach(next_one)
    assert data.detach(next_one)
    data.delete()


def test_what_cannot_be_attached_is_refused(ground: Ground) -> None:
    spec, absent, data, second = ground.spec(), ground.spec(), Data(ground), Data(ground)
    ground.define(spec)
    stranger = replace(spec, mark=replace(spec.mark, assignment_id=str(uuid.uuid4())))
    data.attach(spec)
    refusals = [
        lambda: second.attach(absent),
        lambda: second.attach(stranger),
        lambda: second.attach(spec, volume=data_volume_name(uuid.uuid4())),
        lambda: second.attach(spec, volume=spec.volume),
        lambda: second.attach(spec, serial=data.serial),
        lambda: data.attach(spec, serial=second.serial),
        lambda: second.attach(spec, serial="x" * 21),
    ]

    for attempt in refusals:
        with pytest.raises(OperationFailedError):
            attempt()

    assert attached(ground, spec) == (data.serial,)
    with pytest.raises(OperationFailedError):
        data.detach(stranger)
    assert data.detach(absent)
    assert second.detach(stranger)
    assert data.detach(spec)
    data.delete()
    second.delete()


@pytest.mark.parametrize("running", [False, True], ids=["off", "running"])
def test_a_vm_with_a_data_volume_does_not_move(grounds: Grounds, running: bool) -> None:
    spec = grounds.running() if running else grounds.off()
    data = Data(grounds.source)
    data.attach(spec)
    before = grounds.states(spec)
    wanted = grounds.arriving(spec)

    for move in (grounds.check, grounds.live if running else grounds.cold):
        with pytest.raises(MigrationRefusedError, match=data.serial) as refusal:
            move(wanted)
        assert refusal.value.obstacle is MigrationObstacle.LOCAL_VOLUME

    assert grounds.states(spec) == before
    eventually(lambda: data.detach(spec))
    data.delete()
    grounds.check(wanted)


# --- QEMU ---------------------------------------------------------------------------


def virsh(real: Grounds, *words: str) -> str:
    return real.in_host(1, "virsh", "-q", *words)


def qemu(real: Grounds, spec: DomainSpec, command: str, **arguments: object) -> object:
    """What a guest's QEMU answers, past libvirt."""
    request = json.dumps({"execute": command, "arguments": arguments})
    answer = json.loads(virsh(real, "qemu-monitor-command", spec.mark.vm_id, request))
    return answer["return"]


def files_of_qemu(real: Grounds, spec: DomainSpec) -> set[str]:
    nodes = qemu(real, spec, "query-named-block-nodes", flat=True)
    assert isinstance(nodes, list)
    return {node["file"].rpartition("/")[2] for node in nodes}


def targets(real: Grounds, spec: DomainSpec, data: Data, *flags: str) -> list[str]:
    """The target of a disk in a VM's definition, if it is there."""
    document = ET.fromstring(virsh(real, "dumpxml", spec.mark.vm_id, *flags))
    return [
        disk.find("target").attrib["dev"]
        for disk in document.iterfind("devices/disk")
        if disk.findtext("serial") == data.serial
    ]


def guest_disks(real: Grounds, spec: DomainSpec) -> dict[str, str]:
    """The guest's disks, by serial."""
    lines = real.order(
        real.source, spec, "for d in /sys/block/vd*; do echo ${d##*/}=$(cat $d/serial); done"
    )
    return {serial: name for name, _, serial in (line.partition("=") for line in lines)}


@pytest.mark.qemu
def test_what_a_guest_writes_into_a_volume_another_guest_reads(real: Grounds) -> None:
    one, two, data = real.running(), real.running(), Data(real.source)
    data.attach(one)
    eventually(lambda: data.serial in guest_disks(real, one))
    name = guest_disks(real, one)[data.serial]
    assert real.order(real.source, one, f"head -c 1048576 /dev/{name} | tr -d '\\0' | wc -c") == [
        "0"
    ]
    real.order(real.source, one, f"printf {WRITTEN} | dd of=/dev/{name} conv=fsync")
    with pytest.raises(OperationFailedError, match=data.volume):
        data.attach(two)

    eventually(lambda: data.detach(one))
    assert data.serial not in guest_disks(real, one)
    assert data.volume not in files_of_qemu(real, one)
    data.attach(two)

    eventually(lambda: data.serial in guest_disks(real, two))
    name = guest_disks(real, two)[data.serial]
    read = real.order(real.source, two, f"head -c {len(WRITTEN)} /dev/{name}; echo")
    assert read == [WRITTEN]
    # After a start from the definition the root disk is still the guest's first.
    real.source.host.destroy(two.mark.vm_id)
    real.source.host.start_paused(two.mark.vm_id)
    boots = real.console(real.source, two).count(b"LAB-GUEST-READY")
    real.source.host.resume(two.mark.vm_id)
    eventually(lambda: real.console(real.source, two).count(b"LAB-GUEST-READY") > boots)
    assert guest_disks(real, two) == {"": "vda", data.serial: "vdb"}
    eventually(lambda: data.detach(two))
    data.delete()


@pytest.mark.qemu
def test_a_new_volume_is_empty_where_another_was_removed(real: Grounds) -> None:
    data = Data(real.source)
    path = f"{POOL_PATH}/{data.volume}"
    real.in_host(1, "qemu-io", "-c", "write -P 0x5a 0 1M", path)
    data.delete()

    data.at.host.create_overlay(
        pool=data.at.pool, name=data.volume, base_volume=None, base_format=None, capacity_gib=1
    )

    said = real.in_host(1, "qemu-io", "-c", "read -P 0 0 1M", path)
    assert "Pattern verification failed" not in said
    data.delete()


@pytest.mark.qemu
def test_limits_hold_for_the_attached_disk_too(real: Grounds) -> None:
    spec = replace(real.source.spec(), limits=VmLimits(disk_iops=500, disk_mib_s=20))
    real.source.run(spec)
    data = Data(real.source)
    data.attach(spec)

    blocks = qemu(real, spec, "query-block")
    assert isinstance(blocks, list)
    limits = [
        (each["inserted"]["group"], each["inserted"]["iops"], each["inserted"]["bps"])
        for each in blocks
        if "inserted" in each
    ]
    assert limits == [("disks", 500, 20 << 20)] * 2
    assert real.source.remove(spec)
    data.delete()


@pytest.mark.qemu
@pytest.mark.parametrize("left", ["--live", "--config"])
def test_a_disk_in_one_definition_alone_is_attached_to_the_other(real: Grounds, left: str) -> None:
    """A killed libvirtd leaves this."""
    spec, data, before = real.running(), Data(real.source), Data(real.source)
    before.attach(spec)
    data.attach(spec)
    [target] = targets(real, spec, data)
    gone = "--live" if left == "--config" else "--config"
    virsh(real, "detach-disk", spec.mark.vm_id, target, gone)
    eventually(
        lambda: len(targets(real, spec, data)) + len(targets(real, spec, data, "--inactive")) == 1
    )

    data.attach(spec)

    assert targets(real, spec, data) == targets(real, spec, data, "--inactive") == [target]
    for each in (data, before):
        eventually(lambda each=each: each.detach(spec))
        each.delete()


def interrupt_attachment(real: Grounds, spec: DomainSpec, data: Data, *, device: bool) -> None:
    """Do in QEMU what libvirt does first, and no more: as if it were killed then."""
    path = f"{POOL_PATH}/{data.volume}"
    node = {"driver": "file", "filename": path, "node-name": "libvirt-9-storage"}
    qemu(real, spec, "blockdev-add", **node)
    above = {"driver": "qcow2", "file": "libvirt-9-storage", "node-name": "libvirt-9-format"}
    qemu(real, spec, "blockdev-add", **above)
    if device:
        made = {"driver": "virtio-blk-pci", "drive": "libvirt-9-format", "write-cache": "on"}
        alias = f"ua-fuga-volume-{data.serial}"
        qemu(real, spec, "device_add", id=alias, serial=data.serial, **made)


@pytest.mark.qemu
@pytest.mark.parametrize("device", [False, True], ids=["nodes", "device"])
def test_what_a_killed_libvirtd_left_in_qemu_is_cleared(real: Grounds, device: bool) -> None:
    spec, data = real.running(), Data(real.source)
    interrupt_attachment(real, spec, data, device=device)
    assert attached(real.source, spec) == ()

    eventually(lambda: data.detach(spec))

    assert data.volume not in files_of_qemu(real, spec)
    interrupt_attachment(real, spec, data, device=device)
    eventually(lambda: repeated(data.attach, spec))  # the guest releases the device first
    assert attached(real.source, spec) == (data.serial,)
    eventually(lambda: list(guest_disks(real, spec)).count(data.serial) == 1)
    eventually(lambda: data.detach(spec))
    assert data.volume not in files_of_qemu(real, spec)
    data.delete()


@pytest.mark.qemu
@pytest.mark.demanding
def test_libvirtd_killed_during_an_attachment_or_a_detachment(real: Grounds) -> None:
    assert real.lab is not None
    spec, data = real.running(), Data(real.source)
    for delay_s in (0.002, 0.004, 0.01, 0.03, 0.06):
        for call in (data.attach, data.detach):
            killed = threading.Timer(delay_s, real.lab.fault, (1, "kill-daemon"))
            killed.start()
            with contextlib.suppress(HypervisorError):  # it was killed in the middle
                call(spec)
            killed.join()
            real.lab.fault(1, "restart-daemon")
            eventually(lambda call=call: repeated(call, spec))
        assert targets(real, spec, data) == targets(real, spec, data, "--inactive") == []
        assert data.volume not in files_of_qemu(real, spec)
    data.delete()


def repeated(call: object, spec: DomainSpec) -> bool:
    """Repeat a call that may find what it broke off; tell whether it is done."""
    assert callable(call)
    try:
        return call(spec) is not False
    except HypervisorError:
        time.sleep(0.2)
        return False


@pytest.mark.qemu
def test_a_guest_that_does_not_answer_keeps_its_disk_until_it_does(real: Grounds) -> None:
    spec, data = real.off(), Data(real.source)
    real.source.host.start_paused(spec.mark.vm_id)
    data.attach(spec)

    for _ in range(2):
        assert not data.detach(spec)  # it is paused
    assert attached(real.source, spec) == (data.serial,)
    assert targets(real, spec, data, "--inactive") == []
    with pytest.raises(OperationFailedError, match=data.volume):
        data.delete()
    data.attach(spec)  # given up: the definition has it again
    assert len(targets(real, spec, data, "--inactive")) == 1

    real.source.host.resume(spec.mark.vm_id)
    for _ in range(2):
        data.detach(spec)  # while it is in its firmware: a repeated request is no error
    eventually(lambda: data.detach(spec))
    assert attached(real.source, spec) == ()
    data.delete()


@pytest.mark.qemu
@pytest.mark.parametrize("name", ["", "own.img"], ids=["libvirt's name", "a name of its own"])
@pytest.mark.parametrize("pulled", [False, True], ids=["on the volume", "pulled from it"])
def test_a_snapshot_of_a_volume_goes_with_no_vm(real: Grounds, name: str, pulled: bool) -> None:
    """An external snapshot by an operator: what the guest wrote last is in its overlay."""
    spec, data = real.running(), Data(real.source)
    data.attach(spec)
    [target] = targets(real, spec, data)
    overlay = name or f"{data.volume.removesuffix('.qcow2')}.one"
    where = f"{target},file={POOL_PATH}/{overlay}" if name else f"{target},snapshot=external"
    words = ["--disk-only", "--diskspec", where, "--diskspec", "vda,snapshot=external"]
    virsh(real, "snapshot-create-as", spec.mark.vm_id, "one", *words)
    if pulled:
        virsh(real, "blockpull", spec.mark.vm_id, target, "--wait")
    try:
        with pytest.raises(OperationFailedError, match="blockcommit"):
            data.detach(spec)

        assert real.source.remove(spec)

        assert real.lab is not None
        left = real.lab.images(1)
        assert {data.volume, overlay} <= left
        assert not [each for each in left if spec.mark.assignment_id in each]
        if not pulled:
            other = real.off()
            with pytest.raises(OperationFailedError, match=f"{overlay} rests on"):
                data.attach(other)
            with pytest.raises(OperationFailedError, match=f"{overlay} rests on"):
                data.delete()
    finally:
        real.in_host(1, "rm", "-f", f"{POOL_PATH}/{overlay}")
        virsh(real, "pool-refresh", "default")
    data.delete()


@pytest.mark.qemu
def test_a_saved_state_is_named(real: Grounds) -> None:
    spec, data, other = real.running(), Data(real.source), Data(real.source)
    data.attach(spec)
    virsh(real, "managedsave", spec.mark.vm_id)

    for call in (data.detach, other.attach):
        with pytest.raises(OperationFailedError, match="virsh managedsave-remove"):
            call(spec)

    virsh(real, "managedsave-remove", spec.mark.vm_id)
    assert data.detach(spec)
    other.attach(spec)
    assert real.source.remove(spec)
    data.delete()
    other.delete()
