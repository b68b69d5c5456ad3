"""What a real libvirtd makes of files in its pools, beside what we let become images."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hypervisor import HostConnection
from registry import ImageRefusedError
from registry.images.header import read_virtual_size
from tests.contract.conftest import DEADLINE_S
from tests.servers.lab_hosts import LabCluster
from tests.servers.running import eventually

pytestmark = [pytest.mark.qemu]

NAME = "fuga-image-probe.raw"
BACKING = b"not-there"


def qcow(magic: bytes, version: int) -> bytes:
    """As loosely as libvirt takes it: its name follows at once."""
    head = magic + struct.pack(">IQIIQ", version, 512, len(BACKING), 16, 1 << 20)
    return head.ljust(512, b"\0") + BACKING


def qed(magic: bytes) -> bytes:
    head = magic + struct.pack("<IIIQQQQQII", 65536, 4, 1, 5, 0, 0, 65536, 1 << 20, 512, 9)
    return head.ljust(512, b"\0") + BACKING


def cow(backing: bytes = BACKING) -> bytes:
    return b"OOOM" + struct.pack(">I1024sIQI", 2, backing, 0, 1 << 20, 512)


VMDK = (b"KDMV" + struct.pack("<I", 1)).ljust(512, b"\0") + b'parentFileNameHint="not-there"\n'
PARTITIONS = bytes(510) + b"\x55\xaa" + b"EFI PART"
FILES = {
    "cow": cow(),
    "qcow": qcow(b"QFI\xfb", 1),
    "qcow2": qcow(b"QFI\xfb", 3),
    "qcow2 but for a byte": qcow(b"QFIX", 2),
    "qed": qed(b"QED\0"),
    "qed but for a byte": qed(b"QEDX"),
    "vmdk": VMDK,
    "vdi": bytes(64) + b"\x7f\x10\xda\xbe" + struct.pack("<I", 0x00010001),
    "vpc": b"conectix" + struct.pack(">II", 2, 0x10000),
    "ploop": b"WithouFreSpacExt",
    "iso": bytes(32769) + b"CD001",
    "partitions": PARTITIONS,
    "zeros": b"",
}
RAW = {"partitions", "zeros"}


@pytest.fixture
def lab(lab_cluster: Callable[[int], LabCluster]) -> LabCluster:
    return lab_cluster(1)


@pytest.fixture
def folder(lab: LabCluster) -> Iterator[Path]:
    """The folder of the host's pool, and afterwards no more of it than before."""
    folder = lab.hosts[0].images_dir
    assert folder is not None
    before = set(folder.iterdir())
    yield folder
    for path in set(folder.iterdir()) - before:
        path.unlink()
    virsh(lab, "pool-refresh", lab.hosts[0].pool)


def virsh(lab: LabCluster, *words: str) -> str:
    command = ["virsh", "-q", "-c", lab.hosts[0].uri, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    return done.stdout


def accepted(content: bytes) -> bool:
    try:
        read_virtual_size(io.BytesIO(content), "raw")
    except ImageRefusedError:
        return False
    return True


def test_what_libvirtd_takes_for_another_format_is_no_raw_image(
    lab: LabCluster, folder: Path
) -> None:
    taken, followed = {}, set()
    for what, begins in FILES.items():
        content = begins.ljust(65536, b"\0")
        (folder / NAME).write_bytes(content)
        virsh(lab, "pool-refresh", lab.hosts[0].pool)
        volume = ET.fromstring(virsh(lab, "vol-dumpxml", NAME, lab.hosts[0].pool))
        taken[what] = (volume.find("target/format").get("type"), accepted(content))  # type: ignore[union-attr]
        if volume.find("backingStore/path") is not None:
            followed.add(what)

    assert {what for what, (kind, ours) in taken.items() if ours} == RAW
    assert {what for what, (kind, ours) in taken.items() if kind == "raw"} >= RAW
    # The attacks are real here: libvirt took the name in each of these.
    assert followed >= {"cow", "qcow2 but for a byte", "qed but for a byte"}


def test_an_image_with_the_magic_of_cow_takes_a_host_and_never_becomes_one(
    lab: LabCluster, folder: Path
) -> None:
    content = cow(b"a-fifo").ljust(65536, b"\0")
    fifo = folder / "a-fifo"
    os.mkfifo(fifo)
    (folder / NAME).write_bytes(content)
    host = lab.hosts[0]
    with HostConnection(host.uri, deadline_s=DEADLINE_S) as connection:
        try:
            # It opens the FIFO, where nobody ever writes.
            eventually(lambda: connection.report(host.pool).pool_silent_s is not None)
        finally:
            (folder / NAME).unlink()
            eventually(lambda: let_go(fifo))
        eventually(lambda: connection.report(host.pool).pool_silent_s is None)

    assert not accepted(content)


def let_go(fifo: Path) -> bool:
    """Let whoever waits for a writer have one; True: nobody waits any more."""
    with contextlib.suppress(OSError):
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        return False
    return True
