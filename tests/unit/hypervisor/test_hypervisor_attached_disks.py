"""Data volumes of VMs: their names and their XML, and which of their files no removal deletes."""

from __future__ import annotations

import gc
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import libvirt
import pytest

from hypervisor import (
    DomainState,
    HostDomain,
    OperationFailedError,
    VmLimits,
    data_volume_name,
    disk_serial,
    wire,
)
from hypervisor.child import snapshots
from hypervisor.child.backing_chains import HostFiles, serial_of_volume
from hypervisor.child.driver import LibvirtHost
from hypervisor.model import IMAGE_PREFIX
from hypervisor.xml import attached_disks
from hypervisor.xml.disks import DiskFile
from hypervisor.xml.domain import parse_domain
from hypervisor.xml.resource_limits import limit_disks
from tests.unit.hypervisor.test_hypervisor_disk_users import DISK, make_pool

VOLUME_ID = "44444444-4444-4444-8444-444444444444"
VOLUME = f"fuga-volume-{VOLUME_ID}.qcow2"
SERIAL = "44444444444444448444"
STEM = DISK.removesuffix(".qcow2")
ATTACHED = f"<serial>{SERIAL}</serial><alias name='ua-fuga-volume-{SERIAL}'/>"


@pytest.fixture
def conn() -> Iterator[libvirt.virConnect]:
    gc.collect()  # connections of earlier errors: the driver keeps its pools while one is open
    opened = libvirt.open("test:///default")
    yield opened
    opened.close()


def disk(name: str, target: str, more: str = "", *, below: str = "") -> str:
    backing = f"<backingStore><format type='qcow2'/><source file='/a/{below}'/></backingStore>"
    return (
        "<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>"
        f"<source file='/a/{name}'/>{backing if below else ''}"
        f"<target dev='{target}' bus='virtio'/>{more}</disk>"
    )


def a_domain(*disks: str) -> ET.Element:
    return ET.fromstring(f"<domain><devices>{''.join(disks)}</devices></domain>")


def a_snapshot(*files: tuple[str, str], of: ET.Element) -> ET.Element:
    """The snapshot of a domain, with the overlays that it made, by target."""
    made = "".join(f"<disk name='{dev}'><source file='/a/{file}'/></disk>" for dev, file in files)
    inside = ET.tostring(of, encoding="unicode")
    return ET.fromstring(f"<domainsnapshot><disks>{made}</disks>{inside}</domainsnapshot>")


def removed_with(conn: libvirt.virConnect, *domain: ET.Element, **more: list[ET.Element]) -> set:
    definitions = snapshots.DomainDefinitions(domain=domain, **more)
    found = snapshots.volume_uses(HostFiles(conn, "a"), [DISK], "", definitions)
    assert not found.domains
    assert not found.volumes
    return {path.rpartition("/")[2] for path in found.files}


def test_a_volume_has_a_name_and_a_serial_number_of_its_own() -> None:
    assert data_volume_name(VOLUME_ID) == VOLUME
    assert disk_serial(VOLUME_ID) == SERIAL
    assert len(SERIAL) == 20
    assert serial_of_volume(VOLUME) == SERIAL
    assert serial_of_volume(DISK) is serial_of_volume(f"{VOLUME}.one") is None


@pytest.mark.parametrize("overlay", ["own.img", f"{STEM}.one", f"fuga-volume-{VOLUME_ID}.one"])
def test_an_overlay_on_a_volume_is_not_removed_with_the_vm(
    conn: libvirt.virConnect, overlay: str
) -> None:
    """A snapshot made it: it has what the guest wrote last."""
    make_pool(conn, "a", {VOLUME: "", overlay: f"/a/{VOLUME}", DISK: "", "mine": f"/a/{DISK}"})
    domain = a_domain(disk("mine", "vda"), disk(overlay, "vdb", ATTACHED))
    snapshot = a_snapshot(("vda", "mine"), ("vdb", overlay), of=domain)

    assert removed_with(conn, domain) == {"mine"}
    assert removed_with(conn, domain, snapshots=[snapshot]) == {"mine"}
    assert removed_with(conn, a_domain(disk("mine", "vda")), snapshots=[snapshot]) == {"mine"}


@pytest.mark.parametrize("overlay", ["own.img", f"{STEM}.one"])
def test_an_overlay_that_was_pulled_from_a_volume_is_not_removed_with_the_vm(
    conn: libvirt.virConnect, overlay: str
) -> None:
    """It rests on nothing: the disk that fuga attached tells whose it is."""
    make_pool(conn, "a", {VOLUME: "", overlay: "", DISK: "", "mine": f"/a/{DISK}"})
    domain = a_domain(disk("mine", "vda"), disk(overlay, "vdb", ATTACHED))
    snapshot = a_snapshot(("vda", "mine"), ("vdb", overlay), of=domain)

    assert removed_with(conn, domain, snapshots=[snapshot]) == {"mine"}
    assert removed_with(conn, a_domain(disk("mine", "vda")), snapshots=[snapshot]) == {"mine"}


