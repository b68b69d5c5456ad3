"""Which files of a VM stay because a domain uses them, and what is said of them."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from xml.sax.saxutils import escape

import libvirt
import pytest

from hypervisor import OperationFailedError
from hypervisor.child import serial_logs, snapshots
from hypervisor.child.backing_chains import HostFiles
from hypervisor.child.driver import LibvirtHost
from hypervisor.model import IMAGE_PREFIX
from hypervisor.xml.domain import NAMESPACE

DISK = "fuga-11111111-1111-4111-8111-111111111111.qcow2"
MARK = (
    f"<metadata><f:vm xmlns:f='{NAMESPACE}'><f:id>22222222-2222-4222-8222-222222222222</f:id>"
    "<f:assignment>33333333-3333-4333-8333-333333333333</f:assignment>"
    "<f:generation>1</f:generation><f:tenant>a</f:tenant><f:round>1</f:round></f:vm></metadata>"
)


#: Names by which a file in `/c` may refer to the snapshot, or to the disk, in QEMU's forms.
BACKING_NAMES = (
    f'json:{{"driver":"qcow2","file":{{"driver":"file","filename":"/a/{DISK}"}}}}',
    f'json:{{"driver":"qcow2","file.driver":"file","file.filename":"/a/{DISK}"}}',
    'json:{"file.filename":"/a/snap1"}',
    'json:{"driver":"qcow2","file":{"driver":"file","filename":"../a/snap1"}}',
    f'json:{{"driver":"raw","file":{{"driver":"qcow2","file":"file:/a/{DISK}"}}}}',
    f'json:{{"driver":"quorum","children":[{{"filename":"/x"}},{{"filename":"/a/{DISK}"}}]}}',
    f'json:{{"file":{{"filename":"json:{{\\"filename\\":\\"/a/{DISK}\\"}}"}}}}',
    f'json:{{"driver":"qcow2","file":{{"filename":"/a/{DISK}"',  # cut off: no document
    f"file:/a/{DISK}",
    f"file:///a/{DISK}",
    f"nbd://10.0.0.1:10809/{DISK}",
    f"nbd+unix:///{DISK}?socket=/run/nbd.sock",
    f"nbd:10.0.0.1:10809:exportname={DISK}",
    f"ssh://root@10.0.0.1/a/{DISK}?host_key_check=no",
    f"blkdebug:/etc/blkdebug.conf:/a/{DISK}",
    f"json:{{'driver':'qcow2','file':{{'filename':'/a/{DISK}'}}}}",
    "../a/snap1",
)


@pytest.fixture
def conn() -> Iterator[libvirt.virConnect]:
    gc.collect()  # connections of earlier errors: the driver keeps its pools while one is open
    opened = libvirt.open("test:///default")
    yield opened
    opened.close()


def define(
    conn: libvirt.virConnect,
    name: str,
    metadata: str = "",
    *,
    disk: str = f"/pool/{DISK}",
    vm_id: str = "",
    kind: str = "qcow2",
    more: str = "",
) -> None:
    uuid = f"<uuid>{vm_id}</uuid>" if vm_id else ""
    conn.defineXML(
        f"<domain type='test'><name>{name}</name>{uuid}{metadata}<memory unit='MiB'>32</memory>"
        "<os><type>hvm</type></os><devices><disk type='file' device='disk'>"
        f"<driver name='qemu' type='{kind}'/><source file='{disk}'/>"
        f"<target dev='vda'/></disk>{more}</devices></domain>"
    )


def make_pool(conn: libvirt.virConnect, name: str, files: Mapping[str, str]) -> None:
    """Make a pool at `/name` with files, each over another one or over none."""
    pool = conn.storagePoolCreateXML(
        f"<pool type='dir'><name>{name}</name><target><path>/{name}</path></target></pool>"
    )
    for file, below in files.items():
        backing = f"<backingStore><path>{escape(below)}</path><format type='qcow2'/></backingStore>"
        pool.createXML(
            f"<volume><name>{file}</name><capacity>1048576</capacity><target>"
            f"<format type='qcow2'/></target>{backing if below else ''}</volume>"
        )


def files_of(conn: libvirt.virConnect, *pools: str) -> set[str]:
    return {
        volume.path()
        for pool in pools
        for volume in conn.storagePoolLookupByName(pool).listAllVolumes()
    }


@pytest.mark.parametrize(
    ("domains", "said"),
    [
        ({"web": MARK}, "domain web uses it; web is a VM of fuga's: leave that as it is"),
        ({"theirs": ""}, "domain theirs uses it; undefine theirs, or give it another disk"),
        (
            {"theirs": "", "web": MARK},
            "domain theirs, web uses it; web is a VM of fuga's: leave that as it is;"
            " undefine theirs, or give it another disk",
        ),
    ],
)
def test_nobody_is_advised_to_undefine_a_vm_of_fugas(
    conn: libvirt.virConnect, domains: dict[str, str], said: str
) -> None:
    for name, metadata in domains.items():
        define(conn, name, metadata)

    with pytest.raises(OperationFailedError) as refused:
        LibvirtHost("test:///default")._delete_volume(conn, "default-pool", DISK)

    assert refused.value.reason == f"{DISK}: not deleted, as {said}"


def test_an_image_stays_under_a_disk_that_no_domain_has(conn: libvirt.virConnect) -> None:
    image = f"{IMAGE_PREFIX}1.1.qcow2"
    make_pool(conn, "a", {image: "", DISK: f"/a/{image}"})
    host = LibvirtHost("test:///default")
    said = f"{image}: not deleted, as volume a/{DISK} rests on it: it is the disk of a VM of fuga's"

    with pytest.raises(OperationFailedError, match=re.escape(said)):
        host._delete_volume(conn, "a", image)

    conn.storagePoolLookupByName("a").storageVolLookupByName(DISK).delete()
    host._delete_volume(conn, "a", image)
    assert files_of(conn, "a") == set()


def remove(
    conn: libvirt.virConnect, host: LibvirtHost | None = None, patience_s: float = 60
) -> bool:
    """Remove the VM with MARK, whose own volume is DISK in the pool `a`."""
    return (host or LibvirtHost("test:///default"))._remove_assignment(
        conn,
        vm_id="22222222-2222-4222-8222-222222222222",
        assignment_id="33333333-3333-4333-8333-333333333333",
        generation=1,
        pool="a",
        volumes=[DISK],
        patience_s=patience_s,
    )


@pytest.fixture
def vm_with_snapshot(conn: libvirt.virConnect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Define a VM that writes to `/a/snap1`, over `/a/DISK`."""
    monkeypatch.setattr(serial_logs, "delete_logs", lambda *_: None)
    make_pool(conn, "a", {DISK: "", "snap1": f"/a/{DISK}"})
    vm_id = "22222222-2222-4222-8222-222222222222"
    define(conn, "web", MARK, disk="/a/snap1", vm_id=vm_id)


