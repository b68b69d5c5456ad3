"""Domain XML, built and parsed as a tree, so that values are always escaped."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hypervisor.model import DomainSpec, Mark
from hypervisor.xml import network_filters
from hypervisor.xml.attached_disks import attached_serials
from hypervisor.xml.disks import DiskFiles, add_disks
from hypervisor.xml.resource_limits import add_shares, limit_disks, limit_interface

NAMESPACE = "https://fuga.invalid/domain/1"
PREFIX = "fuga"
SERIAL_LOG_DIR = "/var/log/libvirt/qemu"
CONFINING = ("apparmor", "selinux")
UNCONFINED = "none"
# The prefix is for readers of `virsh dumpxml`.
ET.register_namespace(PREFIX, NAMESPACE)

_IN_MIB = {"b": 2**20, "bytes": 2**20, "KiB": 2**10, "k": 2**10, "MiB": 1, "M": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A disk of a domain: a path, or pool and volume in foreign and old domains."""

    pool: str | None
    volume: str | None
    path: str | None
    target: str | None  #: device name, such as vda, as in statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedDomain:
    """The parsed XML of a domain."""

    uuid: str
    name: str
    vcpus: int
    memory_mib: int
    disks: tuple[Disk, ...]
    mark: Mark | None
    filtered: bool  #: whether each of its interfaces has a filter of this release
    #: Files of its disks and their backing chains: (None, path), or pool and volume.
    files: frozenset[tuple[str | None, str]] = frozenset()
    attached: tuple[str, ...] = ()  #: serials of its disks beyond root and seed, sorted


def serial_log_name(domain_name: str) -> str:
    """Return the name of a domain's serial console log under `SERIAL_LOG_DIR`."""
    return f"{domain_name}.serial"


def build_domain_xml(spec: DomainSpec, files: DiskFiles) -> str:
    """Return the domain XML of ``spec`` on existing disks.

    The mark is part of the first definition: even if the worker is killed, no domain of fuga's
    exists without a mark.
    """
    domain = ET.Element("domain", type=spec.domain_type)
    _add_text_element(domain, "name", spec.name)
    _add_text_element(domain, "uuid", spec.mark.vm_id)
    domain.append(_mark_element(spec.mark))
    _add_text_element(domain, "memory", str(spec.memory_mib), unit="MiB")
    _add_text_element(domain, "vcpu", str(spec.vcpus))
    add_shares(domain, spec.vcpus)
    boot = ET.SubElement(domain, "os")
    if spec.domain_type == "test":
        _add_text_element(boot, "type", "hvm")
    else:
        _add_text_element(boot, "type", "hvm", arch="x86_64", machine="pc")
        ET.SubElement(boot, "boot", dev="hd")
        _add_machine(domain, spec.domain_type)
    _add_devices(domain, spec, files)
    return ET.tostring(domain, encoding="unicode")


def overlay_xml(
    name: str, capacity_gib: int, base_path: str | None, base_format: str | None
) -> str:
    """Return the volume XML of a sparse qcow2 image, with a backing file if there is a base."""
    volume = ET.Element("volume", type="file")
    _add_text_element(volume, "name", name)
    _add_text_element(volume, "allocation", "0")
    _add_text_element(volume, "capacity", str(capacity_gib), unit="GiB")
    target = ET.SubElement(volume, "target")
    ET.SubElement(target, "format", type="qcow2")
    if base_path is not None:
        backing = ET.SubElement(volume, "backingStore")
        _add_text_element(backing, "path", base_path)
        ET.SubElement(backing, "format", type=base_format or "qcow2")
    return ET.tostring(volume, encoding="unicode")


def raw_volume_xml(name: str, size_bytes: int, *, sparse: bool = False) -> str:
    """Return the volume XML of a raw file; a sparse one allocates no space in advance."""
    volume = ET.Element("volume", type="file")
    _add_text_element(volume, "name", name)
    _add_text_element(volume, "capacity", str(size_bytes), unit="bytes")
    _add_text_element(volume, "allocation", "0" if sparse else str(size_bytes), unit="bytes")
    ET.SubElement(ET.SubElement(volume, "target"), "format", type="raw")
    return ET.tostring(volume, encoding="unicode")


