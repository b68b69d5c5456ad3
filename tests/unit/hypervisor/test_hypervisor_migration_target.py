"""A domain's XML where it arrives: what is the host's is replaced, what the guest sees stays."""

from __future__ import annotations

import uuid
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import pytest

from hypervisor import DomainSpec, Guard, Mark, MoveSpec, VmLimits
from hypervisor.xml import domain as domain_xml
from hypervisor.xml import migration_target
from hypervisor.xml.disks import DiskFile, DiskFiles
from hypervisor.xml.resource_limits import SHARES_PER_VCPU

VM = str(uuid.uuid4())
HERE = DiskFiles(
    root=DiskFile(
        path="/here/a.qcow2", format="qcow2", backing=DiskFile(path="/here/base", format="qcow2")
    ),
    seed=DiskFile(path="/here/a-seed.img", format="raw"),
)
THERE = DiskFiles(
    root=DiskFile(
        path="/there/b.qcow2", format="qcow2", backing=DiskFile(path="/there/base", format="raw")
    ),
    seed=DiskFile(path="/there/b-seed.img", format="raw"),
)
APART = Guard(filtered=True, isolated=True, address="10.0.0.7")


def a_mark(assignment: str, generation: int) -> Mark:
    return Mark(vm_id=VM, assignment_id=assignment, generation=generation, tenant="a & b", round=7)


def a_domain(**changes: Any) -> str:
    spec = DomainSpec(
        mark=a_mark("old", 1),
        name=f"fuga-{VM}",
        domain_type="kvm",
        vcpus=3,
        memory_mib=512,
        pool="default",
        volume="a.qcow2",
        seed_volume="a-seed.img",
        network="default",
        mac="52:54:00:00:00:01",
        limits=VmLimits(disk_iops=100, net_mbps=10),
        guard=Guard(filtered=False, isolated=False),
    )
    return domain_xml.build_domain_xml(replace(spec, **changes), HERE)


def a_move(**changes: Any) -> MoveSpec:
    spec = MoveSpec(
        vm_id=VM,
        mark=a_mark("new", 2),
        pool="fast",
        volume="b.qcow2",
        seed_volume="b-seed.img",
        network="br7",
        network_kind="bridge",
        guard=APART,
    )
    return replace(spec, **changes)


def moved(xml: str, *, shares: bool = True, **changes: Any) -> ET.Element:
    return ET.fromstring(
        migration_target.destination_xml(xml, a_move(**changes), THERE, shares=shares)
    )


def test_it_carries_the_arriving_mark_alone() -> None:
    arrived = moved(a_domain())

    assert domain_xml.parse_domain(ET.tostring(arrived, encoding="unicode")).mark == a_mark(
        "new", 2
    )
    assert len(arrived.findall("metadata/*")) == 1


def test_metadata_of_others_stays() -> None:
    document = ET.fromstring(a_domain())
    metadata = document.find("metadata")
    assert metadata is not None
    ET.SubElement(metadata, "{https://example.org}note").text = "theirs"

    arrived = moved(ET.tostring(document, encoding="unicode"))

    assert arrived.findtext("metadata/{https://example.org}note") == "theirs"


def test_its_disks_are_the_destinations_with_all_that_they_rest_on() -> None:
    root, seed = moved(a_domain()).findall("devices/disk")

    assert [each.get("file") for each in root.iter("source")] == ["/there/b.qcow2", "/there/base"]
    assert [each.get("type") for each in root.iter("format")] == ["raw"]
    assert [each.get("file") for each in seed.iter("source")] == ["/there/b-seed.img"]
    assert seed.find("readonly") is not None


def test_its_card_is_plugged_into_the_destinations_network_and_keeps_its_mac() -> None:
    (card,) = moved(a_domain()).findall("devices/interface")

    assert card.get("type") == "bridge"
    source = card.find("source")
    assert source is not None
    assert source.attrib == {"bridge": "br7"}
    mac = card.find("mac")
    assert mac is not None
    assert mac.get("address") == "52:54:00:00:00:01"
    reference = card.find("filterref")
    assert reference is not None
    assert [each.get("value") for each in reference if each.get("name") == "IP"] == ["10.0.0.7"]


def test_a_name_that_libvirt_gave_the_cards_end_is_left_to_the_destination() -> None:
    document = ET.fromstring(a_domain())
    (card,) = document.findall("devices/interface")
    ET.SubElement(card, "target", dev="vnet3")

    (there,) = moved(ET.tostring(document, encoding="unicode")).findall("devices/interface")

    assert there.find("target") is None


def test_without_a_guard_the_protection_of_its_card_stays() -> None:
    here = a_domain(guard=APART)

    (there,) = moved(here, guard=None).findall("devices/interface")

    (before,) = ET.fromstring(here).findall("devices/interface")
    for tag in ("filterref", "port"):
        found, expected = there.find(tag), before.find(tag)
        assert found is not None
        assert expected is not None
        assert ET.tostring(found) == ET.tostring(expected)


@pytest.mark.parametrize("had", [True, False])
def test_it_has_shares_where_the_destination_keeps_them(had: bool) -> None:
    document = ET.fromstring(a_domain())
    if not had:
        tune = document.find("cputune")
        assert tune is not None
        document.remove(tune)
    xml = ET.tostring(document, encoding="unicode")

    assert [each.text for each in moved(xml).findall("cputune/shares")] == [
        str(3 * SHARES_PER_VCPU)
    ]
    assert moved(xml, shares=False).find("cputune") is None


def test_what_the_guest_sees_stays() -> None:
    here, there = ET.fromstring(a_domain()), moved(a_domain())

    for tag in ("name", "uuid", "memory", "vcpu", "os", "features", "cpu", "clock"):
        found, expected = there.find(tag), here.find(tag)
        assert found is not None
        assert expected is not None
        assert ET.tostring(found) == ET.tostring(expected)
    for path in ("devices/disk/target", "devices/disk/iotune", "devices/interface/bandwidth"):
        assert [ET.tostring(each) for each in there.findall(path)] == [
            ET.tostring(each) for each in here.findall(path)
        ]
    assert [ET.tostring(each) for each in there.findall("devices/serial")] == [
        ET.tostring(each) for each in here.findall("devices/serial")
    ]


def test_a_domain_of_fugas_is_bound_to_no_host() -> None:
    assert migration_target.host_device_of(ET.fromstring(a_domain())) is None
    assert migration_target.host_device_of(ET.fromstring(a_domain(seed_volume=None))) is None


@pytest.mark.parametrize(
    ("xml", "named"),
    [
        ("<hostdev type='pci'/>", "hostdev of type pci"),
        ("<filesystem type='mount'/>", "filesystem of type mount"),
        ("<interface type='direct'/>", "interface of type direct"),
        ("<shmem name='x'/>", "shmem"),
        ("<disk type='file'><source file='/x'/><target dev='vdc'/></disk>", "disk vdc"),
        ("<disk type='file'><readonly/><target dev='hda'/></disk>", "disk hda"),
    ],
)
def test_a_domain_that_uses_what_is_its_hosts_is_bound_to_it(xml: str, named: str) -> None:
    document = ET.fromstring(a_domain())
    devices = document.find("devices")
    assert devices is not None
    devices.append(ET.fromstring(xml))

    bound = migration_target.host_device_of(document)

    assert bound is not None
    assert named in bound
