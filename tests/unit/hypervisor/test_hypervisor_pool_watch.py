"""A pool that is asked beside a look at its host."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any, cast

import libvirt
import pytest

from hypervisor.child.background_calls import BackgroundCall
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
