"""What an image's file says of itself, and which files must never become images.

A qcow2 file may name another file of the host as the rest of its content, and whoever
opens it reads that one too: an image that names ``/etc/shadow`` would show it to its
guests. So an image is whole in itself or it is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from registry.errors import ImageRefusedError
from registry.records import ImageFormat

SECTOR_BYTES: Final = 512
_LOOKED_AT_BYTES: Final = 1 << 16
_QCOW2_MAGIC: Final = b"QFI\xfb"
_EXTERNAL_DATA_NAME: Final = 0x44415441
#: What a reader must understand, by bit: those that only say how the content is stored.
_HARMLESS_FEATURES: Final = (1 << 3) | (1 << 4)
_FEATURES: Final[Mapping[int, str]] = MappingProxyType(
    {
        0: "it was not closed in order; `qemu-img check -r all` mends it",
        1: "it is marked as corrupt",
        2: "its content lies in another file; `qemu-img convert` makes one that is whole",
    }
)

#: How files begin that are no raw disks: place, bytes, what they are.
_OTHERS: Final = (
    (0, _QCOW2_MAGIC, "a qcow2 (or qcow) image"),
    (0, b"KDMV", "a VMDK image"),
    (0, b"COWD", "a VMDK image"),
    (0, b"# Disk DescriptorFile", "a VMDK descriptor"),
    (0, b"vhdxfile", "a VHDX image"),
    (0, b"conectix", "a VHD image"),
    (0, b"QED\0", "a QED image"),
    (0, b"LUKS\xba\xbe", "encrypted"),
    (0x40, b"\x7f\x10\xda\xbe", "a VDI image"),
    (0, b"\x1f\x8b", "compressed (gzip)"),
    (0, b"BZh", "compressed (bzip2)"),
    (0, b"\xfd7zXZ\0", "compressed (xz)"),
    (0, b"\x28\xb5\x2f\xfd", "compressed (zstd)"),
    (0, b"PK\x03\x04", "a zip archive"),
)


def virtual_size_of(path: Path, said: ImageFormat) -> int:
    """Return the size of the disk in an image's file, in bytes.

    Raises
    ------
    ImageRefusedError
        If the file is not of the format that was said, or not whole in itself.
    """
    with path.open("rb") as file:
        head = file.read(_LOOKED_AT_BYTES)
    return _qcow2(head) if said == "qcow2" else _raw(head, path.stat().st_size)


def _raw(head: bytes, size_bytes: int) -> int:
    for place, magic, what in _OTHERS:
        if head[place : place + len(magic)] == magic:
            raise ImageRefusedError(f"it is said to be raw, but it is {what}")
    if size_bytes == 0 or size_bytes % SECTOR_BYTES:
        raise ImageRefusedError(
            f"a raw disk is whole sectors of {SECTOR_BYTES} bytes; this file has {size_bytes}"
        )
    return size_bytes


def _qcow2(head: bytes) -> int:
    if not head.startswith(_QCOW2_MAGIC):
        raise ImageRefusedError("it is said to be qcow2, but it does not begin like one")
    try:
        version, backing_at, backing_length, cluster_bits, size, encryption = struct.unpack_from(
            ">IQIIQI", head, 4
        )
        features, length = (
            (0, 72)
            if version == 2
            else (
                struct.unpack_from(">Q", head, 72)[0],
                struct.unpack_from(">I", head, 100)[0],
            )
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
    _check_extensions(head, length)
    return int(size)


def _check_extensions(head: bytes, at: int) -> None:
    """Walk through the header's extensions: one of them names a file with the content."""
    while True:
        try:
            kind, length = struct.unpack_from(">II", head, at)
        except struct.error:
            raise ImageRefusedError("its header has no end") from None
        if kind == 0:
            return
        if kind == _EXTERNAL_DATA_NAME:
            raise ImageRefusedError(_FEATURES[2])
        at += 8 + -(-length // 8) * 8
