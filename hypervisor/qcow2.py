"""The header of a qcow2 file, which names its backing file."""

from __future__ import annotations

import struct
from typing import Final

#: Magic, version, offset and length of the backing file's name, and cluster bits.
_HEADER: Final = struct.Struct(">4sIQII")
_MAGIC: Final = b"QFI\xfb"
_LONGEST_NAME: Final = 1023
_CLUSTER_BITS: Final = range(9, 22)

HEADER_BYTES: Final = _HEADER.size


def cluster_bytes(head: bytes) -> int:
    """Return the cluster size of a qcow2 file in bytes; the first cluster holds the header.

    Raises
    ------
    ValueError
        If the bytes are not the beginning of a qcow2 file.
    """
    if len(head) < HEADER_BYTES:
        raise ValueError(f"a qcow2 file has more than {len(head)} bytes")
    magic: bytes
    bits: int
    magic, _, _, _, bits = _HEADER.unpack_from(head)
    if magic != _MAGIC or bits not in _CLUSTER_BITS:
        raise ValueError("it is no qcow2 file")
    return 1 << bits


def replace_backing_path(cluster: bytes, path: str) -> bytes:
    """Replace the backing path in a qcow2 file's first cluster, and return the cluster.

    The name is the last item in the cluster, so it may be longer than before.

    Raises
    ------
    ValueError
        If the file has no backing file, or the path is too long.
    """
    cluster_bytes(cluster)
    magic, version, begin, length, bits = _HEADER.unpack_from(cluster)
    name = path.encode()
    if not begin or not length or begin + length > len(cluster):
        raise ValueError("it names no backing file in its first cluster")
    end = begin + max(length, len(name))
    if len(name) > _LONGEST_NAME or end > len(cluster) or any(cluster[begin + length : end]):
        raise ValueError(f"its header has no room for the path {path}")
    header = _HEADER.pack(magic, version, begin, len(name), bits)
    between = cluster[HEADER_BYTES:begin]
    return header + between + name.ljust(end - begin, b"\0") + cluster[end:]
