"""Disks in domain XML: files by path, with their whole backing chain.

AppArmor and SELinux rules for a guest are made from the paths in its XML. virt-aa-helper resolves
no pool and volume, so the guest could not open such a disk. The backing chain is written as well,
or libvirt would read it from the file's header.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFile:
    """The file of a disk or of its backing chain."""

    path: str
    format: str
    backing: DiskFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFiles:
    """The files of the disks of a domain to define."""

    root: DiskFile
    seed: DiskFile | None = None


def add_disks(devices: ET.Element, files: DiskFiles) -> None:
    """Add the root disk and the seed to the XML of a new domain."""
    add_disk(devices, files.root, "vda")
    if files.seed is not None:
        ET.SubElement(add_disk(devices, files.seed, "vdb"), "readonly")


def add_disk(devices: ET.Element, file: DiskFile, target: str) -> ET.Element:
    """Add a disk that is a file, with its backing chain, to domain XML."""
    disk = ET.SubElement(devices, "disk", type="file", device="disk")
    ET.SubElement(disk, "driver", name="qemu", type=file.format)
    ET.SubElement(disk, "source", file=file.path)
    _add_backing(disk, file.backing)
    ET.SubElement(disk, "target", dev=target, bus="virtio")
    return disk


def with_disks_as_files(xml: str, file_of: Callable[[str, str, str], DiskFile]) -> str | None:
    """Return a domain's XML with volumes replaced by file paths; None if it names no volume.

    ``file_of`` receives pool, volume and format.
    """
    domain = ET.fromstring(xml)  # noqa: S314 - libvirt wrote it: no entities, no DTD
    volumes = domain.findall("devices/disk[@type='volume']")
    for disk in volumes:
        source, driver = disk.find("source"), disk.find("driver")
        if source is None:
            continue
        kind = "raw" if driver is None else driver.get("type", "raw")
        set_disk_file(disk, file_of(source.get("pool", ""), source.get("volume", ""), kind))
    return ET.tostring(domain, encoding="unicode") if volumes else None


def disks_of(domain: ET.Element) -> tuple[ET.Element | None, ET.Element | None]:
    """Return the disks of a domain's XML that fuga made: the root disk and the seed."""
    written = seed = None
    for disk in domain.findall("devices/disk"):
        if disk.find("readonly") is not None:
            seed = disk if seed is None else seed
        else:
            written = disk if written is None else written
    return written, seed


def set_disk_file(disk: ET.Element, file: DiskFile) -> None:
    """Set the file and the backing chain of a disk in domain XML."""
    source = disk.find("source")
    if source is None:
        source = ET.SubElement(disk, "source")
    for known in disk.findall("backingStore"):
        disk.remove(known)
    disk.set("type", "file")
    source.clear()
    source.set("file", file.path)
    _add_backing(disk, file.backing)


def backing_of(volume_xml: str) -> tuple[str, str | None] | None:
    """Return path and format of the backing file in a volume's XML; None if it has none."""
    backing = ET.fromstring(volume_xml).find("backingStore")  # noqa: S314 - as above
    path = None if backing is None else backing.findtext("path")
    if backing is None or not path:
        return None
    kind = backing.find("format")
    return path, None if kind is None else kind.get("type")


def timestamps_of(volume_xml: str) -> tuple[Decimal, Decimal] | None:
    """Return mtime and ctime of a volume's file in seconds; None if the host reports none."""
    stamps = ET.fromstring(volume_xml).find("target/timestamps")  # noqa: S314 - as above
    written = None if stamps is None else stamps.findtext("mtime")
    changed = None if stamps is None else stamps.findtext("ctime")
    return None if written is None or changed is None else (Decimal(written), Decimal(changed))


def _add_backing(parent: ET.Element, file: DiskFile | None) -> None:
    """Add the backing chain of a file to domain XML; an empty element ends it."""
    if file is None:
        ET.SubElement(parent, "backingStore")
        return
    backing = ET.SubElement(parent, "backingStore", type="file")
    ET.SubElement(backing, "format", type=file.format)
    ET.SubElement(backing, "source", file=file.path)
    _add_backing(backing, file.backing)
