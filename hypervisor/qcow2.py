"""The header of a qcow2 file, in which the file that it rests on is named by its path."""

from __future__ import annotations

import struct
from typing import Final

#: Magic, version, where the backing file's name is, its length, and the bits of a cluster.
_HEADER: Final = struct.Struct(">4sIQII")
_MAGIC: Final = b"QFI\xfb"
_LONGEST_NAME: Final = 1023
_CLUSTER_BITS: Final = range(9, 22)

HEADER_BYTES: Final = _HEADER.size


def cluster_bytes(head: bytes) -> int:
    """Return how long a file's first cluster is, in which all of its header lies.

    Raises
    ------
    ValueError
        If that is no beginning of a qcow2 file.
    """
    if len(head) < HEADER_BYTES:
        raise ValueError(f"a qcow2 file has more than {len(head)} bytes")
    magic: bytes
    bits: int
    magic, _, _, _, bits = _HEADER.unpack_from(head)
    if magic != _MAGIC or bits not in _CLUSTER_BITS:
        raise ValueError("it is no qcow2 file")
    return 1 << bits


def with_backing(cluster: bytes, path: str) -> bytes:
    """Return a file's first cluster, in which it rests on a file at another path.

    The name is the last thing in the cluster, so it may be longer than the one before.

    Raises
    ------
    ValueError
        If the file rests on nothing, or the path has no room there.
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
