"""Domain XML says what was asked, and nothing that was asked can change its shape."""

from __future__ import annotations

import uuid
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from hypervisor import DomainSpec, Mark, domain_name, volume_name
from hypervisor.xml import disks as disk_xml
from hypervisor.xml import domain as domain_xml
from hypervisor.xml.disks import DiskFile, DiskFiles

MACHINE = "4c4c4544-0044-4b10-8051-b4c04f4e5931"

VM, ASSIGNMENT = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
SPEC = DomainSpec(
    mark=Mark(vm_id=VM, assignment_id=ASSIGNMENT, generation=3, tenant="a", round=12),
    name=domain_name(VM),
    domain_type="qemu",
    vcpus=4,
    memory_mib=96,
    pool="default",
    volume=volume_name(ASSIGNMENT),
    network="lan",
)

POOL = "/var/lib/libvirt/images"
BASE = DiskFile(path=f"{POOL}/base.raw", format="raw")
ROOT = DiskFile(path=f"{POOL}/{SPEC.volume}", format="qcow2", backing=BASE)
SEED = DiskFile(path=f"{POOL}/seed.img", format="raw")


def build(spec: DomainSpec = SPEC, files: DiskFiles | None = None) -> str:
    return domain_xml.build_domain_xml(spec, files or DiskFiles(root=ROOT))


def built(spec: DomainSpec = SPEC) -> ET.Element:
    return ET.fromstring(build(spec))


def test_what_is_built_is_read_back() -> None:
    parsed = domain_xml.parse_domain(build(SPEC))

    assert parsed.mark == SPEC.mark
    assert (parsed.uuid, parsed.name, parsed.vcpus, parsed.memory_mib) == (VM, SPEC.name, 4, 96)
    disk = domain_xml.Disk(pool=None, volume=None, path=ROOT.path, target="vda")
    assert parsed.disks == (disk,)


def test_a_seed_is_a_second_disk_that_is_read_only_and_not_counted() -> None:
    xml = build(files=DiskFiles(root=ROOT, seed=SEED))

    [_, seed] = ET.fromstring(xml).iterfind("devices/disk")
    assert seed.find("readonly") is not None
    assert seed.find("source").attrib == {"file": SEED.path}
    assert seed.find("target").get("dev") == "vdb"
    assert domain_xml.parse_domain(xml).disks == domain_xml.parse_domain(build()).disks


def chain(disk: ET.Element) -> list[tuple[str, str]]:
    """Path and format of a disk and of all that it rests on; its end must be written, too."""
    below = disk.find("backingStore")
    found = [(disk.find("source").get("file"), disk.find("driver").get("type"))]
    while below is not None and len(below):
        found.append((below.find("source").get("file"), below.find("format").get("type")))
        below = below.find("backingStore")
    assert below is not None
    return found


def test_disks_are_files_and_what_they_rest_on_is_written_to_its_end() -> None:
    xml = ET.fromstring(build(files=DiskFiles(root=ROOT, seed=SEED)))

    root, seed = xml.iterfind("devices/disk[@type='file']")
    assert chain(root) == [(ROOT.path, "qcow2"), (BASE.path, "raw")]
    assert chain(seed) == [(SEED.path, "raw")]


def test_a_domain_of_an_earlier_release_is_rewritten_with_the_files_of_its_volumes() -> None:
    disk = (
        "<disk type='volume' device='disk'><driver name='qemu' type='{}'/>"
        "<source pool='default' volume='{}' index='1'/><target dev='{}' bus='virtio'/></disk>"
    )
    xml = (
        "<domain type='qemu'><name>n</name><devices>"
        + disk.format("qcow2", "root.qcow2", "vda")
        + disk.format("raw", "seed.img", "vdb")
        + "<disk type='file'><source file='/own'/><target dev='vdc'/></disk></devices></domain>"
    )
    files = {("default", "root.qcow2", "qcow2"): ROOT, ("default", "seed.img", "raw"): SEED}

    renewed = disk_xml.with_disks_as_files(xml, lambda *volume: files[volume])

    assert renewed is not None
    root, seed, own = ET.fromstring(renewed).iterfind("devices/disk[@type='file']")
    assert chain(root) == [(ROOT.path, "qcow2"), (BASE.path, "raw")]
    assert chain(seed) == [(SEED.path, "raw")]
    assert root.find("source").attrib == {"file": ROOT.path}
    assert own.find("source").get("file") == "/own"
    assert disk_xml.with_disks_as_files(renewed, lambda *_: SEED) is None


def test_a_vm_is_attached_to_a_network_or_a_bridge_with_its_own_mac() -> None:
    plain = built().find("devices/interface")
    bridged = built(
        replace(SPEC, network="br0", network_kind="bridge", mac="02:00:00:00:00:01")
    ).find("devices/interface")

    assert plain is not None
    assert plain.get("type") == "network"
    assert plain.find("source").attrib == {"network": "lan"}
    assert plain.find("mac") is None
    assert bridged is not None
    assert bridged.get("type") == "bridge"
    assert bridged.find("source").attrib == {"bridge": "br0"}
    assert bridged.find("mac").get("address") == "02:00:00:00:00:01"


