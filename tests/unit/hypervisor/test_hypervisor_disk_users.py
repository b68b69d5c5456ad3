"""Which files of a VM stay because a domain uses them, and what is said of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape

import libvirt
import pytest

from hypervisor import OperationFailedError
from hypervisor.child import serial_logs, snapshots
from hypervisor.child.driver import LibvirtHost
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
    "../a/snap1",
)


@pytest.fixture
def conn() -> Iterator[libvirt.virConnect]:
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
) -> None:
    uuid = f"<uuid>{vm_id}</uuid>" if vm_id else ""
    conn.defineXML(
        f"<domain type='test'><name>{name}</name>{uuid}{metadata}<memory unit='MiB'>32</memory>"
        "<os><type>hvm</type></os><devices><disk type='file' device='disk'>"
        f"<source file='{disk}'/><target dev='vda'/></disk></devices></domain>"
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


def remove(conn: libvirt.virConnect) -> bool:
    """Remove the VM with MARK, whose own volume is DISK in the pool `a`."""
    return LibvirtHost("test:///default")._remove(
        conn,
        vm_id="22222222-2222-4222-8222-222222222222",
        assignment_id="33333333-3333-4333-8333-333333333333",
        generation=1,
        pool="a",
        volumes=[DISK],
    )


@pytest.fixture
def vm_with_snapshot(conn: libvirt.virConnect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Define a VM that writes to `/a/snap1`, over `/a/DISK`."""
    monkeypatch.setattr(serial_logs, "delete", lambda *_: None)
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
    monkeypatch.setattr(serial_logs, "delete", lambda *_: None)
    files = {"a": {DISK: ""}, "c": {"s1": f"/a/{DISK}"}, "d": {}}
    files[pool] = files[pool] | {file: below}
    for name, content in files.items():
        make_pool(conn, name, content)
    define(conn, "web", MARK, disk="/c/s1", vm_id="22222222-2222-4222-8222-222222222222")
    before = files_of(conn, *files)
    said = (
        f"{DISK}: not deleted, as volume {pool}/{file} rests on it; delete {pool}/{file}, or give"
        " it another base"
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
    monkeypatch.setattr(serial_logs, "delete", lambda *_: None)
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

    snapshots.delete(
        conn, conn.storagePoolLookupByName("a"), own, [DISK], "22222222-2222-4222-8222-222222222222"
    )

    assert files_of(conn, "a") == {"/a/memory", f"/a/{DISK}"}
