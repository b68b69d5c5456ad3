"""What an image's file says of itself, and which files must never become images.

A qcow2 file may name another file of the host as the rest of its content, and whoever
opens it reads that one too: an image that names ``/etc/shadow`` would show it to its
guests. So an image is whole in itself or it is refused, and it is what it is said to be
and nothing else: what libvirt or QEMU would take it for is looked up in `image_probes`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import BinaryIO, Final

from registry.errors import ImageRefusedError
from registry.images.probes import HEAD_BYTES, QCOW2, TAIL_BYTES, taken_for
from registry.records.images import ImageFormat

SECTOR_BYTES: Final = 512
_QCOW2_MAGIC: Final = b"QFI\xfb"
_EXTERNAL_DATA_NAME: Final = 0x44415441
_BITMAPS: Final = 0x23852875
_FULL_DISK_ENCRYPTION: Final = 0x0537BE77
_EXTENDED_L2: Final = 1 << 4
#: What a reader must understand, by bit: those that only say how the content is stored.
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
#: What QEMU reads into memory before it looks at any content, at most.
_MAX_L1_BYTES: Final = 32 << 20
_MAX_REFCOUNT_TABLE_BYTES: Final = 8 << 20
_MAX_REFCOUNT_ORDER: Final = 6


def virtual_size_of(file: BinaryIO, said: ImageFormat) -> int:
    """Return the size of the disk in an image's file, in bytes.

    Raises
    ------
    ImageRefusedError
        If the file is not of the format that was said, or not whole in itself.
    """
    return _judged(file, said)[1]


def judged_head(file: BinaryIO, said: ImageFormat) -> bytes:
    """Return how an image's file begins: the very bytes that were judged. Raises the same."""
    return _judged(file, said)[0]


def check_length(size_bytes: int, said: ImageFormat) -> None:
    """Judge a file by its length alone. Raises `ImageRefusedError`."""
    if said == "raw":
        _raw(size_bytes)


def check_start(head: bytes, said: ImageFormat) -> None:
    """Judge a file by its first `HEAD_BYTES`. Raises `ImageRefusedError`."""
    _check_format(head, b"", said)
    if said == "qcow2":
        _qcow2(head)


def _judged(file: BinaryIO, said: ImageFormat) -> tuple[bytes, int]:
    size_bytes = file.seek(0, os.SEEK_END)
    file.seek(max(0, size_bytes - TAIL_BYTES))
    tail = file.read(TAIL_BYTES)
    file.seek(0)
    head = file.read(HEAD_BYTES)
    _check_format(head, tail, said)
    return head, _qcow2(head) if said == "qcow2" else _raw(size_bytes)


def _check_format(head: bytes, tail: bytes, said: ImageFormat) -> None:
    if said == "qcow2" and not head.startswith(_QCOW2_MAGIC):
        raise ImageRefusedError("it is said to be qcow2, but it does not begin like one")
    for what in taken_for(head, tail):
        if (said, what) != ("qcow2", QCOW2):
            raise ImageRefusedError(f"it is said to be {said}, but it is {what}")


def _raw(size_bytes: int) -> int:
    if size_bytes == 0 or size_bytes % SECTOR_BYTES:
        raise ImageRefusedError(
            f"a raw disk is whole sectors of {SECTOR_BYTES} bytes; this file has {size_bytes}"
        )
    return size_bytes


def _qcow2(head: bytes) -> int:
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
    """Walk through the header's extensions: one of them names a file with the content."""
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
    """Check that its tables are what a disk of that size needs, and not beyond what QEMU loads."""
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
