"""A child process that reads calls from standard input and writes answers to standard output."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Final, Protocol

from controller import debug
from controller.fork_server.messages import status_of
from registry.db.child_environ import child_environ

#: What a policy sees of our environment besides what is plain: how numpy and numba are to run.
_SEEN: Final = (debug.VARIABLE, "FUGA_STATE_DIR", "LD_LIBRARY_PATH", "TMPDIR")
_SEEN_PREFIXES: Final = (
    *("LC_", "MKL_", "NUMBA_", "NUMPY_", "OMP_", "OPENBLAS_", "PYTHON", "XDG_"),
)


class Child(Protocol):
    """A process, leader of its own session and group."""

    @property
    def pid(self) -> int:
        """Its id, which no other process has before `close`."""

    @property
    def stdin(self) -> IO[bytes]:
        """The end that we write to."""

    @property
    def stdout(self) -> IO[bytes]:
        """The end that we read from."""

    def poll(self) -> int | None:
        """Return its exit status, negative for a signal; None while it runs."""

    def kill(self) -> None:
        """Kill it, and all that it started, from any thread."""

    def close(self) -> int:
        """Kill it, wait for its end and return its exit status; twice is once."""


class StartedChild:
    """A child that a new interpreter runs."""

    def __init__(self, module: str) -> None:
        # A session of its own: Ctrl-C is the parent's to handle. It ends
        # with the parent all the same, when its standard input does.
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            env=environ_of_children(),
        )
        assert self._process.stdin is not None  # noqa: S101 it is a pipe
        assert self._process.stdout is not None  # noqa: S101 it is a pipe
        self.stdin, self.stdout = self._process.stdin, self._process.stdout
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return its exit status, negative for a signal; None while it runs."""
        if self._process.returncode is not None:
            return self._process.returncode
        # Not waited for before `close`, so that no other process has its id.
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return None if found is None else status_of(found)

    def kill(self) -> None:
        """Kill it, and all that it started, from any thread."""
        if self._process.returncode is None:
            kill_group(self.pid)

    def close(self) -> int:
        """Kill it, wait for its end and return its exit status; twice is once."""
        self.kill()
        self.stdin.close()
        self.stdout.close()
        return self._process.wait()


#: Starts a module by a deadline of the monotonic clock; raises `OSError` if it cannot.
StartChild = Callable[[str, float], Child]


def start_interpreter(module: str, deadline: float) -> StartedChild:
    """Start a module in a new interpreter, which imports everything while it is waited for."""
    return StartedChild(module)


def environ_of_children() -> dict[str, str]:
    """Return the environment of processes that run policies: no secret of ours is in it."""
    return child_environ(_SEEN, _SEEN_PREFIXES)


def make_nice(pid: int, niceness: int) -> None:
    """Let a process wait for others at least so much; one that does so more stays as it is.

    Of a process that was started with `nice` children are as nice, and only root makes one less so.
    """
    with contextlib.suppress(ProcessLookupError):
        if os.getpriority(os.PRIO_PROCESS, pid) < niceness:
            os.setpriority(os.PRIO_PROCESS, pid, niceness)


def kill_group(pid: int) -> None:
    """Kill a process and its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