def test_a_volume_is_not_removed_with_a_vm_whose_root_disk_is_gone(
    conn: libvirt.virConnect,
) -> None:
    """The volume is the first disk of the definition then."""
    make_pool(conn, "a", {VOLUME: "", DISK: ""})

    assert removed_with(conn, a_domain(disk(VOLUME, "vdb", ATTACHED))) == set()


def test_a_volume_stays_while_an_overlay_rests_on_it(conn: libvirt.virConnect) -> None:
    overlay = f"fuga-volume-{VOLUME_ID}.one"
    make_pool(conn, "a", {VOLUME: "", overlay: f"/a/{VOLUME}"})

    with pytest.raises(OperationFailedError, match=re.escape(f"volume a/{overlay} rests on it")):
        LibvirtHost("test:///default")._delete_volume(conn, "a", VOLUME)


def test_an_image_stays_while_a_volume_rests_on_it(conn: libvirt.virConnect) -> None:
    image = f"{IMAGE_PREFIX}1.1.qcow2"
    make_pool(conn, "a", {image: "", VOLUME: f"/a/{image}"})

    with pytest.raises(OperationFailedError, match=re.escape(f"volume a/{VOLUME} rests on it")):
        LibvirtHost("test:///default")._delete_volume(conn, "a", image)


def test_a_disk_joins_the_limits_of_the_root_disk_and_ends_its_chain() -> None:
    domain = a_domain(disk(DISK, "vda"))
    devices = domain.find("devices")
    assert devices is not None
    limit_disks(devices, VmLimits(disk_iops=500, disk_mib_s=20))

    made = attached_disks.attached_disk(
        DiskFile(path=f"/a/{VOLUME}", format="qcow2"), "vdb", SERIAL, domain
    )

    tuned = [each.find("iotune") for each in (devices[0], made)]
    assert tuned[1] is not None
    assert len({ET.tostring(each) for each in tuned if each is not None}) == 1
    assert made.findtext("serial") == SERIAL
    [driver, source, chain, target] = [
        made.find(tag) for tag in ("driver", "source", "backingStore", "target")
    ]
    assert driver is not None
    assert driver.attrib == {"name": "qemu", "type": "qcow2", "discard": "unmap"}
    assert source is not None
    assert source.attrib == {"file": f"/a/{VOLUME}"}
    assert chain is not None
    assert list(chain) == []
    assert target is not None
    assert target.attrib == {"dev": "vdb", "bus": "virtio"}
    assert attached_disks.is_attached_by_fuga(made)
    devices.append(made)
    assert len({id(each) for each in devices.iter("iotune")}) == 2


def test_a_disk_gets_the_first_target_that_no_definition_has() -> None:
    one = a_domain(disk(DISK, "vda"), disk(VOLUME, "vdc"))
    other = a_domain(disk(DISK, "vda"), disk(VOLUME, "vdb"))
    full = a_domain(*(disk(VOLUME, f"vd{letter}") for letter in "abcdefghijklmnopqrstuvwxyz"))

    assert attached_disks.free_target([one]) == "vdb"
    assert attached_disks.free_target([one, other]) == "vdd"
    assert attached_disks.free_target([full]) == "vdaa"


def test_a_domain_shows_the_serials_of_its_disks_beyond_root_and_seed() -> None:
    seed = disk(f"{STEM}-seed.img", "vdb", "<readonly/><serial>seed</serial>")
    xml = ET.tostring(
        a_domain(
            disk(DISK, "vda", "<serial>root</serial>"),
            seed,
            disk(VOLUME, "vdc", "<serial>b</serial>"),
            disk("more", "vdd", "<serial>a</serial>"),
            disk("unnamed", "vde"),
        ),
        encoding="unicode",
    )

    shown = parse_domain(xml).attached

    assert shown == ("a", "b")
    domain = HostDomain(
        uuid=VOLUME_ID,
        name="x",
        state=DomainState.RUNNING,
        vcpus=1,
        memory_mib=1,
        mark=None,
        attached=shown,
    )
    assert wire.decode_domain(json.loads(wire.encode({"domain": domain}))["domain"]) == domain


@pytest.mark.parametrize("serial", ["", "x" * 21, "a b", "a'/>", "ä", "a\n"])
def test_a_serial_number_that_a_guest_would_not_see_as_it_is_is_refused(serial: str) -> None:
    assert not attached_disks.is_valid_serial(serial)


def test_a_serial_number_of_a_volume_is_accepted() -> None:
    assert attached_disks.is_valid_serial(SERIAL)
