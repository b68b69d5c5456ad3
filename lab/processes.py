"""Records of long-running processes by pid and start time, as pids are reused."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_POLL_S = 0.02


def start_time(pid: int) -> str | None:
    """Return the start time of a process in clock ticks since boot; None if it has ended."""
    try:
        # The name in parentheses may hold anything, blanks and parentheses too.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if fields[0] == "Z" else fields[19]


def record_process(pid: int, file: Path) -> None:
    """Write the pid and start time of a process to a file, for `running_pid`."""
    file.write_text(f"{pid} {start_time(pid)}\n")


def running_pid(file: Path) -> int | None:
    """Return the pid of a recorded process if it still runs, else None."""
    try:
        pid, started = file.read_text().split()
    except (OSError, ValueError):
        return None
    return int(pid) if start_time(int(pid)) == started else None


def end_process(file: Path, *, patience_s: float = 3.0) -> None:
    """End a recorded process, if there is one, and delete its record."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        pid = running_pid(file)
        if pid is None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)  # one that was stopped does not hear otherwise
        deadline = time.monotonic() + patience_s
        while running_pid(file) is not None and time.monotonic() < deadline:
            _reap_child(pid)
            time.sleep(_POLL_S)
    file.unlink(missing_ok=True)


def _reap_child(pid: int) -> None:
    """Reap a process that has ended, if it is a child of this one."""
    with contextlib.suppress(ChildProcessError):  # mostly it is not ours
        os.waitpid(pid, os.WNOHANG)