@pytest.mark.parametrize(
    ("disk", "others"),
    [
        ("/a/snap1", {}),
        ("/c/f.qcow2", {"f.qcow2": "/a/snap1"}),
        ("/c/f.qcow2", {"f.qcow2": "/c/../a/snap1"}),
        ("/c//f.qcow2", {"f.qcow2": "/c/mid", "mid": "/a/snap1"}),
        ("/c/f.qcow2", {"f.qcow2": "/link-to-a/snap1"}),
        *(("/c/f.qcow2", {"f.qcow2": name}) for name in BACKING_NAMES),
        ("/c/0", {"0": f"/a/{DISK}"} | {str(n): f"/c/{n - 1}" for n in range(1, 90)}),
        ("/c/89", {"0": f"/a/{DISK}"} | {str(n): f"/c/{n - 1}" for n in range(1, 90)}),
        ("/c/loop", {"loop": f'json:{{"file":"/c/loop","backing":"/a/{DISK}"}}'}),
    ],
)
@pytest.mark.usefixtures("vm_with_snapshot")
def test_nothing_of_a_vm_goes_while_a_foreign_domain_rests_on_its_snapshot(
    conn: libvirt.virConnect, disk: str, others: dict[str, str]
) -> None:
    make_pool(conn, "c", others)
    define(conn, "theirs", disk=disk)
    before = files_of(conn, "a", "c")

    with pytest.raises(OperationFailedError, match="domain theirs uses it"):
        remove(conn)

    assert files_of(conn, "a", "c") == before
    assert "/a/snap1" in conn.lookupByName("web").XMLDesc()

    conn.lookupByName("theirs").undefine()
    pool = conn.storagePoolLookupByName("c")
    if others:
        with pytest.raises(OperationFailedError, match=r"as volume c/.* rests on it"):
            remove(conn)
        for volume in pool.listAllVolumes():
            volume.delete()
    assert remove(conn)
    assert files_of(conn, "a", "c") == set()


