"""What may become an image, and how a file gets into the store."""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from registry import ImageRefusedError, ImageStoreError, ImageTooLargeError
from registry.db import uuid7
from registry.images import ImageStore
from registry.images.header import read_virtual_size
from registry.records.images import ImageFormat
from tests.servers.small_disks import memory_disk

GIB = 1 << 30


def qcow2(
    *,
    version: int = 3,
    backing_at: int = 0,
    backing_length: int = 0,
    cluster_bits: int = 16,
    size: int = 10 * GIB,
    encryption: int = 0,
    l1_entries: int = 20,
    refcount_clusters: int = 1,
    snapshots: int = 0,
    features: int = 0,
    refcount_order: int = 4,
    length: int = 104,
    extensions: bytes = b"\0" * 8,
) -> bytes:
    """The beginning of a qcow2 file."""
    head = b"QFI\xfb" + struct.pack(
        ">IQIIQI", version, backing_at, backing_length, cluster_bits, size, encryption
    )
    head += struct.pack(
        ">IQQIIQ", l1_entries, 3 << 16, 1 << 16, refcount_clusters, snapshots, 4 << 16
    )
    if version >= 3:
        head += struct.pack(">QQQII", features, 0, 0, refcount_order, length)
    return head + extensions


def size_of(path: Path, said: ImageFormat) -> int:
    with path.open("rb") as file:
        return read_virtual_size(file, said)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "image"


@pytest.mark.parametrize("version", [2, 3])
def test_a_whole_qcow2_file_tells_the_size_of_its_disk(file: Path, version: int) -> None:
    file.write_bytes(qcow2(version=version))

    assert size_of(file, "qcow2") == 10 * GIB


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (qcow2(backing_at=120, backing_length=11), "backing file"),
        (qcow2(version=2, backing_at=120, backing_length=11), "backing file"),
        (qcow2(backing_length=11), "backing file"),
        (qcow2(features=1 << 2), "lies in another file"),
        (qcow2(extensions=struct.pack(">II", 0x44415441, 8) + b"/etc/abc"), "in another file"),
        (
            qcow2(extensions=struct.pack(">II", 1, 3) + b"abc".ljust(8) + b"DATA" + b"\0" * 8),
            "in another file",
        ),
        (qcow2(extensions=struct.pack(">II", 1, 1 << 30)), "no end"),
        (qcow2(features=1), "not closed in order"),
        (qcow2(features=2), "corrupt"),
        (qcow2(features=1 << 40), "unknown feature 40"),
        (qcow2(encryption=2), "encrypted"),
        (qcow2(version=4), "version is 4"),
        (qcow2(cluster_bits=63), "clusters"),
        (qcow2(size=0), "0 bytes"),
        (qcow2(size=1 << 61), "first table has 20 entries"),
        (qcow2(l1_entries=19), "needs 20"),
        (qcow2(l1_entries=1 << 31), "4194304 are the most"),
        (qcow2(features=1 << 4, l1_entries=20), "needs 40"),
        (qcow2(refcount_clusters=0), "reference counts has 0 bytes"),
        (qcow2(refcount_clusters=129), "8388608 are the most"),
        (qcow2(refcount_order=7), r"2\^7 bits"),
        (qcow2(snapshots=3), "3 snapshots"),
        (qcow2(length=0), "said to have 0 bytes"),
        (qcow2(length=1 << 31), "said to have 2147483648 bytes"),
        (qcow2(extensions=struct.pack(">II", 0x23852875, 24) + b"\0" * 24), "bitmaps"),
        (qcow2(extensions=struct.pack(">II", 0x0537BE77, 16) + b"\0" * 16), "encrypted"),
        (qcow2().ljust(0x8001, b"\0") + b"CD001", "ISO 9660"),
        (qcow2()[:90], "cut off"),
        (b"QFI\xfb", "cut off"),
        (b"", "does not begin like one"),
        (b"MZ" * 512, "does not begin like one"),
    ],
)
def test_a_file_that_is_not_whole_in_itself_is_refused(
    file: Path, head: bytes, reason: str
) -> None:
    file.write_bytes(head)

    with pytest.raises(ImageRefusedError, match=reason):
        size_of(file, "qcow2")


