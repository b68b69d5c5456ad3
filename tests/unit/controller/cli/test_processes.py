"""The processes of `fuga up`, with short programs in their place."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller.embedded.processes import ChildSupervisor, ProcessId, terminate_leftovers
from controller.terminal.errors import CliError
from tests.servers.small_disks import memory_disk

SLEEPS = (sys.executable, "-c", "import time; time.sleep(600)")
#: Says that it will not hear, in a file, then does not hear.
DEAF = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], 'w').close()
time.sleep(600)
"""


def until(condition: Callable[[], bool], within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Stage:
    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self.clock = Clock()
        self.record = folder / "processes.json"
        self.supervisor = ChildSupervisor(
            folder, self.record, dict(os.environ), self.said.append, self.clock
        )

    def identity(self, name: str) -> ProcessId:
        (child,) = [each for each in self.supervisor._children if each.name == name]
        assert child.identity is not None
        return child.identity

    def started(self, name: str) -> ProcessId:
        """Wait until the launcher became the program."""
        identity = self.identity(name)
        until(lambda: b"launch.py" not in Path(f"/proc/{identity.pid}/cmdline").read_bytes())
        return identity


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.supervisor.stop([["one", "two"]], wait_s=0.1)


def test_a_child_has_a_session_of_its_own_so_ctrl_c_passes_it_by(stage: Stage) -> None:
    stage.supervisor.start("one", SLEEPS)

    pid = stage.identity("one").pid
    assert os.getsid(pid) == pid


def test_a_child_that_dies_is_started_again_after_a_pause(stage: Stage) -> None:
    stage.supervisor.start("one", SLEEPS)
    first = stage.identity("one")

    first.signal(signal.SIGKILL)
    until(lambda: not first.alive)
    stage.supervisor.check()
    stage.supervisor.check()
    too_early = stage.identity("one")
    stage.clock.now_s += 0.5
    stage.supervisor.check()

    assert too_early == first
    assert stage.identity("one") != first
    assert stage.identity("one").alive
    assert "one ended unexpectedly (SIGKILL)" in stage.said[0]


def test_a_full_disk_ends_neither_the_supervisor_nor_its_children(tmp_path: Path) -> None:
    with memory_disk(tmp_path / "state", mib=1) as disk:
        stage = Stage(disk.path)
        disk.fill()
        stage.supervisor.start("one", SLEEPS)
        first = stage.identity("one")
        first.signal(signal.SIGKILL)
        until(lambda: not first.alive)
        stage.supervisor.check()
        stage.clock.now_s += 0.5
        stage.supervisor.check()

        assert stage.identity("one").alive
        assert not stage.record.exists()
        assert len([line for line in stage.said if "No space left on device" in line]) == 1

        disk.free()
        stage.clock.now_s += 5.0
        stage.supervisor.check()

        assert json.loads(stage.record.read_text())["one"]["pid"] == stage.identity("one").pid
        stage.supervisor.stop([["one"]], wait_s=0.1)
        assert disk.files() == ["one.log"]


def test_a_child_whose_log_cannot_be_made_runs_without_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    (tmp_path / "one.log").symlink_to(tmp_path / "nowhere" / "log")

    stage.supervisor.start("one", SLEEPS)

    assert stage.identity("one").alive
    assert "one runs without a log" in stage.said[0]
    stage.supervisor.stop([["one"]], wait_s=0.1)


def test_a_child_that_cannot_be_started_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", _no_process_is_left)
        stage.supervisor.start("one", SLEEPS)
        assert "one cannot be started (Resource temporarily unavailable)" in stage.said[0]

    stage.clock.now_s += 0.5
    stage.supervisor.check()

    assert stage.identity("one").alive
    stage.supervisor.stop([["one"]], wait_s=0.1)


def _no_process_is_left(*_: object, **__: object) -> None:
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def test_pauses_grow_while_it_keeps_dying(stage: Stage) -> None:
    stage.supervisor.start("one", (sys.executable, "-c", "raise SystemExit(3)"))

    for _ in range(3):
        until(lambda: (stage.supervisor.check(), not stage.identity("one").alive)[1])
        stage.supervisor.check()
        stage.clock.now_s += 2.0

    pauses = [line.split("again in ")[1].split(" s")[0] for line in stage.said]
    assert pauses[:3] == ["0.5", "1", "2"]
    assert "exit status 3" in stage.said[0]
    with pytest.raises(CliError, match="one does not start"):
        stage.supervisor.raise_if_failing()


def test_stopping_ends_every_child_and_forgets_the_record(stage: Stage) -> None:
    stage.supervisor.start("one", SLEEPS)
    stage.supervisor.start("two", SLEEPS)
    children = [stage.identity(name) for name in ("one", "two")]

    stage.supervisor.stop([["one"], ["two"]])

    assert not any(each.alive for each in children)
    assert not stage.record.exists()


def test_a_child_that_does_not_hear_is_killed_in_bounded_time(stage: Stage, tmp_path: Path) -> None:
    deaf = tmp_path / "deaf"
    stage.supervisor.start("one", (sys.executable, "-c", DEAF, str(deaf)))
    until(deaf.exists)

    stage.supervisor.stop([["one"]], wait_s=0.2)

    assert stage.supervisor._children == []


def test_a_child_that_was_stopped_ends_too(stage: Stage) -> None:
    stage.supervisor.start("one", SLEEPS)
    one = stage.started("one")
    one.signal(signal.SIGSTOP)

    stage.supervisor.stop([["one"]])

    assert not one.alive


PARENT = """
import os, sys, time
from pathlib import Path
from controller.embedded.processes import ChildSupervisor
folder = Path(sys.argv[1])
supervisor = ChildSupervisor(folder, folder / "processes.json", dict(os.environ), print)
supervisor.start("one", (sys.executable, "-c", "import time; time.sleep(600)"))
time.sleep(600)
"""


def a_parent(folder: Path) -> tuple[subprocess.Popen[bytes], ProcessId]:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(folder)])
    record = folder / "processes.json"
    until(record.exists)
    pid = int(record.read_text().split('"pid": ')[1].split(",")[0])
    child = ProcessId.from_pid(pid)
    assert child is not None
    until(lambda: b"launch.py" not in Path(f"/proc/{pid}/cmdline").read_bytes())
    return parent, child


def test_children_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    parent, child = a_parent(tmp_path)

    parent.kill()
    parent.wait()

    until(lambda: not child.alive)


def test_what_outlived_its_parent_is_ended_by_the_next_start(tmp_path: Path) -> None:
    parent, child = a_parent(tmp_path)
    child.signal(signal.SIGSTOP)  # cannot hear that its parent died
    until(lambda: b") T " in Path(f"/proc/{child.pid}/stat").read_bytes())
    parent.kill()
    parent.wait()

    ended = terminate_leftovers(tmp_path / "processes.json")

    assert ended == ["one"]
    assert not child.alive


def test_a_pid_that_is_somebody_elses_by_now_is_left_alone(tmp_path: Path) -> None:
    me = ProcessId.from_pid(os.getpid())
    assert me is not None
    record = tmp_path / "processes.json"
    record.write_text(f'{{"api": {{"pid": {me.pid}, "started": {me.started - 1}}}}}')

    assert terminate_leftovers(record) == []


def test_a_record_cut_short_is_no_obstacle(tmp_path: Path) -> None:
    record = tmp_path / "processes.json"
    record.write_text('{"api": {"pi')

    assert terminate_leftovers(record) == []