@pytest.mark.parametrize(
    ("models", "found"),
    [
        (("apparmor", "dac"), "apparmor"),
        (("selinux", "dac"), "selinux"),
        (("none", "dac"), "none"),
        (("dac",), "none"),
        ((), "none"),
    ],
)
def test_the_security_model_is_what_keeps_guests_from_one_another(
    models: tuple[str, ...], found: str
) -> None:
    named = "".join(f"<secmodel><model>{each}</model></secmodel>" for each in models)

    xml = f"<capabilities><host><uuid>u</uuid>{named}</host></capabilities>"

    assert domain_xml.security_model(xml) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<uuid>4c4c4544-0044-4b10-8051-b4c04f4e5931</uuid>", MACHINE),
        ("<uuid> 4C4C4544-0044-4B10-8051-B4C04F4E5931\n</uuid>", MACHINE),
        ("", None),
        ("<uuid/>", None),
        ("<uuid>00000000-0000-0000-0000-000000000000</uuid>", None),
        ("<uuid>FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF</uuid>", None),
        ("<uuid>Not Settable</uuid>", None),
        ("<uuid>garbage</uuid>", "garbage"),  # such a poll counts as not answered
    ],
)
def test_a_machine_without_a_uuid_of_its_own_has_none(text: str, found: str | None) -> None:
    capabilities = f"<capabilities><host>{text}</host></capabilities>"

    assert domain_xml.machine_uuid(capabilities) == found


def test_the_mark_is_in_the_first_definition() -> None:
    assert built().find(f"metadata/{{{domain_xml.NAMESPACE}}}vm") is not None


def test_an_emulated_guest_has_a_small_translation_cache_and_an_accelerated_one_the_hosts_cpu() -> (
    None
):
    emulated, accelerated = built(), built(replace(SPEC, domain_type="kvm"))

    cache = emulated.find("features/tcg/tb-cache")
    assert cache is not None
    assert (cache.text, cache.get("unit")) == ("16", "MiB")
    assert emulated.find("cpu") is None
    assert accelerated.get("type") == "kvm"
    assert accelerated.find("features/tcg") is None
    cpu = accelerated.find("cpu")
    assert cpu is not None
    assert cpu.get("mode") == "host-model"


def test_the_serial_console_is_kept_in_a_log_of_the_domains_name() -> None:
    log = built().find("devices/serial[@type='pty']/log")

    assert log is not None
    assert log.get("file") == f"/var/log/libvirt/qemu/fuga-{VM}.serial"
    assert log.get("append") == "on"


def test_a_guest_has_disk_network_and_balloon_and_no_usb() -> None:
    devices = built().find("devices")

    assert devices is not None
    assert devices.find("disk/driver[@type='qcow2']") is not None
    source = devices.find("interface[@type='network']/source")
    assert source is not None
    assert source.get("network") == "lan"
    assert devices.find("memballoon/stats[@period='1']") is not None
    assert devices.find("controller[@type='usb'][@model='none']") is not None


@pytest.mark.parametrize("domain_type", ["qemu", "kvm"])
def test_a_domain_of_ours_listens_on_no_network(domain_type: str) -> None:
    document = built(replace(SPEC, domain_type=domain_type))
    devices = document.find("devices")

    # Devices that QEMU serves by a socket, and the arguments by which any could be added.
    assert devices is not None
    assert {each.tag for each in devices} == {
        "disk",
        "interface",
        "controller",
        "serial",
        "memballoon",
    }
    assert [each.get("type") for each in devices.iter("serial")] == ["pty"]
    assert [each for each in document.iter() if each.tag in {"graphics", "listen"}] == []
    assert [each for each in document.iter() if "commandline" in each.tag] == []


@pytest.mark.parametrize("evil", ["</tenant><x/>", "a'b\"c", "<!--", "&amp;", "]]>"])
def test_no_value_breaks_out_of_its_element(evil: str) -> None:
    mark = replace(SPEC.mark, tenant=evil)
    spec = replace(SPEC, mark=mark, network=evil, name=evil)
    files = DiskFiles(root=replace(ROOT, path=evil, backing=replace(BASE, path=evil)))

    parsed = domain_xml.parse_domain(build(spec, files))

    assert parsed.mark == mark
    assert parsed.name == evil
    assert parsed.disks[0].path == evil
    shape = [element.tag for element in built().iter()]
    evils = ET.fromstring(build(spec, files))
    assert [element.tag for element in evils.iter()] == shape


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "<metadata/>",
        "<metadata><other:vm xmlns:other='urn:x'><id>1</id></other:vm></metadata>",
        "<metadata><f:vm xmlns:f='https://fuga.invalid/domain/1'/></metadata>",
        "<metadata><f:vm xmlns:f='https://fuga.invalid/domain/1'>"
        "<f:id>1</f:id><f:generation>x</f:generation></f:vm></metadata>",
    ],
)
def test_a_domain_without_a_whole_mark_is_a_stranger(metadata: str) -> None:
    xml = (
        f"<domain type='kvm'><name>s</name><uuid>{VM}</uuid>{metadata}"
        "<memory unit='KiB'>1000</memory><vcpu placement='static' current='1'>2</vcpu>"
        "<devices><disk type='file' device='cdrom'><source file='/a.iso'/></disk>"
        "<disk type='file'><source file='/d.qcow2'/><target dev='sda'/></disk></devices></domain>"
    )

    parsed = domain_xml.parse_domain(xml)

    assert parsed.mark is None
    assert (parsed.vcpus, parsed.memory_mib) == (2, 1)
    disk = domain_xml.Disk(pool=None, volume=None, path="/d.qcow2", target="sda")
    assert parsed.disks == (disk,)


def test_an_overlay_names_its_base_and_takes_no_room() -> None:
    volume = ET.fromstring(domain_xml.overlay_xml("v.qcow2", 60, "/pool/base.raw", "raw"))

    assert volume.findtext("allocation") == "0"
    assert volume.findtext("capacity") == "60"
    assert volume.findtext("backingStore/path") == "/pool/base.raw"
    backing = volume.find("backingStore/format")
    assert backing is not None
    assert backing.get("type") == "raw"
    assert ET.fromstring(domain_xml.overlay_xml("v", 5, None, None)).find("backingStore") is None