def test_features_that_only_say_how_content_is_stored_are_taken(file: Path) -> None:
    file.write_bytes(qcow2(features=(1 << 3) | (1 << 4), l1_entries=40))

    assert size_of(file, "qcow2") == 10 * GIB


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (qcow2().ljust(1024, b"\0"), "it is a qcow2"),
        (b"KDMV".ljust(512, b"\0"), "VMDK"),
        (b"\x1f\x8b".ljust(512, b"\0"), "gzip"),
        (b"\0" * 0x40 + b"\x7f\x10\xda\xbe".ljust(448, b"\0"), "VDI"),
        # libvirt, as root, follows the names in these, and takes the loosest beginning for one.
        (b"OOOM\0\0\0\2/run/a-fifo".ljust(1536, b"\0"), "a COW image"),
        (b"QFIX\0\0\0\2".ljust(512, b"\0"), "a qcow2"),
        (b"QFI\xfb\0\0\0\1".ljust(512, b"\0"), "a qcow2"),
        (b"QEDX".ljust(512, b"\0"), "a QED"),
        (b"KDMV\1\0\0\0".ljust(512, b"\0"), "VMDK"),
        (b"COWD".ljust(512, b"\0"), "VMDK"),
        (b"# Disk DescriptorFile\nversion=1\n".ljust(512, b"\0"), "VMDK descriptor"),
        (b"# a remark\n\nversion=1\n".ljust(512, b"\0"), "VMDK descriptor"),
        (b"vhdxfile".ljust(512, b"\0"), "VHDX"),
        (b"conectix".ljust(512, b"\0"), "VHD"),
        (b"\0" * 512 + b"conectix".ljust(512, b"\0"), "VHD"),
        (b"\0" * 512 + b"koly".ljust(512, b"\0"), "DMG"),
        (b"WithoutFreeSpace".ljust(512, b"\0"), "ploop"),
        (b"WithouFreSpacExt".ljust(512, b"\0"), "ploop"),
        (b"Bochs Virtual HD Image".ljust(512, b"\0"), "Bochs"),
        (b"#!/bin/sh\n#V2.0 Format\n".ljust(512, b"\0"), "cloop"),
        (b"LUKS\xba\xbe\0\1".ljust(512, b"\0"), "encrypted"),
        ((b"\0" * 0x8001 + b"CD001").ljust(0x8200, b"\0"), "a medium of a CD drive"),
        ((b"\0" * 0x101 + b"ustar").ljust(512, b"\0"), "tar"),
        (b"", "0$"),
        (b"\0" * 513, "513"),
    ],
)
def test_what_is_no_raw_disk_is_refused_as_one(file: Path, content: bytes, reason: str) -> None:
    file.write_bytes(content)

    with pytest.raises(ImageRefusedError, match=reason):
        size_of(file, "raw")


def test_a_raw_disk_is_as_large_as_its_file(file: Path) -> None:
    file.write_bytes(b"\0" * 1024)

    assert size_of(file, "raw") == 1024


@pytest.mark.parametrize("table", ["mbr", "gpt", "none"])
def test_a_raw_disk_may_have_partitions(file: Path, table: str) -> None:
    disk = bytearray(1 << 16)
    if table != "none":
        disk[446:462] = bytes([0x80, 0, 2, 0, 0x83 if table == "mbr" else 0xEE, 0, 0, 0])[:8] + (
            struct.pack("<II", 1, 127)
        )
        disk[510:512] = b"\x55\xaa"
    if table == "gpt":
        disk[512:520] = b"EFI PART"
    disk[0x438:0x43A] = b"\x53\xef"  # and a file system of ext4 besides
    file.write_bytes(disk)

    assert size_of(file, "raw") == 1 << 16


@pytest.mark.qemu
def test_what_qemu_makes_is_judged_rightly(tmp_path: Path) -> None:
    def make(name: str, *options: str, size: str = "64M") -> Path:
        path = tmp_path / name
        command = ["qemu-img", "create", "-q", "-f", "qcow2", *options, str(path), size]
        subprocess.run(command, check=True, cwd=tmp_path)
        return path

    whole = make("whole.qcow2")
    old = make("old.qcow2", "-o", "compat=0.10")
    resting = make("resting.qcow2", "-b", "whole.qcow2", "-F", "qcow2")
    apart = make("apart.qcow2", "-o", "data_file=content.raw")

    assert size_of(whole, "qcow2") == size_of(old, "qcow2") == 64 << 20
    for path, reason in ((resting, "backing file"), (apart, "another file")):
        with pytest.raises(ImageRefusedError, match=reason):
            size_of(path, "qcow2")


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store", max_bytes=4096)


def receive(store: ImageStore, content: bytes, sha256: str | None = None) -> None:
    with store.receive(uuid7(), "raw") as incoming:
        for start in range(0, len(content), 512):
            incoming.write(content[start : start + 512])
        incoming.store(sha256)


def files(store: ImageStore) -> list[Path]:
    folder = store.path(uuid7(), "raw").parent
    return sorted(folder.iterdir()) if folder.exists() else []


