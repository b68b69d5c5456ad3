"""How a disk is copied, with libvirt's streams in memory."""

from __future__ import annotations

import struct
import threading
import uuid
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import libvirt
import pytest

from hypervisor import Mark, MigrationProgress, MoveSpec, OperationFailedError
from hypervisor.child import cold_moves
from hypervisor.xml import domain as domain_xml

VM = str(uuid.uuid4())
SPEC = MoveSpec(
    vm_id=VM,
    mark=Mark(vm_id=VM, assignment_id="new", generation=2, tenant="a", round=7),
    pool="default",
    volume="b.qcow2",
    seed_volume=None,
    network="default",
)
MIB = 1 << 20
#: Bytes, and lengths of holes.
DISK: tuple[bytes | int, ...] = (b"header" * 1000, 3 * MIB, b"word" * 300_000, 5)


class NoVolumeError(libvirt.libvirtError):
    def __init__(self) -> None:
        Exception.__init__(self, "no volume")

    def get_error_code(self) -> int:
        return int(libvirt.VIR_ERR_NO_STORAGE_VOL)


class Stream:
    """Hands out what a volume has, or takes what it is to have, at most some bytes at once."""

    def __init__(self) -> None:
        self.left: list[bytes | int] = []
        self.took: list[bytes | int] | None = None
        self.aborted = False

    def recvFlags(self, size: int, _: int) -> bytes | int:  # noqa: N802
        if not self.left:
            return b""
        if isinstance(self.left[0], int):
            return -3
        piece, rest = self.left[0][:size], self.left[0][size:]
        self.left[0:1] = [rest] if rest else []
        return piece

    def recvHole(self) -> int:  # noqa: N802
        hole = self.left.pop(0)
        assert isinstance(hole, int)
        return hole

    def send(self, data: bytes) -> int:
        assert self.took is not None
        self.took.append(data[:100_000])
        return len(data[:100_000])

    def sendHole(self, length: int) -> None:  # noqa: N802
        assert self.took is not None
        self.took.append(length)

    def finish(self) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True


class Volume:
    def __init__(self, content: tuple[bytes | int, ...], *, loses: int = 0) -> None:
        self.content = list(content)
        self.written_at = 1.5
        self._loses = loses  #: how often what is read back is not what was sent

    def infoFlags(self, _: int) -> list[int]:  # noqa: N802
        sizes = (each if isinstance(each, int) else len(each) for each in self.content)
        return [0, 1 << 30, sum(sizes)]

    def XMLDesc(self, _: int) -> str:  # noqa: N802
        at = f"<timestamps><mtime>{self.written_at}</mtime></timestamps>"
        return f"<volume><target>{at}</target></volume>"

    def download(self, stream: Stream, *_: int) -> None:
        stream.left = list(self.content)
        if self._loses:
            self._loses -= 1
            stream.left = [b"\0" * self.infoFlags(0)[2]]

    def upload(self, stream: Stream, *_: int) -> None:
        self.content = []
        stream.took = self.content


