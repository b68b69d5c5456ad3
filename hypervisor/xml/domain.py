"""Domain XML, built and read as a tree: no value can break out of its element."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hypervisor.model import DomainSpec, Mark
from hypervisor.xml import network_filters
from hypervisor.xml.disks import DiskFiles, add_disks
from hypervisor.xml.limits import add_shares, limit_card, limit_disks

NAMESPACE = "https://fuga.invalid/domain/1"
PREFIX = "fuga"
SERIAL_LOG_DIR = "/var/log/libvirt/qemu"
CONFINING = ("apparmor", "selinux")
UNCONFINED = "none"
# The prefix is only for people who read `virsh dumpxml`.
ET.register_namespace(PREFIX, NAMESPACE)

_IN_MIB = {"b": 2**20, "bytes": 2**20, "KiB": 2**10, "k": 2**10, "MiB": 1, "M": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """Where a disk of a domain lies: a path, or, of strangers and of old, a volume of a pool."""

    pool: str | None
    volume: str | None
    path: str | None
    target: str | None  #: its name on the machine, as statistics call it


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedDomain:
    """What a domain's XML says about it."""

    uuid: str
    name: str
    vcpus: int
    memory_mib: int
    disks: tuple[Disk, ...]
    mark: Mark | None
    filtered: bool  #: a filter of this release is on each of its cards
    #: Files of all its disks and of what they rest on: (None, path), or pool and volume.
    files: frozenset[tuple[str | None, str]] = frozenset()


def serial_log_name(domain_name: str) -> str:
    """File under `SERIAL_LOG_DIR` in which a domain's serial console is kept."""
    return f"{domain_name}.serial"


def build(spec: DomainSpec, files: DiskFiles) -> str:
    """Domain XML of ``spec`` on disks that are there, with its mark in the first definition.

    The mark is part of what is defined, not set afterwards: a domain of ours is never
    seen without it, whenever its maker is killed.
    """
    domain = ET.Element("domain", type=spec.domain_type)
    _text(domain, "name", spec.name)
    _text(domain, "uuid", spec.mark.vm_id)
    domain.append(_metadata(spec.mark))
    _text(domain, "memory", str(spec.memory_mib), unit="MiB")
    _text(domain, "vcpu", str(spec.vcpus))
    add_shares(domain, spec.vcpus)
    boot = ET.SubElement(domain, "os")
    if spec.domain_type == "test":
        _text(boot, "type", "hvm")
    else:
        _text(boot, "type", "hvm", arch="x86_64", machine="pc")
        ET.SubElement(boot, "boot", dev="hd")
        _add_machine(domain, spec.domain_type)
    _add_devices(domain, spec, files)
    return ET.tostring(domain, encoding="unicode")


def overlay(name: str, capacity_gib: int, base_path: str | None, base_format: str | None) -> str:
    """Volume XML of a sparse qcow2 image, on top of a base image if there is one."""
    volume = ET.Element("volume", type="file")
    _text(volume, "name", name)
    _text(volume, "allocation", "0")
    _text(volume, "capacity", str(capacity_gib), unit="GiB")
    target = ET.SubElement(volume, "target")
    ET.SubElement(target, "format", type="qcow2")
    if base_path is not None:
        backing = ET.SubElement(volume, "backingStore")
        _text(backing, "path", base_path)
        ET.SubElement(backing, "format", type=base_format or "qcow2")
    return ET.tostring(volume, encoding="unicode")


def plain_volume(name: str, size_bytes: int, *, sparse: bool = False) -> str:
    """Volume XML of a file of that length; a sparse one takes its room as it is written."""
    volume = ET.Element("volume", type="file")
    _text(volume, "name", name)
    _text(volume, "capacity", str(size_bytes), unit="bytes")
    _text(volume, "allocation", "0" if sparse else str(size_bytes), unit="bytes")
    ET.SubElement(ET.SubElement(volume, "target"), "format", type="raw")
    return ET.tostring(volume, encoding="unicode")


def unstartable_domain(
    *,
    name: str,
    uuid: str,
    domain_type: str,
    why: str,
    raw_disks: Mapping[str, str],
    firmware_variables: str | None = None,
) -> str:
    """Domain XML of a definition that names files of the host, and that nothing can start.

    An attempt fails with the name of a pool that does not exist.
    """
    domain = ET.Element("domain", type=domain_type)
    _text(domain, "name", name)
    _text(domain, "uuid", uuid)
    _text(domain, "title", why)
    _text(domain, "memory", "1", unit="MiB")
    _text(domain, "vcpu", "1")
    boot = ET.SubElement(domain, "os")
    _text(boot, "type", "hvm", arch="x86_64", machine="pc")
    if firmware_variables is not None:
        _text(boot, "loader", "/nonexistent/fuga", readonly="yes", type="pflash")
        _text(boot, "nvram", firmware_variables)
    ET.SubElement(ET.SubElement(domain, "features"), "acpi")
    devices = ET.SubElement(domain, "devices")
    for target, path in raw_disks.items():
        disk = _disk_of(devices, "raw", target, type="file")
        ET.SubElement(disk, "source", file=path)
        ET.SubElement(disk, "readonly")
    barrier = _disk_of(devices, "raw", "vdz", type="volume")
    ET.SubElement(barrier, "source", pool="fuga-never-starts-this", volume="none")
    ET.SubElement(devices, "controller", type="usb", model="none")
    ET.SubElement(devices, "memballoon", model="none")
    return ET.tostring(domain, encoding="unicode")


