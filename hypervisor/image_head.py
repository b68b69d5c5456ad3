"""Files that the first bytes of a disk image name, and that libvirt's volume XML leaves out.

These are the external data file of a qcow2 image, and the extents and the parent of a VMDK
descriptor. libvirt takes a descriptor for a raw file. A qcow2 image's backing file is in the XML.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Final

#: Bytes that show whether the head has to be read.
PEEK_BYTES: Final = 512
#: Bytes that hold a qcow2 header with its extensions, or a descriptor of hundreds of extents.
HEAD_BYTES: Final = 1 << 16
#: Maximum of names: each costs a look.
_MAX_NAMES: Final = 512

_QCOW2: Final = b"QFI\xfb"
_VMDK: Final = (b"KDMV", b"COWD")
#: Version, incompatible features and header length of a qcow2 header, by their offsets.
_VERSION: Final = (4, ">I")
_FEATURES: Final = (72, ">Q")
_LENGTH: Final = (100, ">I")
_HAS_DATA_FILE: Final = 1 << 2
_DATA_FILE: Final = 0x44415441
_EXTENSION: Final = struct.Struct(">II")

#: QEMU requires this word of each descriptor.
_DESCRIPTOR: Final = b'createType="'
#: Access, sectors, type and name of an extent, or the name of the parent.
_NAMES: Final = re.compile(
    rb'^[ \t]*(?:\S+[ \t]+\d+[ \t]+\S+[ \t]+|parentFileNameHint[ \t]*=[ \t]*)"([^"\r\n]+)"',
    re.MULTILINE,
)


def may_name_files(peek: bytes) -> bool:
    """Return whether the head of an image has to be read, given its first `PEEK_BYTES`."""
    if peek.startswith(_QCOW2):
        return _has_data_file(peek)
    return bool(peek) and (peek.startswith(_VMDK) or b"\0" not in peek or _DESCRIPTOR in peek)


def named_files(head: bytes) -> tuple[str, ...]:
    """Return the names that the first `HEAD_BYTES` of an image refer to, as written there."""
    if head.startswith(_QCOW2):
        found = _data_files(head) if _has_data_file(head) else iter(())
    elif _DESCRIPTOR in head:
        found = (each[1] for each in _NAMES.finditer(head))
    else:
        return ()
    names = (name.decode(errors="surrogateescape") for name in found)
    return tuple(dict.fromkeys(islice(names, _MAX_NAMES)))


def _has_data_file(head: bytes) -> bool:
    return _number(head, _VERSION) >= 3 and bool(_number(head, _FEATURES) & _HAS_DATA_FILE)


def _data_files(head: bytes) -> Iterator[bytes]:
    at = _number(head, _LENGTH)
    while at + _EXTENSION.size <= len(head):
        kind, length = _EXTENSION.unpack_from(head, at)
        at += _EXTENSION.size
        if kind == 0:
            return
        if kind == _DATA_FILE:
            yield head[at : at + length].rstrip(b"\0")
        at += length + -length % 8


def _number(head: bytes, place: tuple[int, str]) -> int:
    """Return a number of a header; 0 if the header ends before it."""
    offset, form = place
    if len(head) < offset + struct.calcsize(form):
        return 0
    return int(struct.unpack_from(form, head, offset)[0])
