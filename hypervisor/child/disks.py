"""Volumes and files of a domain's disks on its host. In the child process only."""

from __future__ import annotations

import contextlib
import xml.etree.ElementTree as ET
from typing import Final

import libvirt

from hypervisor.errors import OperationFailedError
from hypervisor.model import DomainSpec
from hypervisor.xml import disks as disk_xml
from hypervisor.xml import domain as domain_xml
from hypervisor.xml.disks import DiskFile, DiskFiles

_DEEPEST: Final = 8  #: files in a backing chain; an operator's base may be an overlay itself


def domain_files(conn: libvirt.virConnect, spec: DomainSpec) -> DiskFiles:
    """Return the disk files of a domain to define; they must exist on the host."""
    return files_in_pool(conn, spec.pool, spec.volume, spec.seed_volume)


def files_in_pool(
    conn: libvirt.virConnect, pool: str, volume: str, seed_volume: str | None
) -> DiskFiles:
    """Return the files of a root disk, with its backing chain, and of a seed in a pool."""
    store = conn.storagePoolLookupByName(pool)
    seed = None
    if seed_volume is not None:
        seed = DiskFile(path=store.storageVolLookupByName(seed_volume).path(), format="raw")
    return DiskFiles(root=disk_file(conn, store.storageVolLookupByName(volume), "qcow2"), seed=seed)


def disk_file(
    conn: libvirt.virConnect, volume: libvirt.virStorageVol, kind: str, depth: int = 0
) -> DiskFile:
    """Return a volume's file with its whole backing chain."""
    path = volume.path()
    backing = None if kind == "raw" else disk_xml.backing_of(volume.XMLDesc(0))
    if backing is None:
        return DiskFile(path=path, format=kind)
    if depth == _DEEPEST:
        raise OperationFailedError("define", f"{path} has more than {_DEEPEST} backing files")
    below, format_below = backing
    found = conn.storageVolLookupByPath(below)
    # Our overlays name the format of their base; where none is named, QEMU must not guess.
    return DiskFile(
        path=path, format=kind, backing=disk_file(conn, found, format_below or "raw", depth + 1)
    )


def root_volume(conn: libvirt.virConnect, domain: libvirt.virDomain) -> libvirt.virStorageVol:
    """Look up the volume of a domain's root disk, by path or by pool and volume."""
    written, _ = disk_xml.disks_of(ET.fromstring(domain.XMLDesc(0)))  # noqa: S314 - libvirt's
    source = None if written is None else written.find("source")
    if source is None:
        raise OperationFailedError("move", f"domain {domain.UUIDString()} has no disk")
    pool, name = source.get("pool"), source.get("volume")
    if pool is not None and name is not None:
        return conn.storagePoolLookupByName(pool).storageVolLookupByName(name)
    return conn.storageVolLookupByPath(source.get("file", ""))


def find_volume(pool: libvirt.virStoragePool, name: str) -> libvirt.virStorageVol | None:
    """Look up a volume, again after a refresh of the pool; return None if there is none."""
    for attempt in ("known", "refreshed"):
        try:
            return pool.storageVolLookupByName(name)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_VOL:
                raise
        if attempt == "known":
            with contextlib.suppress(libvirt.libvirtError):  # busy with another volume
                pool.refresh(0)
    return None


def last_written_at(volume: libvirt.virStorageVol) -> str | None:
    """Return the modification time of a volume's file in seconds; None if the host reports none."""
    return domain_xml.parse_tree(volume.XMLDesc(0)).findtext("target/timestamps/mtime")


def delete_volume(pool: libvirt.virStoragePool, name: str) -> None:
    """Delete a volume of a storage pool if it exists."""
    volume = find_volume(pool, name)
    if volume is None:
        return
    try:
        volume.delete(0)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_VOL:
            raise


def use_file_paths(conn: libvirt.virConnect, domain: libvirt.virDomain) -> None:
    """Redefine a domain so that its disks are files; earlier releases named pool and volume."""

    def file_of(pool: str, volume: str, kind: str) -> DiskFile:
        store = conn.storagePoolLookupByName(pool)
        return disk_file(conn, store.storageVolLookupByName(volume), kind)

    flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    renewed = disk_xml.with_disks_as_files(domain.XMLDesc(flags), file_of)
    if renewed is not None:
        conn.defineXML(renewed)


def refuse_backing_file(image: libvirt.virStorageVol, kind: str) -> None:
    """Raise if an image has a backing file: images are single files.

    A raw image has no backing file, whatever its first bytes are.
    """
    backing = None if kind == "raw" else disk_xml.backing_of(image.XMLDesc(0))
    if backing is not None:
        raise OperationFailedError(
            "create_overlay",
            f"base volume {image.name()} has the backing file {backing[0]}, which is not allowed",
        )
