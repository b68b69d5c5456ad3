"""What is said of a volume that is not deleted because a domain uses it."""

from __future__ import annotations

from collections.abc import Iterator

import libvirt
import pytest

from hypervisor import OperationFailedError
from hypervisor.child.driver import LibvirtHost
from hypervisor.xml.domain import NAMESPACE

DISK = "fuga-11111111-1111-4111-8111-111111111111.qcow2"
MARK = (
    f"<metadata><f:vm xmlns:f='{NAMESPACE}'><f:id>22222222-2222-4222-8222-222222222222</f:id>"
    "<f:assignment>33333333-3333-4333-8333-333333333333</f:assignment>"
    "<f:generation>1</f:generation><f:tenant>a</f:tenant><f:round>1</f:round></f:vm></metadata>"
)


@pytest.fixture
def conn() -> Iterator[libvirt.virConnect]:
    opened = libvirt.open("test:///default")
    yield opened
    opened.close()


def define(conn: libvirt.virConnect, name: str, metadata: str) -> None:
    conn.defineXML(
        f"<domain type='test'><name>{name}</name>{metadata}<memory unit='MiB'>32</memory>"
        "<os><type>hvm</type></os><devices><disk type='file' device='disk'>"
        f"<source file='/pool/{DISK}'/><target dev='vda'/></disk></devices></domain>"
    )


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