def test_a_file_that_is_kept_is_there_whole(store: ImageStore) -> None:
    key, content = uuid7(), os.urandom(1024)
    sha256 = hashlib.sha256(content).hexdigest()

    with store.receive(key, "raw") as incoming:
        incoming.write(content[:1000])
        incoming.write(content[1000:])
        stored = incoming.store(sha256)

    assert (stored.sha256, stored.size_bytes, stored.virtual_size_bytes) == (sha256, 1024, 1024)
    assert files(store) == [store.path(key, "raw")]
    assert store.path(key, "raw").read_bytes() == content
    store.discard(key, "raw")
    store.discard(key, "raw")
    assert files(store) == []


def test_what_is_not_kept_leaves_nothing(store: ImageStore) -> None:
    with store.receive(uuid7(), "raw") as incoming:
        incoming.write(b"\0" * 512)
    with pytest.raises(ImageRefusedError, match=r"SHA-256.*expected was 00"):
        receive(store, b"\0" * 512, "0" * 64)
    with pytest.raises(ImageTooLargeError, match="4096"):
        receive(store, b"\0" * 4608)

    assert files(store) == []


@pytest.mark.parametrize("piece_bytes", [1000, 1 << 16, 1 << 20])
def test_zeros_take_no_place(tmp_path: Path, piece_bytes: int) -> None:
    store = ImageStore(tmp_path / "store", max_bytes=1 << 30)
    content = b"".join(
        [bytes(100_000), os.urandom(70_000), bytes(8 << 20), b"x", bytes(300_000), b"y" * 512]
    )
    content += bytes(-len(content) % 512 + (4 << 20))
    key = uuid7()

    with store.receive(key, "raw") as incoming:
        for start in range(0, len(content), piece_bytes):
            incoming.write(content[start : start + piece_bytes])
        incoming.store(hashlib.sha256(content).hexdigest())

    assert store.path(key, "raw").read_bytes() == content
    if piece_bytes >= 1 << 16:
        assert store.path(key, "raw").stat().st_blocks * 512 <= 6 << 16


def test_pieces_end_where_the_margin_of_the_disk_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ImageStore(tmp_path / "store", max_bytes=1 << 30, margin_bytes=4096)
    key, free = uuid7(), iter([3, 2, 1])
    monkeypatch.setattr(
        os, "fstatvfs", lambda _: SimpleNamespace(f_bavail=next(free), f_frsize=4096)
    )

    with store.receive(key, "raw") as incoming:
        incoming.write(b"x" * 4096)
        incoming.write(b"x" * 4096)
        with pytest.raises(ImageStoreError, match=r"0\.00 GiB are free .*FUGA_IMAGE_MARGIN_GIB"):
            incoming.write(b"x" * 4096)

    assert (incoming.size_bytes, files(store)) == (8192, [])


def test_a_disk_that_is_full_is_said_and_nothing_stays(tmp_path: Path) -> None:
    with memory_disk(tmp_path / "disk", mib=1) as disk:
        store = ImageStore(disk.path / "store", max_bytes=1 << 30)
        for content in (os.urandom(2 << 20), os.urandom(512)):
            with pytest.raises(ImageStoreError, match="free on its disk"):
                receive_whole(store, content)
            disk.fill()
        assert files(store) == []
        disk.free()
        receive_whole(store, os.urandom(512))
        assert len(files(store)) == 1


def receive_whole(store: ImageStore, content: bytes) -> None:
    with store.receive(uuid7(), "raw") as incoming:
        incoming.write(content)
        incoming.store(None)


def test_what_a_killed_process_left_is_cleared_away_after_a_while(store: ImageStore) -> None:
    folder = store.path(uuid7(), "raw").parent
    folder.mkdir()
    old, fresh = folder / "old.raw.1.part", folder / "fresh.raw.1.part"
    for part in (old, fresh):
        part.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)

    with store.receive(uuid7(), "raw"):
        pass

    assert files(store) == [fresh]


def test_a_file_that_gets_nothing_but_zeros_for_an_hour_stays_its_writers(
    store: ImageStore,
) -> None:
    image_id = uuid7()
    with store.receive(image_id, "raw") as incoming:
        incoming.write(b"begins".ljust(1024, b"\0"))
        [part] = files(store)
        os.utime(part, (time.time() - 7200,) * 2)  # holes are not written

        receive_whole(store, bytes(512))
        incoming.store(None)

    assert store.path(image_id, "raw").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = ImageStore(tmp_path / "file" / "store", max_bytes=1)

    with pytest.raises(ImageStoreError, match="Not a directory"), store.receive(uuid7(), "raw"):
        pass
