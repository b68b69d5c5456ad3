"""A moving domain's XML for its destination: host-specific parts are replaced.

The guest-visible parts stay: libvirt compares both, and refuses a move that changes them.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Final

from hypervisor.move_model import MoveSpec
from hypervisor.xml import domain as domain_xml
from hypervisor.xml import network_filters, resource_limits
from hypervisor.xml.disks import DiskFiles, disks_of, set_disk_file

#: Prefixes of libvirt's names for host interfaces; each host has its own names.
_MADE_UP: Final = ("vnet", "macvtap")


def destination_xml(xml: str, spec: MoveSpec, files: DiskFiles, *, shares: bool) -> str:
    """Return the XML of a moving domain for the destination.

    Parameters
    ----------
    xml : str
        The live or the persistent XML at the source.
    files : DiskFiles
        The files at the destination.
    shares : bool
        Whether the destination has CPU shares.
    """
    domain = domain_xml.parse_tree(xml)
    domain_xml.set_mark(domain, spec.mark)
    root, seed = disks_of(domain)
    if root is not None:
        set_disk_file(root, files.root)
    if seed is not None and files.seed is not None:
        set_disk_file(seed, files.seed)
    for interface in domain.findall("devices/interface"):
        connect_interface(interface, spec)
    resource_limits.set_shares(domain, int(domain.findtext("vcpu", "1")) if shares else None)
    return ET.tostring(domain, encoding="unicode")


def has_seed(domain: ET.Element) -> bool:
    """Return whether a domain has a seed, a read-only disk."""
    return disks_of(domain)[1] is not None


def host_device_of(domain: ET.Element) -> str | None:
    """Describe a device that binds a domain to its host; None if there is none."""
    for tag in ("hostdev", "redirdev", "shmem", "filesystem", "tpm", "nvdimm", "vsock"):
        found = domain.find(f"devices/{tag}")
        if found is not None:
            return tag if found.get("type") is None else f"{tag} of type {found.get('type')}"
    for interface in domain.findall("devices/interface"):
        if interface.get("type") not in {"network", "bridge"}:
            return f"interface of type {interface.get('type')}"
    known = [disk for disk in disks_of(domain) if disk is not None]
    for disk in domain.findall("devices/disk"):
        target, source = disk.find("target"), disk.find("source")
        named = set() if source is None else set(source.attrib)
        if disk not in known or not named & {"file", "volume"}:
            return f"disk {'' if target is None else target.get('dev', '')} that fuga did not make"
    return None


def connect_interface(interface: ET.Element, spec: MoveSpec) -> None:
    """Connect a moving VM's interface to the destination's network, with the guard's filters."""
    source = interface.find("source")
    if source is None:
        source = ET.SubElement(interface, "source")
    interface.set("type", spec.network_kind)
    source.attrib.clear()
    source.set(spec.network_kind, spec.network)
    for child in list(source):
        source.remove(child)
    target = interface.find("target")
    if target is not None and target.get("dev", "").startswith(_MADE_UP):
        interface.remove(target)
    if spec.guard is not None:
        network_filters.protect_interface(interface, spec.guard)
