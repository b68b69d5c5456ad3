"""How files begin that some program would read as more than the bytes of a disk.

libvirtd, as root, looks at how each file of a pool begins and follows the names that it
finds there; so do QEMU, where nobody names a format, and tools of operators. What counts
is the loosest of them: libvirt takes three bytes for a qcow2 image where QEMU wants four.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

#: libvirt looks at the first 33,280 bytes; this is more.
HEAD_BYTES: Final = 1 << 16
#: Some formats end in what they are.
TAIL_BYTES: Final = 512

QCOW2: Final = "a qcow2 (or qcow) image"
_VMDK: Final = "a VMDK image"
_VHD: Final = "a VHD image"
_PARALLELS: Final = "a Parallels (ploop) image"
_ISO: Final = "an ISO 9660 image: a medium of a CD drive, which VMs here do not have"

#: Place from the beginning, bytes, what they are.
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
#: A VMDK descriptor as QEMU knows it: remarks and empty lines before its version.
_DESCRIPTOR: Final = re.compile(rb"(?:[ \t]*\r?\n|#[^\n]*\n)*[ \t]*version=[0-9]")


def taken_for(head: bytes, tail: bytes) -> Iterator[str]:
    """Yield what a file could be taken for that begins and ends like this; none: a raw disk."""
    for place, magic, what in _AT_HEAD:
        if head[place : place + len(magic)] == magic:
            yield what
    if _DESCRIPTOR.match(head):
        yield "a VMDK descriptor"
    for magic, what in _AT_TAIL:
        if tail.startswith(magic):
            yield what
