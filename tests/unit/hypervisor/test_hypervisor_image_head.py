"""The names of files that stand in the first bytes of disk images."""

from __future__ import annotations

import struct

import pytest

from hypervisor.image_head import HEAD_BYTES, PEEK_BYTES, may_name_files, named_files

DATA_FILE = 0x44415441
EXTENT = 'RW 2048 FLAT "disk.raw" 0'


def qcow2(*extensions: tuple[int, bytes], features: int = 4, version: int = 3) -> bytes:
    """Return a header with extensions; feature bit 2 says that there is a data file."""
    head = struct.pack(">4sI64xQ20xI", b"QFI\xfb", version, features, 104)
    for kind, content in extensions:
        padded = content + b"\0" * (-len(content) % 8)
        head += struct.pack(">II", kind, len(content)) + padded
    return head.ljust(PEEK_BYTES, b"\0")


def vmdk(*lines: str, before: bytes = b"# Disk DescriptorFile\n") -> bytes:
    text = "\n".join(("version=1", "CID=fffffffe", 'createType="monolithicFlat"', *lines))
    return before + text.encode()


@pytest.mark.parametrize(
    ("head", "names"),
    [
        (qcow2((DATA_FILE, b"/a/disk.raw")), ("/a/disk.raw",)),
        (qcow2((0xE2792ACA, b"raw"), (0x6803F857, b"x" * 48), (DATA_FILE, b"d")), ("d",)),
        (qcow2((0, b""), (DATA_FILE, b"d")), ()),
        (qcow2((DATA_FILE, b"d"), features=0), ()),
        (qcow2((DATA_FILE, b"d"), version=2), ()),
        (qcow2((DATA_FILE, b"d"))[:104], ()),
        (vmdk(EXTENT), ("disk.raw",)),
        (vmdk(' RW  5\tSPARSE  "/a/x y.vmdk"', "ddb.x = 1", EXTENT), ("/a/x y.vmdk", "disk.raw")),
        (vmdk('RW 5 VMFS "a"', 'RDONLY 5 FLAT "b"', before=b"\n"), ("a", "b")),
        (vmdk('parentFileNameHint="base.vmdk"'), ("base.vmdk",)),
        (vmdk(EXTENT, before=b"KDMV".ljust(512, b"\0")), ("disk.raw",)),
        (vmdk(*(f'RW 1 FLAT "{n}"' for n in range(2000))), tuple(map(str, range(512)))),
        (b"# a list of disks\n" + EXTENT.encode(), ()),
        (b"\0" * PEEK_BYTES, ()),
        (b"", ()),
    ],
)
def test_data_files_extents_and_parents_are_found(head: bytes, names: tuple[str, ...]) -> None:
    found = named_files(head[:HEAD_BYTES]) if may_name_files(head[:PEEK_BYTES]) else ()

    assert found == names


@pytest.mark.parametrize(
    "peek", [b"\0" * PEEK_BYTES, b"\xebc\x90\0".ljust(PEEK_BYTES, b"x"), qcow2(features=0), b""]
)
def test_of_most_images_no_more_than_a_sector_is_read(peek: bytes) -> None:
    assert not may_name_files(peek)
