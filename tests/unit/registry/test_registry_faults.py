"""Checkpoints kill or stop a process of our own, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
from registry.db import checkpoint
checkpoint("one"); print("passed one", flush=True)
checkpoint("two"); print("passed two", flush=True)
"""


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_without_variables_nothing_happens() -> None:
    assert run().stdout == "passed one\npassed two\n"


def test_a_process_dies_at_the_point_that_is_named() -> None:
    done = run(FUGA_KILL_AT="zero, two")

    assert done.returncode == -signal.SIGKILL
    assert done.stdout == "passed one\n"


def test_with_a_mark_it_dies_once(tmp_path: Path) -> None:
    mark = str(tmp_path / "mark")

    first = run(FUGA_KILL_AT="one", FUGA_KILL_MARK=mark)
    second = run(FUGA_KILL_AT="one", FUGA_KILL_MARK=mark)

    assert first.returncode == -signal.SIGKILL
    assert second.returncode == 0
    assert Path(mark).read_text().startswith("one ")


def test_a_process_stops_and_goes_on() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"FUGA_STOP_AT": "two"},
        stdout=subprocess.PIPE,
        text=True,
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)

    process.send_signal(signal.SIGCONT)
    out, _ = process.communicate(timeout=120)

    assert out == "passed one\npassed two\n"