@pytest.mark.parametrize(
    ("pool", "file", "below"),
    [
        ("c", "f.qcow2", "/c/s1"),
        ("c", "f.qcow2", "s1"),
        ("c", "f.qcow2", f"/a/{DISK}"),
        ("d", "f.qcow2", "/c/s1"),
        ("d", "f.qcow2", 'json:{"driver":"qcow2","file":{"filename":"/link-to-c/s1"}}'),
        ("a", "f.qcow2", f"/a/{DISK}"),
    ],
)
def test_nothing_of_a_vm_goes_while_a_volume_rests_on_its_snapshot_in_another_pool(
    conn: libvirt.virConnect, monkeypatch: pytest.MonkeyPatch, pool: str, file: str, below: str
) -> None:
    monkeypatch.setattr(serial_logs, "delete_logs", lambda *_: None)
    files = {"a": {DISK: ""}, "c": {"s1": f"/a/{DISK}"}, "d": {}}
    files[pool] = files[pool] | {file: below}
    for name, content in files.items():
        make_pool(conn, name, content)
    define(conn, "web", MARK, disk="/c/s1", vm_id="22222222-2222-4222-8222-222222222222")
    before = files_of(conn, *files)
    said = (
        f"{DISK}: not deleted, as volume {pool}/{file} rests on it; move {pool}/{file} out of its"
        " pool's folder if it is a raw disk"
    )

    with pytest.raises(OperationFailedError, match=re.escape(said)):
        remove(conn)

    assert files_of(conn, *files) == before

    conn.storagePoolLookupByName(pool).storageVolLookupByName(file).delete()
    assert remove(conn)
    assert files_of(conn, *files) == set()


def test_a_volume_in_the_pool_of_a_vm_without_snapshots_keeps_the_disk_it_rests_on(
    conn: libvirt.virConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serial_logs, "delete_logs", lambda *_: None)
    make_pool(conn, "a", {DISK: "", "clone": f"/a/{DISK}", "other": "/a/base", "base": ""})
    define(conn, "web", MARK, disk=f"/a/{DISK}", vm_id="22222222-2222-4222-8222-222222222222")

    with pytest.raises(OperationFailedError, match="as volume a/clone rests on it"):
        remove(conn)

    conn.storagePoolLookupByName("a").storageVolLookupByName("clone").delete()
    assert remove(conn)
    assert files_of(conn, "a") == {"/a/other", "/a/base"}


@pytest.mark.parametrize("below", ["/a/memory", "/c/../a/memory", "/link-to-a/memory"])
@pytest.mark.usefixtures("vm_with_snapshot")
def test_a_file_of_a_vm_that_does_not_rest_on_its_disk_stays_for_its_user_alone(
    conn: libvirt.virConnect, below: str
) -> None:
    make_pool(conn, "c", {"f.qcow2": below})
    conn.storagePoolLookupByName("a").createXML(
        "<volume><name>memory</name><capacity>1048576</capacity></volume>"
    )
    define(conn, "theirs", disk="/c/f.qcow2")
    own = [f"/a/{name}" for name in ("memory", "snap1")]

    others = list(snapshots._list_other_definitions(conn, VM_ID))
    found = snapshots._unused_files(HostFiles(conn, "a"), own, others)

    assert found == {"/a/snap1"}


VM_ID = "22222222-2222-4222-8222-222222222222"
LEFT = DISK.replace(".qcow2", ".snap1")  # as libvirt names a snapshot by itself