def unstartable_domain_xml(
    *,
    name: str,
    uuid: str,
    domain_type: str,
    why: str,
    raw_disks: Mapping[str, str],
    firmware_variables: str | None = None,
) -> str:
    """Return the XML of a domain with raw disks that cannot start.

    A start fails, as one disk is in a pool that does not exist.
    """
    domain = ET.Element("domain", type=domain_type)
    _add_text_element(domain, "name", name)
    _add_text_element(domain, "uuid", uuid)
    _add_text_element(domain, "title", why)
    _add_text_element(domain, "memory", "1", unit="MiB")
    _add_text_element(domain, "vcpu", "1")
    boot = ET.SubElement(domain, "os")
    _add_text_element(boot, "type", "hvm", arch="x86_64", machine="pc")
    if firmware_variables is not None:
        _add_text_element(boot, "loader", "/nonexistent/fuga", readonly="yes", type="pflash")
        _add_text_element(boot, "nvram", firmware_variables)
    ET.SubElement(ET.SubElement(domain, "features"), "acpi")
    devices = ET.SubElement(domain, "devices")
    for target, path in raw_disks.items():
        disk = _add_disk(devices, "raw", target, type="file")
        ET.SubElement(disk, "source", file=path)
        ET.SubElement(disk, "readonly")
    barrier = _add_disk(devices, "raw", "vdz", type="volume")
    ET.SubElement(barrier, "source", pool="fuga-never-starts-this", volume="none")
    ET.SubElement(devices, "controller", type="usb", model="none")
    ET.SubElement(devices, "memballoon", model="none")
    return ET.tostring(domain, encoding="unicode")


def parse_domain(xml: str) -> ParsedDomain:
    """Parse a domain's XML, fuga's or foreign."""
    domain = parse_tree(xml)
    return ParsedDomain(
        uuid=domain.findtext("uuid", ""),
        name=domain.findtext("name", ""),
        vcpus=int(domain.findtext("vcpu", "1")),
        memory_mib=_memory_mib(domain.find("memory")),
        disks=tuple(
            _parse_disk(disk)
            for disk in domain.iterfind("devices/disk")
            # Read-only disks are shared or tiny, so they need no room.
            if disk.get("device", "disk") == "disk" and disk.find("readonly") is None
        ),
        mark=_parse_mark(domain),
        filtered=network_filters.is_filtered(domain),
        files=frozenset(_source_files(domain)),
        attached=attached_serials(domain),
    )


def set_mark(domain: ET.Element, mark: Mark) -> None:
    """Replace fuga's mark in the XML of a domain."""
    metadata = domain.find("metadata")
    if metadata is None:
        metadata = ET.SubElement(domain, "metadata")
    for known in metadata.findall(f"{{{NAMESPACE}}}vm"):
        metadata.remove(known)
    metadata.extend(_mark_element(mark))


def volume_format(xml: str) -> str | None:
    """Return the image format in a volume's XML."""
    found = parse_tree(xml).find("target/format")
    return None if found is None else found.get("type")


def domain_type(xml: str) -> str:
    """Return the domain type, such as kvm, in a domain's XML."""
    return parse_tree(xml).get("type", "qemu")


def pool_path(xml: str) -> str | None:
    """Return the folder in a pool's XML, if it has one."""
    return parse_tree(xml).findtext("target/path")


def machine_uuid(capabilities: str) -> str | None:
    """Return the machine's UUID in a host's capabilities, if any.

    Empty text, the firmware's `Not Settable` and UUIDs of one repeated digit are none.
    """
    found = parse_tree(capabilities).findtext("host/uuid", "").strip().lower()
    is_blank = found.startswith("not ") or len(set(found) - {"-"}) < 2
    return None if is_blank else found


def security_model(capabilities: str) -> str:
    """Return the security model in a host's capabilities, or ``none``.

    ``dac`` does not count: all guests run as one user, so file owners do not separate them from
    each other.
    """
    named = {each.text for each in parse_tree(capabilities).iterfind("host/secmodel/model")}
    return next((each for each in CONFINING if each in named), UNCONFINED)


def parse_tree(xml: str) -> ET.Element:
    """Parse XML that libvirt wrote."""
    return ET.fromstring(xml)  # noqa: S314 - libvirt wrote it: no entities, no DTD


def _add_machine(domain: ET.Element, domain_type: str) -> None:
    """Add machine features, CPU model, clock and lifecycle actions to domain XML."""
    features = ET.SubElement(domain, "features")
    ET.SubElement(features, "acpi")
    if domain_type == "qemu":
        # The default translation cache of emulation would take much memory per guest.
        _add_text_element(ET.SubElement(features, "tcg"), "tb-cache", "16", unit="MiB")
    else:
        # All CPU features of the host, and the guest can still move to hosts that have them.
        ET.SubElement(domain, "cpu", mode="host-model")
    ET.SubElement(domain, "clock", offset="utc")
    _add_text_element(domain, "on_poweroff", "destroy")
    _add_text_element(domain, "on_reboot", "restart")
    _add_text_element(domain, "on_crash", "destroy")


