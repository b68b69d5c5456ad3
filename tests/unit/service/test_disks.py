"""A disk without room is named, and one that does not answer hangs nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from service import disks
from service.disks import DiskWatch, full_disk_messages
from service.settings import SharedSettings
from tests.servers.running import eventually
from tests.servers.small_disks import memory_disk


def test_a_disk_that_does_not_answer_is_named_and_waited_for_by_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers = threading.Event()
    full = "the disk of the image store (FUGA_IMAGE_STORE) has no room for another file (inodes)"

    def look(_: SharedSettings) -> list[str]:
        answers.wait(timeout=60)
        return [full]

    monkeypatch.setattr(disks, "full_disk_messages", look)
    monkeypatch.setattr(disks, "_FIRST_S", 0.01)
    monkeypatch.setattr(disks, "_HANGS_S", 0.0)
    watch = DiskWatch(SharedSettings(state_dir=tmp_path))

    assert watch.full_disk_messages() == ["a disk of this process does not answer"]

    answers.set()
    eventually(lambda: watch.full_disk_messages() == [full], within_s=60)


def test_the_image_store_is_looked_at_where_it_is_by_default(tmp_path: Path) -> None:
    with memory_disk(tmp_path / "images", mib=40) as disk:
        disk.fill(but_bytes=1 << 20)

        assert full_disk_messages(SharedSettings(state_dir=tmp_path)) == [
            "the disk of the image store (FUGA_IMAGE_STORE) has 1 MiB free, less than its margin"
            " of 2 MiB"
        ]


def test_the_disk_of_the_log_is_named_where_the_log_is_a_file(tmp_path: Path) -> None:
    program = (
        "from service.disks import full_disk_messages; from service.settings import SharedSettings;"
        "print(full_disk_messages(SharedSettings()))"
    )

    def found(log: object) -> str:
        ran = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "FUGA_STATE_DIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=log,  # type: ignore[call-overload]  # a file or a constant
            text=True,
            check=True,
        )
        return str(ran.stdout).strip()

    (tmp_path / "logs").mkdir()
    with memory_disk(tmp_path / "logs", mib=40) as disk:
        disk.fill(but_bytes=1 << 20)
        with (disk.path / "api.log").open("ab") as log:
            in_file = found(log)

    assert in_file == (
        f"['the disk of the log {disk.path}/api.log has 1 MiB free, less than its margin of 2 MiB']"
    )
    assert found(subprocess.PIPE) == "[]"