class Store:
    """A pool with room for one volume."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self.refreshed = 0

    def storageVolLookupByName(self, _: str) -> Volume:  # noqa: N802
        raise NoVolumeError

    def createXML(self, _xml: str, _flags: int) -> Volume:  # noqa: N802
        return self._volume

    def refresh(self, _: int) -> None:
        self.refreshed += 1


class End:
    def __init__(self, store: Store) -> None:
        self.for_move = self
        self.streams: list[Stream] = []
        self._store = store

    def storagePoolLookupByName(self, _: str) -> Store:  # noqa: N802
        return self._store

    def newStream(self, _: int) -> Stream:  # noqa: N802
        self.streams.append(Stream())
        return self.streams[-1]


class MoveHosts:
    def __init__(self, there: Volume) -> None:
        self.source = End(Store(there))
        self.destination = End(Store(there))


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_moves, "_PAUSE_S", 0.0)


def copy(
    there: Volume, *, spec: MoveSpec = SPEC, stop: threading.Event | None = None
) -> tuple[int, list[MigrationProgress], MoveHosts]:
    shown: list[MigrationProgress] = []
    ends: Any = MoveHosts(there)
    copying = cold_moves._DiskCopy(ends, spec, stop or threading.Event(), shown.append)
    here: Any = Volume(DISK)
    return copying.run(here), shown, ends


def test_bytes_arrive_as_bytes_and_holes_as_holes() -> None:
    there = Volume(())

    sent, shown, _ = copy(there)

    flat = [each if isinstance(each, bytes) else b"\0" * each for each in there.content]
    assert b"".join(flat) == b"".join(
        each if isinstance(each, bytes) else b"\0" * each for each in DISK
    )
    assert [each for each in there.content if isinstance(each, int)] == [3 * MIB, 5]
    assert sent == sum(len(each) for each in DISK if isinstance(each, bytes))
    assert (shown[0].disk_remaining_bytes, shown[-1].disk_remaining_bytes) == (
        shown[0].disk_total_bytes,
        0,
    )


def test_a_host_that_is_still_writing_is_read_again() -> None:
    copy(Volume((), loses=2))


def test_a_disk_that_comes_back_different_is_refused() -> None:
    with pytest.raises(OperationFailedError, match=r"b\.qcow2 differs"):
        copy(Volume((), loses=3))


def test_a_copy_that_is_called_off_sends_no_more_and_aborts_its_streams() -> None:
    stop = threading.Event()
    stop.set()
    there = Volume(())
    ends: Any = MoveHosts(there)
    here: Any = Volume(DISK)

    with pytest.raises(OperationFailedError, match="called off"):
        cold_moves._DiskCopy(ends, SPEC, stop, lambda _: None).run(here)

    assert there.content == []
    assert all(each.aborted for end in (ends.source, ends.destination) for each in end.streams)


def test_a_source_that_ends_early_is_refused() -> None:
    class Short(Volume):
        def infoFlags(self, flags: int) -> list[int]:  # noqa: N802
            return [0, 1 << 30, super().infoFlags(flags)[2] + 1]

    ends: Any = MoveHosts(Volume(()))
    here: Any = Short(DISK)

    with pytest.raises(OperationFailedError, match="came"):
        cold_moves._DiskCopy(ends, SPEC, threading.Event(), lambda _: None).run(here)


def test_a_source_that_a_guest_wrote_to_meanwhile_is_refused() -> None:
    """It was started and stopped while its disk was copied: it is off by now, as it was before."""
    ends: Any = MoveHosts(Volume(()))
    here: Any = Volume(DISK)

    def write(_: object) -> None:
        here.written_at = 2.5

    with pytest.raises(OperationFailedError, match="written to while it was copied"):
        cold_moves._DiskCopy(ends, SPEC, threading.Event(), write).run(here)


def test_the_disk_of_a_vm_that_has_arrived_is_not_copied_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another worker took the move over while this one's machine stood still."""

    class Domain:
        def isActive(self) -> bool:  # noqa: N802
            return False

        def XMLDesc(self, _: int) -> str:  # noqa: N802
            element = ET.fromstring("<domain><name>a</name></domain>")
            domain_xml.set_mark(element, SPEC.mark)
            return ET.tostring(element, encoding="unicode")

    class Host(End):
        def lookupByUUIDString(self, _: str) -> Domain:  # noqa: N802
            return Domain()

    arrived = Volume((b"arrived",))
    deleted: list[str] = []
    ends: Any = MoveHosts(arrived)
    ends.source, ends.destination = Host(Store(Volume(DISK))), Host(Store(arrived))
    monkeypatch.setattr(cold_moves.snapshots, "refuse_snapshots", lambda _: None)  # type: ignore[attr-defined]
    monkeypatch.setattr(cold_moves.disks, "root_volume", lambda *_: Volume(DISK))  # type: ignore[attr-defined]
    monkeypatch.setattr(cold_moves.backing_files, "backing_path_at_destination", lambda *_: None)  # type: ignore[attr-defined]
    monkeypatch.setattr(cold_moves.disks, "delete_volume", lambda _, name: deleted.append(name))  # type: ignore[attr-defined]

    with pytest.raises(OperationFailedError, match="already"):
        cold_moves.move_stopped_vm(ends, SPEC, threading.Event(), lambda _: None)

    assert (arrived.content, deleted) == ([b"arrived"], [])


def test_a_bandwidth_is_kept() -> None:
    _, shown, _ = copy(Volume(()), spec=replace(SPEC, bandwidth_mib_s=4))

    # 1.2 MB at 4 MiB a second.
    assert shown[-1].elapsed_ms >= 250


@pytest.mark.parametrize(
    "pieces", [(0, 1000, 1000, 3 * MIB), (1, 30, 7, 500, 600), (20, 3, 1, 488, 1)]
)
def test_an_overlay_rests_on_the_destinations_base_however_it_comes_in_pieces(
    pieces: tuple[int, ...],
) -> None:
    header = struct.pack(">4sIQII", b"QFI\xfb", 3, 100, 4, 9)
    file = (header.ljust(100, b"x") + b"/one").ljust(512, b"\0") + b"rest" * MIB
    cut, begin = [], 0
    for length in pieces:
        cut.append(file[begin : begin + length])
        begin += length

    found = cold_moves._replace_backing_path(
        iter([*filter(None, cut), file[begin:], 7]), "/another"
    )

    wanted = (file[:20].replace(b"\0\0\0\4", b"\0\0\0\x08")).ljust(20)
    arrived = b"".join(each if isinstance(each, bytes) else b"\0" * each for each in found)
    assert arrived[:20] == wanted
    assert arrived[100:112] == b"/another\0\0\0\0"
    assert arrived[512:] == file[512:] + b"\0" * 7


def test_the_hole_in_an_overlays_first_cluster_ends_with_it() -> None:
    header = struct.pack(">4sIQII", b"QFI\xfb", 3, 100, 4, 9)
    begin = header.ljust(100, b"x") + b"/one"

    found = list(cold_moves._replace_backing_path(iter([begin, 3 * MIB, b"end"]), "/another"))

    assert [len(each) if isinstance(each, bytes) else each for each in found] == [
        512,
        3 * MIB - (512 - 104),
        3,
    ]


def test_a_disk_that_is_no_overlay_is_not_rebased() -> None:
    for pieces in ([b"raw" * 1000], [5 * MIB, b"raw"], [b"short"], []):
        with pytest.raises(OperationFailedError, match="qcow2"):
            list(cold_moves._replace_backing_path(iter(pieces), "/another"))