def parse(xml: str) -> ParsedDomain:
    """Read a domain's XML, fuga's or foreign."""
    domain = parse_tree(xml)
    return ParsedDomain(
        uuid=domain.findtext("uuid", ""),
        name=domain.findtext("name", ""),
        vcpus=int(domain.findtext("vcpu", "1")),
        memory_mib=_memory_mib(domain.find("memory")),
        disks=tuple(
            _disk(disk)
            for disk in domain.iterfind("devices/disk")
            # What is read-only is shared or tiny: the domain needs no room for it.
            if disk.get("device", "disk") == "disk" and disk.find("readonly") is None
        ),
        mark=_mark(domain),
        filtered=network_filters.is_filtered(domain),
        files=frozenset(_files(domain)),
    )


def set_mark(domain: ET.Element, mark: Mark) -> None:
    """Let a domain carry a mark in place of the one that it has."""
    metadata = domain.find("metadata")
    if metadata is None:
        metadata = ET.SubElement(domain, "metadata")
    for known in metadata.findall(f"{{{NAMESPACE}}}vm"):
        metadata.remove(known)
    metadata.extend(_metadata(mark))


def volume_format(xml: str) -> str | None:
    """Format of the image that a volume's XML describes."""
    found = parse_tree(xml).find("target/format")
    return None if found is None else found.get("type")


def domain_type(xml: str) -> str:
    """The emulator of a domain, fuga's or foreign."""
    return parse_tree(xml).get("type", "qemu")


def pool_path(xml: str) -> str | None:
    """Folder that a pool's XML names, if it is over one."""
    return parse_tree(xml).findtext("target/path")


def machine_uuid(capabilities: str) -> str | None:
    """Return the number of the machine that a host's capabilities name, if they do."""
    return parse_tree(capabilities).findtext("host/uuid")


def security_model(capabilities: str) -> str:
    """Return what confines guests, as a host's capabilities name it, or ``none``.

    ``dac`` is no answer: owners of files keep guests from the host, not from one another,
    as all of them are one user.
    """
    named = {each.text for each in parse_tree(capabilities).iterfind("host/secmodel/model")}
    return next((each for each in CONFINING if each in named), UNCONFINED)


def parse_tree(xml: str) -> ET.Element:
    """Parse what libvirt wrote."""
    return ET.fromstring(xml)  # noqa: S314 - libvirt wrote it: no entities, no DTD


def _add_machine(domain: ET.Element, domain_type: str) -> None:
    features = ET.SubElement(domain, "features")
    ET.SubElement(features, "acpi")
    if domain_type == "qemu":
        # Emulation keeps translated code; its default cache is a good part of the
        # machine's memory for every guest.
        _text(ET.SubElement(features, "tcg"), "tb-cache", "16", unit="MiB")
    else:
        # The host's model as libvirt names it: all its instructions, and still a guest
        # that another host with those can take.
        ET.SubElement(domain, "cpu", mode="host-model")
    ET.SubElement(domain, "clock", offset="utc")
    _text(domain, "on_poweroff", "destroy")
    _text(domain, "on_reboot", "restart")
    _text(domain, "on_crash", "destroy")


def _add_devices(domain: ET.Element, spec: DomainSpec, files: DiskFiles) -> None:
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


def _disk_of(devices: ET.Element, kind: str, target: str, **attributes: str) -> ET.Element:
    disk = ET.SubElement(devices, "disk", attributes, device="disk")
    ET.SubElement(disk, "driver", name="qemu", type=kind)
    ET.SubElement(disk, "target", dev=target, bus="virtio")
    return disk


def _add_interface(devices: ET.Element, spec: DomainSpec) -> None:
    card = ET.SubElement(devices, "interface", type=spec.network_kind)
    if spec.mac is not None:
        ET.SubElement(card, "mac", address=spec.mac)
    ET.SubElement(card, "source", {spec.network_kind: spec.network})
    ET.SubElement(card, "model", type="virtio")
    limit_card(card, spec.limits)
    if spec.guard is not None:
        network_filters.protect_card(card, spec.guard)


def _metadata(mark: Mark) -> ET.Element:
    metadata = ET.Element("metadata")
    vm = ET.SubElement(metadata, f"{{{NAMESPACE}}}vm")
    for name, value in (
        ("id", mark.vm_id),
        ("assignment", mark.assignment_id),
        ("generation", mark.generation),
        ("tenant", mark.tenant),
        ("round", mark.round),
    ):
        _text(vm, f"{{{NAMESPACE}}}{name}", str(value))
    return metadata


def _mark(domain: ET.Element) -> Mark | None:
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
        # Someone edited it: then it proves nothing, and the domain is foreign.
        return None


def _disk(disk: ET.Element) -> Disk:
    source, target = disk.find("source"), disk.find("target")
    attributes = {} if source is None else source.attrib
    return Disk(
        pool=attributes.get("pool"),
        volume=attributes.get("volume"),
        path=attributes.get("file") or attributes.get("dev"),
        target=None if target is None else target.get("dev"),
    )


def _files(domain: ET.Element) -> Iterator[tuple[str | None, str]]:
    for source in domain.iterfind("devices/disk//source"):
        path, pool, volume = (source.get(each) for each in ("file", "pool", "volume"))
        if path:
            yield None, path
        elif pool and volume:
            yield pool, volume


def _memory_mib(memory: ET.Element | None) -> int:
    if memory is None or not memory.text:
        return 0
    # libvirt writes KiB; the rest is for hand-made XML in tests.
    return -(-int(memory.text) // _IN_MIB[memory.get("unit", "KiB")])


def _text(parent: ET.Element, tag: str, text: str, **attributes: str) -> ET.Element:
    child = ET.SubElement(parent, tag, attributes)
    child.text = text
    return child
