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
from controller.fork_server.messages import exit_status_of
from registry.db.child_environ import child_environ

#: Environment variables passed to policies in addition to the harmless ones: settings of numpy and
#: numba.
_SEEN: Final = (debug.VARIABLE, "FUGA_STATE_DIR", "LD_LIBRARY_PATH", "TMPDIR")
_SEEN_PREFIXES: Final = (
    *("LC_", "MKL_", "NUMBA_", "NUMPY_", "OMP_", "OPENBLAS_", "PYTHON", "XDG_"),
)


class Child(Protocol):
    """A child process; it leads its own session and process group."""

    @property
    def pid(self) -> int:
        """The process id; it is not reused before `close`."""

    @property
    def stdin(self) -> IO[bytes]:
        """The parent's end of the child's standard input."""

    @property
    def stdout(self) -> IO[bytes]:
        """The parent's end of the child's standard output."""

    def poll(self) -> int | None:
        """Return the child's exit status, negative for a signal; None while it runs."""

    def kill(self) -> None:
        """Kill the child and its process group, from any thread."""

    def close(self) -> int:
        """Kill the child, wait for its end and return its exit status. May be called twice."""


class StartedChild:
    """A child process in a new Python interpreter."""

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
        """Return the child's exit status, negative for a signal; None while it runs."""
        if self._process.returncode is not None:
            return self._process.returncode
        # Not waited for before `close`, so that no other process has its id.
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return None if found is None else exit_status_of(found)

    def kill(self) -> None:
        """Kill the child and its process group, from any thread."""
        if self._process.returncode is None:
            kill_group(self.pid)

    def close(self) -> int:
        """Kill the child, wait for its end and return its exit status. May be called twice."""
        self.kill()
        self.stdin.close()
        self.stdout.close()
        return self._process.wait()


#: Starts a module by a deadline of the monotonic clock; raises `OSError` if it cannot.
StartChild = Callable[[str, float], Child]


def start_interpreter(module: str, deadline: float) -> StartedChild:
    """Start a module in a new interpreter; its imports run while the caller waits for an answer."""
    return StartedChild(module)


def environ_of_children() -> dict[str, str]:
    """Return the environment of processes that run policies; it holds no secrets."""
    return child_environ(_SEEN, _SEEN_PREFIXES)


def make_nice(pid: int, niceness: int) -> None:
    """Raise the niceness of a process to at least this value.

    A process started with ``nice`` may already have a higher one, which only root can lower.
    """
    with contextlib.suppress(ProcessLookupError):
        if os.getpriority(os.PRIO_PROCESS, pid) < niceness:
            os.setpriority(os.PRIO_PROCESS, pid, niceness)


def kill_group(pid: int) -> None:
    """Kill a process and its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
