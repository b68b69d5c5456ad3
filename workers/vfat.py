"""A small vfat volume of a few files, as bytes: the disk of a guest's seed.

FAT12 with long names, laid out in the order of the standard: boot sector, two copies
of the allocation table, root directory, files. Each file lies in consecutive clusters
of one sector. Nothing in it depends on the time, so the same files give the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

_SECTOR: Final = 512
_TABLES: Final = 2
_ENTRY: Final = 32
_MEDIA: Final = 0xF8  #: a fixed disk
_END_OF_FILE: Final = 0xFFF
#: Maximum clusters of FAT12; the number of clusters decides the FAT type.
_MAX_CLUSTERS: Final = 4084
_LONG_NAME_PART: Final = 13  #: characters of a long name in one entry
_VOLUME_LABEL, _ARCHIVE, _LONG_NAME = 0x08, 0x20, 0x0F
_FIRST_DAY: Final = 0x21  #: 1980-01-01, as directories write a date


def vfat_volume(label: str, files: Mapping[str, bytes]) -> bytes:
    """Return a vfat volume with these files.

    Parameters
    ----------
    label : str
        At most 11 ASCII characters; stored in capitals.
    files : mapping of str to bytes
        Content by file name, which may be long; at most 9 files of about 2 MB together.

    Raises
    ------
    ValueError
        If the files do not fit.
    """
    directory = [_directory_entry(label.upper().ljust(11).encode("ascii"), _VOLUME_LABEL, 0, 0)]
    table = [0xF00 | _MEDIA, _END_OF_FILE]
    data = b""
    for number, (name, content) in enumerate(files.items(), start=1):
        clusters = -(-len(content) // _SECTOR)
        first = len(table) if clusters else 0
        table += range(first + 1, first + clusters)
        table += [_END_OF_FILE] * (clusters > 0)
        data += content.ljust(clusters * _SECTOR, b"\0")
        directory += _file_entries(name, number, first, len(content))
    clusters = len(table) - 2
    if clusters > _MAX_CLUSTERS or len(files) > 9:
        raise ValueError(f"{len(files)} files of {len(data)} bytes do not fit on the volume")
    root = _pad_to_sectors(b"".join(directory))
    packed = _pad_to_sectors(_pack_fat(table))
    boot = _boot_sector(
        label.upper(),
        sectors_per_table=len(packed) // _SECTOR,
        root_entries=len(root) // _ENTRY,
        sectors=1 + (_TABLES * len(packed) + len(root)) // _SECTOR + clusters,
    )
    return boot + packed * _TABLES + root + data


def _boot_sector(label: str, *, sectors_per_table: int, root_entries: int, sectors: int) -> bytes:
    """Return the boot sector of a vfat volume."""
    boot = struct.pack(
        "<3s8sHBHBHHBHHHIIBBBI11s8s",
        b"\xeb\x3c\x90",  # jump instruction, required by the format
        b"FUGA    ",
        _SECTOR,
        1,  # sectors in a cluster
        1,  # sectors before the tables
        _TABLES,
        root_entries,
        sectors,
        _MEDIA,
        sectors_per_table,
        32,  # sectors per track and heads: unused, but not zero
        64,
        0,
        0,
        0x80,  # drive number
        0,
        0x29,  # label and type follow
        0,
        label.ljust(11).encode("ascii"),
        b"FAT12   ",
    )
    return boot.ljust(_SECTOR - 2, b"\0") + b"\x55\xaa"


def _pack_fat(table: list[int]) -> bytes:
    """Pack the 12-bit entries of the file allocation table, two in three bytes, little-endian."""
    padded = table + [0] * (len(table) % 2)
    pairs = zip(padded[::2], padded[1::2], strict=True)
    return b"".join((one | other << 12).to_bytes(3, "little") for one, other in pairs)


def _file_entries(name: str, number: int, first: int, size: int) -> list[bytes]:
    """Return a file's directory entries: those of its long name in reverse order, then its own."""
    short = f"FILE~{number}".ljust(11).encode("ascii")
    checksum = 0
    for byte in short:
        checksum = ((checksum >> 1) + ((checksum & 1) << 7) + byte) & 0xFF
    parts = -(-len(name) // _LONG_NAME_PART)
    text = name.encode("utf-16-le")
    if len(name) % _LONG_NAME_PART:
        text = (text + b"\0\0").ljust(parts * _LONG_NAME_PART * 2, b"\xff")
    entries = []
    for part in range(parts, 0, -1):
        piece = text[(part - 1) * _LONG_NAME_PART * 2 : part * _LONG_NAME_PART * 2]
        order = part | (0x40 if part == parts else 0)
        head = struct.pack("<B10sBBB", order, piece[:10], _LONG_NAME, 0, checksum)
        entries.append(head + piece[10:22] + b"\0\0" + piece[22:])
    return [*entries, _directory_entry(short, _ARCHIVE, first, size)]


def _directory_entry(name: bytes, attributes: int, first: int, size: int) -> bytes:
    """Return an entry of the root directory of a vfat volume, of 32 bytes."""
    return struct.pack(
        "<11sBBBHHHHHHHI",
        name,
        attributes,
        0,
        0,
        0,
        _FIRST_DAY,
        _FIRST_DAY,
        0,
        0,
        _FIRST_DAY,
        first,
        size,
    )


def _pad_to_sectors(content: bytes) -> bytes:
    """Return content padded with zeros to whole sectors."""
    return content.ljust(-(-len(content) // _SECTOR) * _SECTOR, b"\0")
