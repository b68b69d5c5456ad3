"""Disks of VMs stay where a foreign domain needs them in a form that is not a backing chain."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator

import libvirt
import pytest

from hypervisor import OperationFailedError
from hypervisor.child import backing_chains, snapshots
from hypervisor.child.backing_chains import HostFiles
from tests.unit.hypervisor.test_hypervisor_disk_users import (
    DISK,
    VM_ID,
    conn,
    define,
    files_of,
    make_pool,
    remove,
    vm_with_snapshot,
)

__all__ = ["conn", "vm_with_snapshot"]

DESCRIPTOR = '# Disk DescriptorFile\ncreateType="monolithicFlat"\nRW 2048 FLAT "{}" 0\n'
#: Heads of files in `/c`, which libvirt shows without a backing file, with an image's content.
HEADS = {
    "qcow2": struct.pack(">4sI64xQ20xIII", b"QFI\xfb", 3, 4, 104, 0x44415441, len(f"/a/{DISK}"))
    + f"/a/{DISK}".encode(),
    "vmdk": DESCRIPTOR.format(f"/a/{DISK}").encode(),
    "sparse vmdk": b"KDMV".ljust(512, b"\0") + DESCRIPTOR.format(f"../a/{DISK}").encode(),
}


@pytest.fixture
def heads(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The content of volumes by their paths, which the test driver does not keep."""
    found: dict[str, bytes] = {}
    monkeypatch.setattr(
        backing_chains, "download", lambda volume, length: found.get(volume.path(), b"")[:length]
    )
    return found


