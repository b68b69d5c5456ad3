"""What `fuga up` says of hosts whose daemons end by themselves, and what it starts again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from controller.embedded.lab_hosts import QEMU, TEST, LabHosts
from controller.embedded.lab_watch import LabWatch
from lab.cluster import LabHost
from lab.driver_hosts import DriverHost
from lab.errors import LabError


def a_host(folder: Path) -> LabHost:
    return LabHost(
        name="labhost1",
        uri="qemu+unix:///system?socket=/nowhere",
        domain_type="qemu",
        pool="default",
        network="default",
        base_volume=None,
        images_dir=None,
        log_dir=folder,
    )


class DriverHosts:
    """One host of the test driver that does not run, and starts as often as it is told."""

    def __init__(self, folder: Path) -> None:
        (folder / "test-hosts" / "1").mkdir(parents=True)
        (folder / "test-hosts" / "work-dir").write_text(str(folder / "work"))
        self.said: list[str] = []
        self.started_at: list[float] = []
        self.now_s = 1000.0
        self.fails = False
        lab = LabHosts(driver=TEST, hosts=(replace(a_host(folder), domain_type="test"),))
        self.watch = LabWatch(
            folder, lab, ["host-1"], self.said.append, lambda: self.now_s, self.start
        )

    def start(self, host: DriverHost) -> None:
        if self.fails:
            raise LabError("no room")
        self.started_at.append(self.now_s - 1000)

    def let_pass(self, length_s: float) -> None:
        for _ in range(int(length_s * 2)):
            self.watch.check()
            self.now_s += 0.5


@pytest.fixture
def ended(tmp_path: Path) -> DriverHosts:
    return DriverHosts(tmp_path)


def test_what_real_hosts_tell_is_said_once_and_nothing_from_before(tmp_path: Path) -> None:
    said: list[str] = []
    log = tmp_path / "daemons.log"
    log.write_text("2026-01-01 10:00:00 libvirtd ended (SIGSEGV); it starts again in 1 s\n")
    watch = LabWatch(
        tmp_path, LabHosts(driver=QEMU, hosts=(a_host(tmp_path),)), ["host-1"], said.append
    )

    watch.check()
    with log.open("a") as more:
        more.write("2026-01-01 10:00:09 virtlogd ended (SIGABRT); it starts again in 2 s\n")
    watch.check()
    watch.check()

    assert said == ["host-1: virtlogd ended (SIGABRT); it starts again in 2 s. Guests run on."]


def test_a_host_that_ends_again_and_again_is_started_after_pauses_that_double(
    ended: DriverHosts,
) -> None:
    ended.let_pass(200)

    pauses = [int(line.rsplit(maxsplit=2)[1]) for line in ended.said]
    assert pauses[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert len(ended.started_at) == len(pauses) - 1
    assert ended.said[0] == (
        "host-1: its libvirtd ended, and all that was on it is gone; it starts again in 1 s"
    )


def test_a_host_that_does_not_start_is_tried_again_later(ended: DriverHosts) -> None:
    ended.fails = True
    ended.let_pass(2)
    ended.fails = False
    ended.let_pass(2)

    assert ended.said[1] == "host-1: its libvirtd does not start: no room; it starts again in 2 s"
    assert ended.started_at == [3.0]


def test_a_host_that_lived_long_is_started_soon_again(ended: DriverHosts) -> None:
    ended.let_pass(10)
    began = len(ended.said)
    ended.watch._restarts["host-1"].start_at = None
    ended.now_s += 100

    ended.watch.check()

    assert ended.said[began].endswith("in 1 s")
