"""Checks of image headers: the virtual size, and files that must never become images.

A qcow2 file may name another file of the host as the rest of its content, and a user who
opens it also reads that one: an image with the backing file ``/etc/shadow`` would show it to its
guests. So an image with external data is refused, and so is an image that
libvirt or QEMU could take for another format (`probe_formats`).

`_AT_HEAD` and `_AT_TAIL` list the signatures of formats that a program may detect in a file.

libvirtd, as root, probes each file of a pool and follows the file names that it
finds there; so do QEMU without an explicit format, and operators' tools. The
loosest probe counts: libvirt needs three bytes for a qcow2 image, QEMU four.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import BinaryIO, Final

from registry.errors import ImageRefusedError
from registry.records.images import ImageFormat

#: Length of the probed head. libvirt probes the first 33,280 bytes.
HEAD_BYTES: Final = 1 << 16
#: Length of the probed tail, as some formats have their signature at the end.
TAIL_BYTES: Final = 512

QCOW2: Final = "a qcow2 (or qcow) image"
_VMDK: Final = "a VMDK image"
_VHD: Final = "a VHD image"
_PARALLELS: Final = "a Parallels (ploop) image"
_ISO: Final = "an ISO 9660 image: a medium of a CD drive, which VMs here do not have"

#: Offset, signature and format.
_AT_HEAD: Final = (
    (0, b"QFI", QCOW2),
    (0, b"OOOM", "a COW image"),
    (0, b"QED", "a QED image"),
    (0, b"KDMV", _VMDK),
    (0, b"COWD", _VMDK),
    (0, b"# Disk DescriptorFile", "a VMDK descriptor"),
    (0, b"vhdxfile", "a VHDX image"),
    (0, b"conectix", _VHD),
    (0x40, b"\x7f\x10\xda\xbe", "a VDI image"),
    (0, b"WithoutFreeSpace", _PARALLELS),
    (0, b"WithouFreSpacExt", _PARALLELS),
    (0, b"Bochs Virtual HD Image", "a Bochs image"),
    (0, b"#!", "a script, or a cloop image"),
    (0, b"LUKS\xba\xbe", "encrypted"),
    (0x8001, b"CD001", _ISO),
    (0x101, b"ustar", "a tar archive"),
    (0, b"\x1f\x8b", "compressed (gzip)"),
    (0, b"BZh", "compressed (bzip2)"),
    (0, b"\xfd7zXZ\0", "compressed (xz)"),
    (0, b"\x28\xb5\x2f\xfd", "compressed (zstd)"),
    (0, b"\x04\x22\x4d\x18", "compressed (lz4)"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"PK\x03\x04", "a zip archive"),
)
_AT_TAIL: Final = ((b"conectix", _VHD), (b"koly", "a DMG image"))
#: A VMDK descriptor as QEMU detects it: comments and empty lines before its version.
_DESCRIPTOR: Final = re.compile(rb"(?:[ \t]*\r?\n|#[^\n]*\n)*[ \t]*version=[0-9]")


def probe_formats(head: bytes, tail: bytes) -> Iterator[str]:
    """Yield the disk formats that programs could detect in a file with this head and tail."""
    for place, magic, what in _AT_HEAD:
        if head[place : place + len(magic)] == magic:
            yield what
    if _DESCRIPTOR.match(head):
        yield "a VMDK descriptor"
    for magic, what in _AT_TAIL:
        if tail.startswith(magic):
            yield what


SECTOR_BYTES: Final = 512
_QCOW2_MAGIC: Final = b"QFI\xfb"
_EXTERNAL_DATA_NAME: Final = 0x44415441
_BITMAPS: Final = 0x23852875
_FULL_DISK_ENCRYPTION: Final = 0x0537BE77
_EXTENDED_L2: Final = 1 << 4
#: Incompatible features of qcow2 that are allowed, as they only concern how content is stored.
_HARMLESS_FEATURES: Final = (1 << 3) | _EXTENDED_L2
_FEATURES: Final[Mapping[int, str]] = MappingProxyType(
    {
        0: "it was not closed in order; `qemu-img check -r all` mends it",
        1: "it is marked as corrupt",
        2: "its content lies in another file; `qemu-img convert` makes one that is whole",
    }
)
_EXTENSIONS: Final[Mapping[int, str]] = MappingProxyType(
    {
        _EXTERNAL_DATA_NAME: _FEATURES[2],
        _FULL_DISK_ENCRYPTION: "it is encrypted",
        _BITMAPS: "it holds dirty bitmaps, which every VM of it would load;"
        " `qemu-img convert` leaves them out",
    }
)
#: The largest tables that QEMU loads into memory before it reads any content.
_MAX_L1_BYTES: Final = 32 << 20
_MAX_REFCOUNT_TABLE_BYTES: Final = 8 << 20
_MAX_REFCOUNT_ORDER: Final = 6


def read_virtual_size(file: BinaryIO, stated: ImageFormat) -> int:
    """Return the virtual size of an image's disk, in bytes.

    Raises
    ------
    ImageRefusedError
        If the file has another format than stated, or refers to other files.
    """
    return _check_image_file(file, stated)[1]


def checked_head(file: BinaryIO, stated: ImageFormat) -> bytes:
    """Return the checked head of an image's file, or raise `ImageRefusedError`."""
    return _check_image_file(file, stated)[0]


def check_image_length(size_bytes: int, stated: ImageFormat) -> None:
    """Raise `ImageRefusedError` if no image of the stated format has this length."""
    if stated == "raw":
        _check_raw_size(size_bytes)


