"""Disks in domain XML that are attached to a VM beyond its root disk and seed.

A disk is known by its serial number, which its guest sees. Each disk that fuga attaches has an
alias as well: libvirt refuses a second one in the same domain.
"""

from __future__ import annotations

import itertools
import re
import string
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from copy import deepcopy
from typing import Final

from hypervisor.model import MAX_SERIAL
from hypervisor.xml.disks import DiskFile, add_disk, disks_of

#: libvirt keeps an alias that begins with `ua-` in the live and in the persistent definition.
_ALIAS_PREFIX: Final = "ua-fuga-volume-"
_SERIAL: Final = re.compile(rf"[0-9A-Za-z_-]{{1,{MAX_SERIAL}}}")


def is_valid_serial(serial: str) -> bool:
    """Return whether a serial number can be that of an attached disk, and part of its alias."""
    return _SERIAL.fullmatch(serial) is not None


def attached_serials(domain: ET.Element) -> tuple[str, ...]:
    """Return the serial numbers of a domain's disks beyond root and seed, sorted."""
    made = disks_of(domain)
    others = (disk for disk in domain.findall("devices/disk") if disk not in made)
    return tuple(sorted(filter(None, (disk.findtext("serial") for disk in others))))


def disk_with_serial(domain: ET.Element, serial: str) -> ET.Element | None:
    """Return the disk of a domain with a serial number, or None."""
    disks = domain.findall("devices/disk")
    return next((disk for disk in disks if disk.findtext("serial") == serial), None)


def is_attached_by_fuga(disk: ET.Element) -> bool:
    """Return whether fuga attached a disk, whatever file it has by now."""
    alias = disk.find("alias")
    return alias is not None and alias.get("name", "").startswith(_ALIAS_PREFIX)


def target_of(disk: ET.Element) -> str:
    """Return the target device of a disk, such as vdc."""
    target = disk.find("target")
    return "" if target is None else target.get("dev", "")


def free_target(domains: Iterable[ET.Element]) -> str:
    """Return the first virtio target that no disk of these definitions has."""
    taken = {target_of(disk) for domain in domains for disk in domain.findall("devices/disk")}
    letters = string.ascii_lowercase
    names = itertools.chain(letters, map("".join, itertools.product(letters, repeat=2)))
    return next(target for name in names if (target := f"vd{name}") not in taken)


def attached_disk(file: DiskFile, target: str, serial: str, domain: ET.Element) -> ET.Element:
    """Return a disk to attach to a domain.

    The disk joins the I/O limits of the domain's root disk, which hold for all disks together.
    Blocks that the guest discards are freed in the pool.
    """
    disk = add_disk(ET.Element("devices"), file, target)
    driver = disk.find("driver")
    if driver is not None:
        driver.set("discard", "unmap")
    root, _ = disks_of(domain)
    limits = None if root is None else root.find("iotune")
    if limits is not None:
        disk.append(deepcopy(limits))
    ET.SubElement(disk, "serial").text = serial
    ET.SubElement(disk, "alias", name=f"{_ALIAS_PREFIX}{serial}")
    return disk
