"""A guest writes its console log byte for byte, and libvirtd, which reads it, is root."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hypervisor import DomainSpec, HostConnection, HypervisorError
from lab import cluster
from tests.contract.conftest import Ground
from tests.servers.lab_hosts import LabCluster, start_real
from tests.servers.running import eventually

pytestmark = pytest.mark.qemu

DEADLINE_S = 20.0
#: Within it libvirtd answers many times over, unless something in it blocks.
SHORT_S = 5.0
MAX_BYTES = 65_536  #: of one answer
#: In the host's own eyes; on a real host systemd has one at a path that anybody knows.
FIFO = "/run/libvirt/fifo"

#: Writes what follows to COM1, then sleeps. Real mode, loaded at 0x7c00.
_WRITER = bytes.fromhex(
    "fa 31c0 8ed8 fc"  # cli; ds = 0; forwards
    "be 287c b9 0000"  # si = what follows, cx = its length (filled in)
    "ac 88c4"  # next: al = [si++]; ah = al
    "ba fd03 ec a820 74fb"  # wait until the port takes a byte
    "88e0 ba f803 ee"  # send it
    "e2ed"  # loop next
    "f4 ebfd"  # sleep
)


#: Writes lines 0000, 0001, ... FFFF to COM1, and again, for as long as it runs.
_COUNTER = bytes.fromhex(
    "fa 31c0 8ed8 8ed0 bc007c 31c9"  # cli; ds = ss = 0; a stack; cx = 0
    "89cb be0400"  # line: bx = cx; four digits
    "c1c304 88d8 240f 3c0a 1c69 2f e80d00 4e 75ee"  # digit: the highest of bx; next
    "b00a e80500 41 ebe1"  # the line's end; cx + 1; next line
    "9090 88c4 bafd03 ec a820 74fb 88e0 baf803 ee c3"  # to COM1, once it takes a byte
)


def boot_sector(says: bytes) -> bytes:
    """What a tenant may bring at the beginning of a raw image: it says something on COM1."""
    begin = 0x7C28
    code = bytearray(_WRITER)
    code[7:9] = begin.to_bytes(2, "little")
    code[10:12] = len(says).to_bytes(2, "little")
    return bytes(code).ljust(begin - 0x7C00, b"\x90") + says


def qcow2_header(*, size: int, backing: str | None = None) -> bytes:
    path = (backing or "").encode()
    header = b"QFI\xfb" + (3).to_bytes(4, "big")
    header += (112 if path else 0).to_bytes(8, "big") + len(path).to_bytes(4, "big")
    header += (16).to_bytes(4, "big") + size.to_bytes(8, "big")
    header = header.ljust(100, b"\0") + (104).to_bytes(4, "big")
    return header.ljust(112, b"\0") + path


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LabCluster]:
    """A lab of its own: what an attack leaves of a host is nobody else's."""
    yield start_real(1, tmp_path / "lab")
    cluster.stop_hosts(tmp_path / "lab", purge=True)


@pytest.fixture
def ground(lab: LabCluster) -> Iterator[Ground]:
    host = lab.hosts[0]
    with HostConnection(host.uri, deadline_s=DEADLINE_S) as connection:
        yield Ground("qemu", connection, host.domain_type, host.pool, host.base_volume)


def run_hostile(ground: Ground, code: bytes, tmp_path: Path) -> DomainSpec:
    """Run a VM of a raw image that has this for its boot sector."""
    assert len(code) <= 510
    sector = code.ljust(510, b"\0") + b"\x55\xaa"
    image = tmp_path / f"{uuid.uuid4()}.img"
    image.write_bytes(sector.ljust(1 << 20, b"\0"))
    content = image.read_bytes()
    ground.host.upload(
        pool=ground.pool,
        name=image.name,
        path=str(image),
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        on_progress=lambda _: None,
    )
    spec = ground.spec()
    ground.host.create_overlay(
        pool=ground.pool,
        name=spec.volume,
        base_volume=image.name,
        base_format="raw",
        capacity_gib=1,
    )
    ground.host.define(spec)
    ground.host.start_paused(spec.mark.vm_id)
    ground.host.resume(spec.mark.vm_id)
    return spec


def test_a_guest_that_writes_an_image_on_a_fifo_to_its_console_takes_nothing_with_it(
    ground: Ground, lab: LabCluster, tmp_path: Path
) -> None:
    os.mkfifo(lab.hosts[0].log_dir.parent / "run" / Path(FIFO).name)
    neighbour = ground.spec()
    ground.run(neighbour)
    says = qcow2_header(size=1 << 30, backing=FIFO)
    hostile = run_hostile(ground, boot_sector(says), tmp_path)
    log = lab.serial_log(1, hostile.name)
    eventually(lambda: log.exists() and log.read_bytes() == says)

    for _ in range(3):  # its tenant reads it in a loop, each time by a connection of its own
        with (
            suppress(HypervisorError),
            HostConnection(ground.host.uri, deadline_s=SHORT_S) as reader,
        ):
            reader.console_tail(hostile.mark.vm_id)

    with HostConnection(ground.host.uri, deadline_s=SHORT_S) as other:
        assert other.console_tail(hostile.mark.vm_id).content == says
        eventually(lambda: b"READY" in other.console_tail(neighbour.mark.vm_id).content)
        seen = {domain.uuid: domain for domain in other.report(ground.pool).domains}
        assert set(seen) == {hostile.mark.vm_id, neighbour.mark.vm_id}
        run = seen[neighbour.mark.vm_id].run
        assert run is not None
        other.power_off(neighbour.mark.vm_id, run=run)
        other.start_paused(neighbour.mark.vm_id)
        assert ground.remove(hostile)
        assert not log.exists()


