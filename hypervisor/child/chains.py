"""The files that disks are and rest on, as libvirt knows them. In the child process only."""

from __future__ import annotations

import contextlib
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import cast

import libvirt

from hypervisor.xml import backing_names
from hypervisor.xml import disks as disk_xml


def name_of(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]


def top_of(disk: ET.Element) -> str | None:
    """Return the file, or the volume, that is a disk; None: it is neither."""
    source = disk.find("source")
    return None if source is None else source.get("file") or source.get("volume")


def chain_of(conn: libvirt.virConnect, disk: ET.Element, pool: str | None = None) -> list[str]:
    """Return the files of a disk from the one that is written to: as defined, and as they say.

    With a ``pool``, a file that is in no pool rests on what the one of its name there rests on.
    """
    path = path_in_pool(conn, disk.find("source")) or top_of(disk)
    chain = [] if path is None else [path]
    defined = [each.get("file", "") for each in disk.iterfind("backingStore//source")]
    chain = list(
        dict.fromkeys(backing_names.normalized_path(each) for each in (*chain, *defined) if each)
    )
    following = chain[-1:]
    while following:
        below = [each for path in following for each in _backing_files_at(conn, path, pool)]
        following = [each for each in dict.fromkeys(below) if each not in chain]
        chain += following
    return chain


def other_sources_of(disk: ET.Element) -> Iterator[str]:
    """Yield what a disk names besides files that it rests on: exports, and targets of copies."""
    for source in disk.iter("source"):
        for name in (source.get("name"), source.get("dev")):
            if name:
                yield from backing_names.files_in(name, "")
    for source in disk.iterfind("mirror//source"):
        yield source.get("file", "")


def backing_files_of(volume: libvirt.virStorageVol) -> tuple[str, ...]:
    """Return the paths of the files that a volume's header names; a volume that is gone: none."""
    try:
        found = disk_xml.backing_of(volume.XMLDesc(0))
        return () if found is None else backing_names.files_in(found[0], volume.path())
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_VOL:
            raise
        return ()


def with_backing_files(paths: Iterable[str], below: Mapping[str, Collection[str]]) -> set[str]:
    """Return paths and all that these rest on."""
    found: set[str] = set()
    left = list(paths)
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += below.get(path, ())
    return found


def path_in_pool(conn: libvirt.virConnect, source: ET.Element | None) -> str | None:
    """Return the path of a disk that names a pool and a volume; None: neither, or gone."""
    if source is None or not source.get("pool") or not source.get("volume"):
        return None
    with _ignore_missing(conn):
        pool = conn.storagePoolLookupByName(source.get("pool", ""))
        with contextlib.suppress(libvirt.libvirtError):  # busy with another volume
            pool.refresh(0)
        return cast("str", pool.storageVolLookupByName(source.get("volume", "")).path())
    return None


def volume_at(conn: libvirt.virConnect, path: str) -> libvirt.virStorageVol | None:
    """Look up the volume at a path, and again after a refresh of its pool; None: in no pool."""
    with contextlib.suppress(libvirt.libvirtError):
        return conn.storageVolLookupByPath(path)
    with _ignore_missing(conn):  # libvirt knows what others made after a refresh alone
        pool = conn.storagePoolLookupByTargetPath(path.rpartition("/")[0])
        with contextlib.suppress(libvirt.libvirtError):
            pool.refresh(0)
        return conn.storageVolLookupByPath(path)
    return None


def _backing_files_at(conn: libvirt.virConnect, path: str, pool: str | None) -> tuple[str, ...]:
    """Return the paths of the files that a file rests on; of one in no pool none is known."""
    with _ignore_missing(conn):
        volume = volume_at(conn, path)
        if volume is None and pool is not None:
            volume = conn.storagePoolLookupByName(pool).storageVolLookupByName(name_of(path))
        return () if volume is None else backing_files_of(volume)
    return ()


@contextlib.contextmanager
def _ignore_missing(conn: libvirt.virConnect) -> Iterator[None]:
    """Suppress libvirt's errors, but for those of a connection that broke.

    Nothing may be deleted because the host did not say who uses it.
    """
    try:
        yield
    except libvirt.libvirtError:
        if not conn.isAlive():
            raise