def _add_devices(domain: ET.Element, spec: DomainSpec, files: DiskFiles) -> None:
    """Add disks, interface, console and other devices to domain XML."""
    devices = ET.SubElement(domain, "devices")
    add_disks(devices, files)
    limit_disks(devices, spec.limits)
    _add_interface(devices, spec)
    if spec.domain_type == "test":
        return
    ET.SubElement(devices, "controller", type="usb", model="none")
    serial = ET.SubElement(devices, "serial", type="pty")
    log = f"{SERIAL_LOG_DIR}/{serial_log_name(spec.name)}"
    ET.SubElement(serial, "log", file=log, append="on")
    balloon = ET.SubElement(devices, "memballoon", model="virtio")
    ET.SubElement(balloon, "stats", period="1")


def _add_disk(devices: ET.Element, kind: str, target: str, **attributes: str) -> ET.Element:
    """Add a disk with its driver and target, without a source, to domain XML."""
    disk = ET.SubElement(devices, "disk", attributes, device="disk")
    ET.SubElement(disk, "driver", name="qemu", type=kind)
    ET.SubElement(disk, "target", dev=target, bus="virtio")
    return disk


def _add_interface(devices: ET.Element, spec: DomainSpec) -> None:
    """Add the network interface, with its limits and filters, to domain XML."""
    interface = ET.SubElement(devices, "interface", type=spec.network_kind)
    if spec.mac is not None:
        ET.SubElement(interface, "mac", address=spec.mac)
    ET.SubElement(interface, "source", {spec.network_kind: spec.network})
    ET.SubElement(interface, "model", type="virtio")
    limit_interface(interface, spec.limits)
    if spec.guard is not None:
        network_filters.protect_interface(interface, spec.guard)


def _mark_element(mark: Mark) -> ET.Element:
    """Return the metadata element of domain XML with fuga's mark."""
    metadata = ET.Element("metadata")
    vm = ET.SubElement(metadata, f"{{{NAMESPACE}}}vm")
    for name, value in (
        ("id", mark.vm_id),
        ("assignment", mark.assignment_id),
        ("generation", mark.generation),
        ("tenant", mark.tenant),
        ("round", mark.round),
    ):
        _add_text_element(vm, f"{{{NAMESPACE}}}{name}", str(value))
    return metadata


def _parse_mark(domain: ET.Element) -> Mark | None:
    """Return fuga's mark in domain XML, or None."""
    vm = domain.find(f"metadata/{{{NAMESPACE}}}vm")
    if vm is None:
        return None

    def text(name: str) -> str:
        return vm.findtext(f"{{{NAMESPACE}}}{name}", "").strip()

    try:
        return Mark(
            vm_id=text("id"),
            assignment_id=text("assignment"),
            generation=int(text("generation")),
            tenant=text("tenant"),
            round=int(text("round")),
        )
    except ValueError:
        # Someone edited the mark: the domain counts as foreign.
        return None


def _parse_disk(disk: ET.Element) -> Disk:
    """Return a disk of domain XML: its pool and volume, or its path."""
    source, target = disk.find("source"), disk.find("target")
    attributes = {} if source is None else source.attrib
    return Disk(
        pool=attributes.get("pool"),
        volume=attributes.get("volume"),
        path=attributes.get("file") or attributes.get("dev"),
        target=None if target is None else target.get("dev"),
    )


def _source_files(domain: ET.Element) -> Iterator[tuple[str | None, str]]:
    """Yield all files that disks of domain XML name: pool and volume, or None and path."""
    for source in domain.iterfind("devices/disk//source"):
        path, pool, volume = (source.get(each) for each in ("file", "pool", "volume"))
        if path:
            yield None, path
        elif pool and volume:
            yield pool, volume


def _memory_mib(memory: ET.Element | None) -> int:
    """Return the amount of a memory element of domain XML in MiB, rounded up."""
    if memory is None or not memory.text:
        return 0
    # libvirt writes KiB; other units are for XML in tests.
    return -(-int(memory.text) // _IN_MIB[memory.get("unit", "KiB")])


def _add_text_element(parent: ET.Element, tag: str, text: str, **attributes: str) -> ET.Element:
    """Add an element with text to an XML element."""
    child = ET.SubElement(parent, tag, attributes)
    child.text = text
    return child
