"""A pool that is asked beside a look at its host."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any, cast

import libvirt
import pytest

from hypervisor.child.background_calls import BackgroundCall
from hypervisor.child.driver import LibvirtHost
from hypervisor.child.idle_connections import IdleConnections
from hypervisor.child.pool_watch import PoolWatch, SeenPool, SilentPool

LATER_S = 60.0


class SlowPool:
    """A host's libvirt with one pool, which is looked through when the test says so."""

    def __init__(self) -> None:
        self.asked = 0
        self.go: queue.SimpleQueue[None] = queue.SimpleQueue()

    def isAlive(self) -> bool:  # noqa: N802 - libvirt's name
        return True

    def storagePoolLookupByName(self, name: str) -> Any:  # noqa: N802 - libvirt's name
        if name != "default":
            raise libvirt.libvirtError("no such pool")
        return self

    def refresh(self, _flags: int) -> None:
        self.asked += 1
        self.go.get()

    def isActive(self) -> bool:  # noqa: N802 - libvirt's name
        return True

    def info(self) -> tuple[int, int, int, int]:
        return 2, 100, 40, 60

    def XMLDesc(self, _flags: int) -> str:  # noqa: N802 - libvirt's name
        return "<pool><target><path>/images</path></target></pool>"

    def listAllVolumes(self, _flags: int) -> list[Any]:  # noqa: N802 - libvirt's name
        return []


def spares(host: object) -> IdleConnections:
    return IdleConnections(lambda: cast("libvirt.virConnect", host))


def test_a_pool_that_always_answers_too_late_is_silent_for_longer_and_longer() -> None:
    host = SlowPool()
    watch = PoolWatch(spares(host))
    waited, times = [], []
    for _ in range(3):
        times.append(time.monotonic())
        watch.start_query("default")
        waited.append(watch.await_state(by=time.monotonic()))
        times.append(time.monotonic())
        host.go.put(None)
        for thread in threading.enumerate():
            if thread.name == "background-call":
                thread.join(LATER_S)
    host.go.put(None)
    watch.start_query("default")
    last = watch.await_state(by=time.monotonic() + LATER_S)

    since = [each.since_s for each in waited if isinstance(each, SilentPool)]
    assert host.asked == 4
    assert len(since) == 3
    assert since[2] >= times[4] - times[1]  # since the first question, not the last
    assert isinstance(last, SeenPool)


def test_whatever_goes_wrong_with_a_question_is_told_to_who_asked() -> None:
    def fail(_conn: libvirt.virConnect) -> None:
        b"\xff".decode()

    question = BackgroundCall(spares(SlowPool()), fail)
    assert not question.is_running_after(LATER_S)
    with pytest.raises(UnicodeDecodeError):
        question.result()


GIB = 1 << 30


@pytest.mark.parametrize(
    ("claims", "disk_gib", "capped"),
    [
        ([20 * GIB, 30 * GIB], 50, None),
        ([100 * GIB], 100, None),
        ([7_800_000_000_000_000_000], 100, "/default-pool/v0 (7264316083 GiB)"),
        ([20 * GIB, 200 * GIB, 300 * GIB], 220, "/default-pool/v2 (300 GiB)"),
    ],
)
def test_a_disk_counts_at_most_what_the_pool_holds_and_is_named(
    monkeypatch: pytest.MonkeyPatch, claims: list[int], disk_gib: int, capped: str | None
) -> None:
    monkeypatch.setattr(
        libvirt.virStorageVol, "info", lambda volume: (0, claims[int(volume.name()[1:])], 512)
    )
    with libvirt.open("test:///default") as conn:
        pool = conn.storagePoolLookupByName("default-pool")
        volumes = [
            pool.createXML(f"<volume><name>v{number}</name><capacity>512</capacity></volume>")
            for number in range(len(claims))
        ]
        disks = "".join(
            f"<disk type='file'><source file='{volume.path()}'/><target dev='sd{letter}'/></disk>"
            for volume, letter in zip(volumes, "abc", strict=False)
        )
        theirs = conn.defineXML(
            "<domain type='test'><name>theirs</name><memory unit='MiB'>32</memory><os>"
            f"<type>hvm</type></os><devices>{disks}</devices></domain>"
        )
        try:
            seen = LibvirtHost("test:///default")._poll_host(conn, "default-pool", LATER_S)
        finally:  # the driver keeps them while any connection is open
            theirs.undefine()
            for volume in volumes:
                volume.delete()

    found = next(domain for domain in seen.domains if domain.name == "theirs")
    assert (found.disk_gib, found.capped_disk) == (disk_gib, capped)