def check_image_start(head: bytes, stated: ImageFormat) -> None:
    """Check the first `HEAD_BYTES` of an image's file, or raise `ImageRefusedError`."""
    _check_format(head, b"", stated)
    if stated == "qcow2":
        _check_qcow2_header(head)


def _check_image_file(file: BinaryIO, stated: ImageFormat) -> tuple[bytes, int]:
    """Check an image's file by its head and tail; return the head and the virtual size in bytes."""
    size_bytes = file.seek(0, os.SEEK_END)
    file.seek(max(0, size_bytes - TAIL_BYTES))
    tail = file.read(TAIL_BYTES)
    file.seek(0)
    head = file.read(HEAD_BYTES)
    _check_format(head, tail, stated)
    return head, _check_qcow2_header(head) if stated == "qcow2" else _check_raw_size(size_bytes)


def _check_format(head: bytes, tail: bytes, stated: ImageFormat) -> None:
    """Raise `ImageRefusedError` if an image's file may be taken for another format than stated."""
    if stated == "qcow2" and not head.startswith(_QCOW2_MAGIC):
        raise ImageRefusedError("it is said to be qcow2, but it does not begin like one")
    for what in probe_formats(head, tail):
        if (stated, what) != ("qcow2", QCOW2):
            raise ImageRefusedError(f"it is said to be {stated}, but it is {what}")


def _check_raw_size(size_bytes: int) -> int:
    """Return the size of a raw disk, or raise `ImageRefusedError` unless it is whole sectors."""
    if size_bytes == 0 or size_bytes % SECTOR_BYTES:
        raise ImageRefusedError(
            f"a raw disk is whole sectors of {SECTOR_BYTES} bytes; this file has {size_bytes}"
        )
    return size_bytes


def _check_qcow2_header(head: bytes) -> int:
    """Check a qcow2 header: no other files, no encryption; return the virtual size in bytes."""
    try:
        version, backing_at, backing_length, cluster_bits, size, encryption = struct.unpack_from(
            ">IQIIQI", head, 4
        )
        l1_entries, refcount_clusters, snapshots = struct.unpack_from(">I16xII", head, 36)
        features, refcount_order, length = (
            (0, 4, 72)
            if version == 2
            else (struct.unpack_from(">Q", head, 72)[0], *struct.unpack_from(">II", head, 96))
        )
    except struct.error:
        raise ImageRefusedError("its header is cut off") from None
    if version not in (2, 3):
        raise ImageRefusedError(f"its qcow2 version is {version}; 2 and 3 are known")
    if backing_at or backing_length:
        raise ImageRefusedError(
            "it rests on a backing file; `qemu-img convert` makes one that is whole"
        )
    if encryption:
        raise ImageRefusedError("it is encrypted")
    for bit in range(64):
        if features >> bit & 1 and not _HARMLESS_FEATURES >> bit & 1:
            raise ImageRefusedError(_FEATURES.get(bit, f"it has the unknown feature {bit}"))
    if not 9 <= cluster_bits <= 21:
        raise ImageRefusedError(f"its clusters have 2^{cluster_bits} bytes; 2^9 to 2^21 are known")
    if not 0 < size < 1 << 62:
        raise ImageRefusedError(f"its disk has {size} bytes")
    if version == 3 and not 104 <= length <= 1 << cluster_bits:
        raise ImageRefusedError(f"its header is said to have {length} bytes")
    if snapshots:
        raise ImageRefusedError(
            f"it holds {snapshots} snapshots, which no VM of it sees;"
            " `qemu-img convert` leaves them out"
        )
    _check_extensions(head, length)
    _check_tables(
        size=size,
        cluster_bits=cluster_bits,
        entry_bytes=16 if features & _EXTENDED_L2 else 8,
        l1_entries=l1_entries,
        refcount_clusters=refcount_clusters,
        refcount_order=refcount_order,
    )
    return int(size)


def _check_extensions(head: bytes, at: int) -> None:
    """Check the extensions of a qcow2 header, of which one may name an external data file."""
    while True:
        try:
            kind, length = struct.unpack_from(">II", head, at)
        except struct.error:
            raise ImageRefusedError("its header has no end") from None
        if kind == 0:
            return
        if kind in _EXTENSIONS:
            raise ImageRefusedError(_EXTENSIONS[kind])
        at += 8 + -(-length // 8) * 8


def _check_tables(
    *,
    size: int,
    cluster_bits: int,
    entry_bytes: int,
    l1_entries: int,
    refcount_clusters: int,
    refcount_order: int,
) -> None:
    """Check that the tables of a qcow2 file fit the disk's size and the limits of QEMU."""
    in_one = (1 << cluster_bits) * ((1 << cluster_bits) // entry_bytes)
    needed = -(-size // in_one)
    if not needed <= l1_entries <= _MAX_L1_BYTES // 8:
        raise ImageRefusedError(
            f"its first table has {l1_entries} entries; a disk of {size} bytes needs {needed},"
            f" and {_MAX_L1_BYTES // 8} are the most"
        )
    if not 0 < refcount_clusters << cluster_bits <= _MAX_REFCOUNT_TABLE_BYTES:
        raise ImageRefusedError(
            f"its table of reference counts has {refcount_clusters << cluster_bits} bytes;"
            f" {_MAX_REFCOUNT_TABLE_BYTES} are the most"
        )
    if refcount_order > _MAX_REFCOUNT_ORDER:
        raise ImageRefusedError(f"its reference counts have 2^{refcount_order} bits; 2^6 at most")