@pytest.mark.parametrize("disk", [None, f"/a/{DISK}", f"/a/{LEFT}"])
@pytest.mark.parametrize(
    ("pools", "volume"),
    [
        ({"a": {DISK: "", LEFT: f"/a/{DISK}", "clone": f"/a/{LEFT}"}}, "a/clone"),
        ({"a": {DISK: "", "x": "/o/mid"}, "o": {"mid": f"/a/{DISK}"}}, "a/x"),
        ({"a": {DISK: "", LEFT: f"/a/{DISK}"}, "o": {"x": f"/a/{LEFT}"}}, "o/x"),
    ],
)
def test_a_clone_over_anything_that_rests_on_a_disk_keeps_all_of_it(
    conn: libvirt.virConnect,
    monkeypatch: pytest.MonkeyPatch,
    pools: dict[str, dict[str, str]],
    volume: str,
    disk: str | None,
) -> None:
    monkeypatch.setattr(serial_logs, "delete_logs", lambda *_: None)
    for name, content in pools.items():
        make_pool(conn, name, content)
    if disk is not None:
        define(conn, "web", MARK, disk=disk, vm_id=VM_ID)
    before = files_of(conn, *pools)

    with pytest.raises(OperationFailedError, match=f"as volume .*{volume}.* rests on it"):
        remove(conn)

    assert files_of(conn, *pools) == before

    for pool in pools:
        for each in conn.storagePoolLookupByName(pool).listAllVolumes():
            if each.name() in {"clone", "x", "mid"}:
                each.delete()
    assert remove(conn)
    assert files_of(conn, *pools) == set()


@pytest.mark.parametrize(
    "header",
    [
        'json:{"driver":"nbd","host":"/b/golden.qcow2","export":"/b/backup.qcow2","x":"zz"}',
        "nbd://h/x?/b/golden.qcow2&/b/backup.qcow2&zz",
        "/b/over-golden",
    ],
)
@pytest.mark.parametrize("kind", ["raw", "qcow2"])
def test_names_that_a_guest_writes_into_its_disk_delete_nothing(
    conn: libvirt.virConnect, monkeypatch: pytest.MonkeyPatch, header: str, kind: str
) -> None:
    monkeypatch.setattr(serial_logs, "delete_logs", lambda *_: None)
    make_pool(conn, "a", {DISK: ""})
    make_pool(conn, "b", {"golden.qcow2": "", "backup.qcow2": "", "data.img": header})
    make_pool(conn, "c", {"snap": "/b/data.img"})
    top, end = ("/b/data.img", "") if kind == "raw" else ("/c/snap", "<backingStore/>")
    below = (
        "<backingStore type='file'><format type='raw'/><source file='/b/data.img'/>"
        "<backingStore/></backingStore>"
    )
    attached = (
        f"<disk type='file' device='disk'><driver name='qemu' type='{kind}'/>"
        f"<source file='{top}'/>{below if end else ''}<target dev='vdb'/></disk>"
    )
    define(conn, "web", MARK, disk=f"/a/{DISK}", vm_id=VM_ID, more=attached)
    kept = files_of(conn, "b")
    if kind == "raw":
        conn.storagePoolLookupByName("c").storageVolLookupByName("snap").delete()

    assert remove(conn)

    assert files_of(conn, "a", "b", "c") == kept


@pytest.mark.parametrize("owner", ["web", "theirs"])
@pytest.mark.parametrize("kind", ["raw", "qcow2"])
def test_a_raw_disk_in_the_pool_of_vms_keeps_none_by_the_name_that_its_guest_wrote(
    conn: libvirt.virConnect, monkeypatch: pytest.MonkeyPatch, kind: str, owner: str
) -> None:
    """A disk that one domain declares as qcow2 does rest on the name in its header."""
    monkeypatch.setattr(serial_logs, "delete_logs", lambda *_: None)
    make_pool(conn, "a", {DISK: "", "data.img": f"/a/{DISK}"})
    attached = (
        "<disk type='file' device='disk'><driver name='qemu' type='raw'/>"
        "<source file='/a/data.img'/><target dev='vdb'/></disk>"
    )
    define(conn, "web", MARK, disk=f"/a/{DISK}", vm_id=VM_ID, more=attached)
    if owner == "theirs":
        define(conn, "web", MARK, disk=f"/a/{DISK}", vm_id=VM_ID)
        define(conn, "theirs", disk="/a/data.img", kind=kind)
    elif kind == "qcow2":
        define(conn, "theirs", disk="/a/data.img", kind=kind)

    if kind == "raw":
        assert remove(conn)
        assert files_of(conn, "a") == {"/a/data.img"}
        return
    with pytest.raises(OperationFailedError, match="as domain theirs uses it"):
        remove(conn)
    assert files_of(conn, "a") == {f"/a/{DISK}", "/a/data.img"}


