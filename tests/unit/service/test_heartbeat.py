"""What a process lacks as it starts is not told for as long as a beat lasts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import cast

from registry import Registry
from service import Check
from service.disks import full_disk_messages
from service.heartbeat import sending_heartbeats, start_stamp
from service.settings import SharedSettings
from tests.servers.running import eventually
from tests.servers.small_disks import memory_disk


class Processes:
    """Keeps what is told."""

    def __init__(self) -> None:
        self.troubles: list[str | None] = []

    def register(self, *_: object, **__: object) -> None:
        """Take it."""

    def record_heartbeat(self, kind: str, name: str, trouble: str | None) -> bool:
        self.troubles.append(trouble)
        return True

    def unregister(self, kind: str, name: str) -> None:
        """Take it."""


class Register:
    def __init__(self) -> None:
        self.processes = Processes()


def test_who_is_not_ready_looks_again_soon_and_then_at_each_beat() -> None:
    checks = iter([Check("lease", False, "not requested yet")])
    register = Register()

    with sending_heartbeats(
        cast(Registry, register),
        "control centre",
        "c",
        ready=lambda: [next(checks, Check("lease", True, "another process leads"))],
        interval_s=3600,
    ):
        eventually(lambda: len(register.processes.troubles) == 2, within_s=60)

    assert register.processes.troubles == ["lease: not requested yet", None]


def test_a_process_whose_disks_have_no_room_works_on_and_tells_of_them(tmp_path: Path) -> None:
    settings = SharedSettings(state_dir=tmp_path / "state")
    register = Register()
    with memory_disk(tmp_path / "state", mib=40) as disk:
        assert full_disk_messages(settings) == []
        disk.fill(but_bytes=1 << 20)
        with sending_heartbeats(
            cast(Registry, register),
            "worker",
            "w",
            ready=lambda: [Check("broker", True, "it answers")],
            settings=settings,
            interval_s=3600,
        ):
            eventually(lambda: register.processes.troubles, within_s=60)
        disk.free()
        assert full_disk_messages(settings) == []

    assert register.processes.troubles == [
        "the disk of the database has 1 MiB free, less than its margin of 2 MiB"
    ]


def test_a_process_has_a_stamp_of_its_own_until_it_ends() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        own, its = start_stamp(os.getpid()), start_stamp(child.pid)
        again = start_stamp(child.pid)
    finally:
        child.kill()
    eventually(lambda: start_stamp(child.pid) is None, within_s=60)  # nobody has waited for it
    child.wait()

    assert own is not None
    assert its is not None
    assert own != its
    assert again == its
    assert start_stamp(child.pid) is None