def test_a_guest_that_writes_an_image_of_an_exbibyte_to_its_console_is_read_as_it_is(
    ground: Ground, lab: LabCluster, tmp_path: Path
) -> None:
    says = qcow2_header(size=1 << 60)
    hostile = run_hostile(ground, boot_sector(says), tmp_path)
    log = lab.serial_log(1, hostile.name)
    eventually(lambda: log.exists() and log.read_bytes() == says)

    assert ground.host.console_tail(hostile.mark.vm_id).content == says


def test_a_log_is_read_across_its_rotation(ground: Ground, lab: LabCluster) -> None:
    spec = ground.spec()
    log = lab.serial_log(1, spec.name)
    vm_id = spec.mark.vm_id
    log.write_bytes(b"the first\n")
    seen = ground.host.console_tail(vm_id)
    log.write_bytes(b"the first\nand more\n")
    log.rename(f"{log}.0")
    log.write_bytes(b"after\n")

    assert ground.host.console_tail(vm_id, after=seen.end).content == b"and more\nafter\n"
    assert ground.host.console_tail(vm_id).content == b"the first\nand more\nafter\n"
    assert ground.host.console_tail(vm_id, 8).content == b"e\nafter\n"
    assert ground.host.console_tail(vm_id, after=6).content == b""
    assert ground.host.console_tail(vm_id, after=50).content == b"the first\nand more\nafter\n"


def test_what_logs_are_read_by_is_no_domain_and_goes_with_the_vm(
    ground: Ground, lab: LabCluster
) -> None:
    spec = ground.spec()
    ground.define(spec)
    log = lab.serial_log(1, spec.name)
    for name in ("", ".0", ".1"):
        Path(f"{log}{name}").write_bytes(b"said\n")
    ground.host.console_tail(spec.mark.vm_id)
    definitions = lab.directory / "hosts" / "1" / "etc" / "qemu"
    assert len(list(definitions.glob("fuga-*.xml"))) == 2

    assert [seen.uuid for seen in ground.host.report(ground.pool).domains] == [spec.mark.vm_id]
    assert ground.remove(spec)

    assert not list(definitions.glob("fuga-*.xml"))
    assert not list(log.parent.glob(f"{spec.name}.serial*"))


def test_what_a_guest_writes_without_end_is_bounded_and_followed_without_a_gap(
    ground: Ground, lab: LabCluster, tmp_path: Path
) -> None:
    flooding = run_hostile(ground, _COUNTER, tmp_path)
    log = lab.serial_log(1, flooding.name)
    read, after = b"", 0

    def rotated_twice() -> bool:
        nonlocal read, after
        came = ground.host.console_tail(flooding.mark.vm_id, after=after)
        if len(came.content) == MAX_BYTES:
            read = b""  # it wrote more than one answer holds, and its reader was slow
        read, after = read + came.content, came.end
        return Path(f"{log}.1").exists()

    eventually(rotated_twice, every_s=0.02)

    first = read.index(b"\n") + 1
    numbers = [int(line, 16) for line in read[first:].split(b"\n")[:-1]]
    assert numbers == [(numbers[0] + passed) % 0x10000 for passed in range(len(numbers))]
    kept = sum(path.stat().st_size for path in log.parent.glob(f"{log.name}*"))
    assert kept <= 4 * 262_144
    report = ground.host.report(ground.pool)
    assert 0 < report.largest_console_bytes <= 262_144
    assert ground.remove(flooding)
    assert not list(log.parent.glob(f"{log.name}*"))


def test_guests_outlive_libvirtd_and_what_they_write_is_there_afterwards(
    ground: Ground, lab: LabCluster
) -> None:
    spec = ground.spec()
    ground.run(spec)
    vm_id = spec.mark.vm_id
    eventually(lambda: b"READY" in ground.host.console_tail(vm_id).content)
    before = ground.find(spec)

    lab.fault(1, "restart-daemon")

    with HostConnection(ground.host.uri, deadline_s=DEADLINE_S) as again:
        seen = again.find(vm_id)
        assert seen is not None
        assert seen.state is before.state
        again.open_console(vm_id, force=True)
        again.exchange_console(b"still there\r", wait_s=0.2)
        eventually(lambda: b"HEARD still there" in again.console_tail(vm_id).content)
        again.release_console()