def test_a_disk_stays_on_which_an_overlay_rests_by_a_base_that_another_domain_declares_raw(
    conn: libvirt.virConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raw is libvirt's default where a definition does not declare a format."""
    monkeypatch.setattr(serial_logs, "delete_logs", lambda *_: None)
    make_pool(conn, "a", {DISK: "", "base.qcow2": f"/a/{DISK}"})
    make_pool(conn, "c", {"over.qcow2": "/a/base.qcow2"})
    define(conn, "web", MARK, disk=f"/a/{DISK}", vm_id=VM_ID)
    define(conn, "theirs", disk="/c/over.qcow2")
    define(conn, "rescue", disk="/a/base.qcow2", kind="raw")

    with pytest.raises(OperationFailedError, match="as domain theirs uses it"):
        remove(conn)

    assert f"/a/{DISK}" in files_of(conn, "a")


@pytest.mark.parametrize(
    ("disk", "kind", "found"),
    [
        (f"/a/{DISK}", "qcow2", []),
        ("/a/snap1", "qcow2", ["snap1"]),
        ("/a/data.img", "raw", ["data.img"]),  # an operator exchanged its disk
    ],
)
def test_files_that_go_with_a_vm_are_known_before_so_that_other_hosts_are_asked(
    conn: libvirt.virConnect,
    monkeypatch: pytest.MonkeyPatch,
    disk: str,
    kind: str,
    found: list[str],
) -> None:
    monkeypatch.setattr(serial_logs, "delete_logs", lambda *_: None)
    make_pool(conn, "a", {DISK: "", "snap1": f"/a/{DISK}", "data.img": ""})
    if disk != "/a/snap1":
        conn.storagePoolLookupByName("a").storageVolLookupByName("snap1").delete()
    define(conn, "web", MARK, disk=disk, kind=kind, vm_id=VM_ID)
    before = files_of(conn, "a")

    listed = LibvirtHost("test:///default")._files_removed_with(
        conn,
        vm_id=VM_ID,
        assignment_id="33333333-3333-4333-8333-333333333333",
        pool="a",
        volumes=[DISK],
        patience_s=60,
    )

    assert listed == found
    assert files_of(conn, "a") == before
    assert remove(conn)
    assert files_of(conn, "a") == before - {f"/a/{each}" for each in (DISK, *found)}


@pytest.mark.parametrize(
    ("kind", "most"), [("raw", 3), ("qcow2", 40)]
)  # the disk itself is looked up
def test_a_guests_header_costs_a_deletion_few_looks(
    conn: libvirt.virConnect, monkeypatch: pytest.MonkeyPatch, kind: str, most: int
) -> None:
    monkeypatch.setattr(serial_logs, "delete_logs", lambda *_: None)
    names = [f"{one}{other}" for one in "abcdefghijklmnop" for other in "abcdefghijklmnop"]
    make_pool(conn, "a", {DISK: ""})
    make_pool(conn, "b", {"data.img": f"nbd://h/x?{'&'.join(names)}"})
    define(conn, "theirs", disk="/b/data.img", kind=kind)
    looked: list[str] = []
    refreshed: list[str] = []
    look, refresh = libvirt.virConnect.storageVolLookupByPath, libvirt.virStoragePool.refresh

    def looking(self: libvirt.virConnect, path: str) -> libvirt.virStorageVol:
        looked.append(path)
        return look(self, path)

    def refreshing(self: libvirt.virStoragePool, flags: int = 0) -> Any:
        refreshed.append(self.name())
        return refresh(self, flags)

    monkeypatch.setattr(libvirt.virConnect, "storageVolLookupByPath", looking)
    monkeypatch.setattr(
        libvirt.virConnect,
        "storagePoolLookupByTargetPath",
        lambda self, path: self.storagePoolLookupByName(path.strip("/")),
    )
    monkeypatch.setattr(libvirt.virStoragePool, "refresh", refreshing)

    assert remove(conn)

    assert len(looked) <= most
    assert refreshed.count("b") <= 1


@pytest.mark.usefixtures("vm_with_snapshot")
def test_a_pool_that_hangs_is_asked_once_and_named(
    conn: libvirt.virConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pool(conn, "nfs", {"x.iso": ""})
    back, requested = threading.Event(), []
    read = libvirt.virStorageVol.XMLDesc

    def hanging(self: libvirt.virStorageVol, flags: int = 0) -> Any:
        if self.name() == "x.iso":
            requested.append(self.name())
            assert back.wait(60)
        return read(self, flags)

    monkeypatch.setattr(libvirt.virStorageVol, "XMLDesc", hanging)
    host = LibvirtHost("test:///default")
    try:
        for _ in range(3):
            with pytest.raises(OperationFailedError, match=r"/nfs/x.iso has not answered .*virsh"):
                remove(conn, host, patience_s=0.05)
        assert requested == ["x.iso"]
        assert not conn.lookupByName("web").isActive()
        assert files_of(conn, "a") == {f"/a/{DISK}", "/a/snap1"}
    finally:
        back.set()

    assert remove(conn, host, patience_s=60)
    assert files_of(conn, "a") == set()
    assert requested == ["x.iso"]  # its late answer is used


@pytest.mark.usefixtures("vm_with_snapshot")
def test_a_volume_that_cannot_be_read_is_named_with_what_to_do(
    conn: libvirt.virConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pool(conn, "lun", {"x": ""})
    read = libvirt.virStorageVol.XMLDesc

    def failing(self: libvirt.virStorageVol, flags: int = 0) -> Any:
        if self.name() == "x":
            raise libvirt.libvirtError("cannot open volume: no such device")
        return read(self, flags)

    monkeypatch.setattr(libvirt.virStorageVol, "XMLDesc", failing)

    with pytest.raises(OperationFailedError, match=r"/lun/x cannot be read.*virsh pool-refresh"):
        remove(conn)

    conn.storagePoolLookupByName("lun").destroy()
    assert remove(conn)


@pytest.mark.usefixtures("vm_with_snapshot")
def test_pools_without_files_are_not_read(
    conn: libvirt.virConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn.storagePoolCreateXML(
        "<pool type='logical'><name>vg</name><source><name>vg</name></source>"
        "<target><path>/dev/vg</path></target></pool>"
    ).createXML("<volume><name>x</name><capacity>1048576</capacity></volume>")
    read: list[str] = []
    look = libvirt.virStorageVol.XMLDesc

    def reading(self: libvirt.virStorageVol, flags: int = 0) -> Any:
        read.append(self.name())
        return look(self, flags)

    monkeypatch.setattr(libvirt.virStorageVol, "XMLDesc", reading)

    assert remove(conn)

    assert "x" not in read


@pytest.mark.parametrize(
    "pools",
    [
        {"a": {DISK: ""}, "c": {"s1": f"/a/{DISK}"}},  # the domain has it by a link
        {"a": {DISK: "", "snap1": f"/a/{DISK}"}, "bak": {DISK: "", "inc1": f"/bak/{DISK}"}},
    ],
)
def test_neither_a_vms_own_snapshot_nor_a_copy_of_its_disk_keeps_it(
    conn: libvirt.virConnect, monkeypatch: pytest.MonkeyPatch, pools: dict[str, dict[str, str]]
) -> None:
    monkeypatch.setattr(serial_logs, "delete_logs", lambda *_: None)
    for name, content in pools.items():
        make_pool(conn, name, content)
    below = f"<backingStore type='file'><format type='qcow2'/><source file='/a/{DISK}'/>"
    disk = "/a/snap1" if "bak" in pools else "/link-to-c/s1"
    define(conn, "web", MARK, disk=disk, vm_id=VM_ID, more="")
    xml = conn.lookupByName("web").XMLDesc()
    conn.defineXML(xml.replace("<target", f"{below}<backingStore/></backingStore><target"))
    stays = files_of(conn, *pools) - {f"/a/{DISK}", "/a/snap1"}

    assert remove(conn)

    assert files_of(conn, *pools) == stays


def test_one_file_by_two_paths_is_known_by_its_times(
    conn: libvirt.virConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pool(conn, "a", {"x": ""})
    make_pool(conn, "b", {"x": "", "y": ""})
    times = {"/a/x": "1.5", "/b/x": "1.5", "/b/y": "2.5"}
    monkeypatch.setattr(
        libvirt.virStorageVol,
        "XMLDesc",
        lambda self, _: (
            f"<volume><target><timestamps><mtime>1</mtime><ctime>{times[self.path()]}</ctime>"
            "</timestamps></target></volume>"
        ),
    )
    files = HostFiles(conn, "a")

    assert files.may_be_same_file("/a/x", "/b/x")
    assert not files.may_be_same_file("/a/x", "/b/y")
    assert files.may_be_same_file("/a/x", "/nowhere/x")