@pytest.mark.parametrize("end", ["", "<backingStore/>"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.usefixtures("vm_with_snapshot")
def test_a_foreign_domain_whose_image_has_its_content_in_a_disk_keeps_it(
    conn: libvirt.virConnect, heads: dict[str, bytes], head: str, end: str
) -> None:
    make_pool(conn, "c", {"f": ""})
    heads["/c/f"] = HEADS[head]
    define(conn, "theirs", disk="/c/f", kind=head.rpartition(" ")[2])
    xml = conn.lookupByName("theirs").XMLDesc()
    conn.defineXML(xml.replace("<target", f"{end}<target"))
    before = files_of(conn, "a", "c")

    with pytest.raises(OperationFailedError, match="domain theirs uses it"):
        remove(conn)

    assert files_of(conn, "a", "c") == before
    conn.lookupByName("theirs").undefine()
    with pytest.raises(OperationFailedError, match="volume c/f rests on it"):
        remove(conn)
    conn.storagePoolLookupByName("c").storageVolLookupByName("f").delete()
    assert remove(conn)
    assert files_of(conn, "a", "c") == set()


@pytest.mark.usefixtures("vm_with_snapshot")
def test_a_raw_disk_in_which_its_guest_wrote_a_descriptor_keeps_nothing(
    conn: libvirt.virConnect, heads: dict[str, bytes]
) -> None:
    make_pool(conn, "c", {"f": ""})
    heads["/c/f"] = HEADS["vmdk"]
    define(conn, "theirs", disk="/c/f", kind="raw")

    assert remove(conn)
    assert files_of(conn, "a", "c") == {"/c/f"}


@pytest.mark.parametrize(
    ("link", "disk", "keeps"),
    [
        ([5, 5], [5], True),
        ([4, 6], [5], True),  # it is written to meanwhile
        ([4, 4], [5], False),
        ([6, 6], [5], False),
        ([4, 5], [6], False),
        ([None], [5], False),
    ],
)
@pytest.mark.usefixtures("vm_with_snapshot")
def test_a_link_of_another_name_is_known_by_its_timestamps(
    conn: libvirt.virConnect,
    monkeypatch: pytest.MonkeyPatch,
    link: list[int | None],
    disk: list[int],
    keeps: bool,
) -> None:
    make_pool(conn, "c", {"other": ""})
    define(conn, "theirs", disk="/c/other")
    times: dict[str, Iterator[int | None]] = {
        "/c/other": itertools.cycle(link),
        f"/a/{DISK}": itertools.cycle(disk),
    }

    def timestamps_of(_: HostFiles, path: str) -> tuple[int, int] | None:
        seconds = next(times[path]) if path in times else None
        return None if seconds is None else (seconds, 0)

    monkeypatch.setattr(HostFiles, "_timestamps_of", timestamps_of)
    if keeps:
        with pytest.raises(OperationFailedError, match="domain theirs uses it"):
            remove(conn)
    else:
        assert remove(conn)


OS = "</os>"
#: What a domain may have besides its disk `/c/f`, as changes to its XML.
OTHER_USES = {
    "kernel": (OS, f"<kernel>/a/{DISK}</kernel>{OS}"),
    "initrd": (OS, f"<kernel>/boot/k</kernel><initrd>/link/{DISK}</initrd>{OS}"),
    "loader": (OS, f"<loader readonly='yes' type='pflash'>/a/{DISK}</loader>{OS}"),
    "variables": (
        OS,
        f"<loader readonly='yes' type='pflash'>/l</loader><nvram>/a/{DISK}</nvram>{OS}",
    ),
    "floppy": (
        "</devices>",
        f"<disk type='file' device='floppy'><source file='/a/{DISK}'/><target dev='fda'/></disk>"
        "</devices>",
    ),
    "network": (
        "</devices>",
        f"<disk type='network'><source protocol='nbd' name='{DISK}'><host name='h'/></source>"
        "<target dev='vdb'/></disk></devices>",
    ),
    "file system": (
        "</devices>",
        f"<filesystem type='file'><source file='/a/{DISK}'/><target dir='/'/></filesystem>"
        "</devices>",
    ),
    "serial": (
        "</devices>",
        f"<serial type='file'><source path='/a/{DISK}'/><target port='0'/></serial></devices>",
    ),
}


@pytest.mark.parametrize("use", OTHER_USES)
@pytest.mark.usefixtures("vm_with_snapshot")
def test_a_foreign_domain_that_names_a_disk_outside_its_disks_keeps_it(
    conn: libvirt.virConnect, use: str
) -> None:
    define(conn, "theirs", disk="/c/f")
    conn.defineXML(conn.lookupByName("theirs").XMLDesc().replace(*OTHER_USES[use]))

    with pytest.raises(OperationFailedError, match="domain theirs uses it; undefine theirs"):
        remove(conn)

    assert files_of(conn, "a") == {f"/a/{DISK}", "/a/snap1"}


@pytest.mark.parametrize(
    "said", [f"<title>a copy of /a/{DISK}</title>", f"<description>{DISK}</description>"]
)
@pytest.mark.usefixtures("vm_with_snapshot")
def test_what_people_write_of_a_domain_and_longer_names_keep_nothing(
    conn: libvirt.virConnect, said: str
) -> None:
    define(conn, "theirs", said, disk=f"/c/{DISK}.copy")

    assert remove(conn)


def redefine_snapshot(domain: libvirt.virDomain, disk: str, overlay: str) -> None:
    """Have libvirt keep a snapshot, as `virsh snapshot-create --redefine` does."""
    then = domain.XMLDesc().replace("/c/f", disk)
    domain.snapshotCreateXML(
        "<domainsnapshot><name>s1</name><state>shutoff</state><creationTime>1</creationTime>"
        f"<disks><disk name='vda' snapshot='external' type='file'><driver type='qcow2'/>"
        f"<source file='{overlay}'/></disk></disks>{then}</domainsnapshot>",
        libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE,
    )


@pytest.mark.parametrize(
    ("disk", "overlay"),
    [(f"/a/{DISK}", "/c/f"), ("/c/g", f"/a/{DISK}"), ("/c/over", "/c/f"), ("/c/g", "/c/over")],
)
@pytest.mark.usefixtures("vm_with_snapshot")
def test_a_foreign_domain_whose_snapshot_needs_a_disk_keeps_it(
    conn: libvirt.virConnect, disk: str, overlay: str
) -> None:
    make_pool(conn, "c", {"over": f"/a/{DISK}"})
    define(conn, "theirs", disk="/c/f")
    redefine_snapshot(conn.lookupByName("theirs"), disk, overlay)

    with pytest.raises(OperationFailedError, match="what names it is snapshot s1 of theirs"):
        remove(conn)

    users = snapshots.domains_using(HostFiles(conn, "a"), [DISK])
    assert users == ["theirs (snapshot s1)", "web"]
    conn.lookupByName("theirs").snapshotLookupByName("s1").delete()
    conn.storagePoolLookupByName("c").storageVolLookupByName("over").delete()
    assert remove(conn)


@pytest.mark.usefixtures("vm_with_snapshot")
def test_a_file_of_a_vm_stays_for_a_foreign_snapshot_that_names_it(
    conn: libvirt.virConnect,
) -> None:
    conn.storagePoolLookupByName("a").createXML(
        "<volume><name>memory</name><capacity>1048576</capacity></volume>"
    )
    define(conn, "theirs", disk="/c/f")
    redefine_snapshot(conn.lookupByName("theirs"), "/c/f", "/a/memory")

    others = list(snapshots._list_other_definitions(conn, VM_ID))
    found = snapshots._unused_files(HostFiles(conn, "a"), ["/a/memory", "/a/snap1"], others)

    assert found == {"/a/snap1"}


@pytest.mark.usefixtures("vm_with_snapshot")
def test_a_foreign_domain_whose_checkpoint_names_a_disk_keeps_it(conn: libvirt.virConnect) -> None:
    define(conn, "theirs", disk="/c/f")
    theirs = conn.lookupByName("theirs")
    theirs.create()
    then = theirs.XMLDesc().replace("/c/f", f"/a/{DISK}")
    theirs.checkpointCreateXML(
        "<domaincheckpoint><name>c1</name><creationTime>1</creationTime><disks>"
        f"<disk name='vda' checkpoint='bitmap' bitmap='c1'/></disks>{then}</domaincheckpoint>",
        libvirt.VIR_DOMAIN_CHECKPOINT_CREATE_REDEFINE,
    )

    with pytest.raises(OperationFailedError, match="checkpoint c1 of theirs"):
        remove(conn)


@pytest.mark.parametrize(
    ("answer", "stays"),
    [
        (f"<domain><devices><disk><source file='/a/{DISK}'/></disk></devices></domain>", True),
        (libvirt.VIR_ERR_OPERATION_FAILED, False),  # an incomplete image
        (libvirt.VIR_ERR_NO_SUPPORT, False),
        (libvirt.VIR_ERR_SYSTEM_ERROR, True),
    ],
)
@pytest.mark.usefixtures("vm_with_snapshot")
def test_a_foreign_domain_whose_saved_state_names_a_disk_keeps_it(
    conn: libvirt.virConnect, monkeypatch: pytest.MonkeyPatch, answer: str | int, stays: bool
) -> None:
    define(conn, "theirs", disk="/c/f")
    theirs = conn.lookupByName("theirs")
    theirs.create()
    theirs.managedSave()

    def read(_: libvirt.virDomain, __: int) -> str:
        if isinstance(answer, str):
            return answer
        error = libvirt.libvirtError("no")
        error.err = (answer, 0, "no", 2, None, None, None, 0, 0)
        raise error

    monkeypatch.setattr(libvirt.virDomain, "managedSaveGetXMLDesc", read)

    if not stays:
        assert remove(conn)
        return
    with pytest.raises(OperationFailedError, match=r"saved state of (domain )?theirs"):
        remove(conn)
