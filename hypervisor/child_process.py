"""A child process that calls libvirt for us: its start, its requests and its end.

`subprocess` starts it, as daemonic processes of a worker pool cannot have `multiprocessing`
children.

A child gets an allow-list of environment variables, without the passwords of database and broker:
it parses bytes of a host or runs foreign programs. An allow-list also keeps out future secrets.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from hypervisor.credential import CREDENTIAL_VARIABLE, Credential

_NAMES: Final = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH"}
    # libvirt's client: an agent's keys, tickets of SASL
    | {"SSH_AUTH_SOCK", "KRB5CCNAME", "KRB5_CONFIG"}
    | {"FUGA_STATE_DIR"}  # identifies the owner of the child
)
_PREFIXES: Final = ("LC_", "PYTHON", "XDG_", "LIBVIRT_")


def child_environ() -> dict[str, str]:
    """Return the environment variables for child processes that call libvirt."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _NAMES or name.startswith(_PREFIXES)
    }


#: Far more than a report of 16,384 domains, libvirt's maximum.
MAX_ANSWER_BYTES: Final = 64 << 20
_STDERR_KEPT: Final = 2000  #: bytes of the child's standard error in an error message
_KILL_WAIT_S: Final = 5.0  #: wait for a killed child to end
_GOODBYE_S: Final = 0.5  #: for a child to end by itself
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class SilentError(Exception):
    """The child gave no answer in time, or has ended.

    ``signal`` is the signal that ended the child, if any.
    """

    def __init__(self, reason: str, signal: int | None = None) -> None:
        super().__init__(reason)
        self.signal = signal


class ChildProcess:
    """One child process, leader of its own session."""

    def __init__(
        self,
        command: Sequence[str],
        credential: Credential | None = None,
        environment: Mapping[str, str] = _NOTHING,
    ) -> None:
        # A file, not a pipe: a pipe without a reader fills up and blocks.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        # Its own session: Ctrl-C must not interrupt a call, and processes that libvirt starts (ssh)
        # can be killed as one group.
        self._process = subprocess.Popen(
            command,
            env={**_child_environment(credential), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        assert self._process.stdout is not None  # noqa: S101
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._poller = select.poll()
        self._poller.register(self._stdout, select.POLLIN | select.POLLHUP)

    def has_ended(self) -> bool:
        """Return whether the child process has ended."""
        return self._process.poll() is not None

    def ask(self, line: bytes, deadline: float) -> bytes:
        """Send the child a request line; return its answer line, or `SilentError` if it is late."""
        started = time.monotonic()
        self.send(line)
        parts: list[bytes] = []
        size = 0
        while not (parts and parts[-1].endswith(b"\n")):
            part = self.read(deadline - time.monotonic())
            if part is None:
                waited_s = time.monotonic() - started
                raise SilentError(f"no answer within {waited_s:.1f} s")
            parts.append(part)
            size += len(part)
            if size > MAX_ANSWER_BYTES:
                raise SilentError(f"an answer of more than {MAX_ANSWER_BYTES >> 20} MiB")
        return b"".join(parts)

    def send(self, line: bytes) -> None:
        """Send the child a line. The child always reads, so this does not block for long."""
        try:
            unsent = memoryview(line)
            while unsent:
                unsent = unsent[self._stdin.write(unsent) or 0 :]
        except BrokenPipeError:
            raise self._ended_error() from None

    def read(self, patience_s: float) -> bytes | None:
        """Return some of the child's output; None if none comes in time.

        Raises `SilentError` if the child has ended.
        """
        if patience_s <= 0 or not self._poller.poll(patience_s * 1000):
            return None
        part = os.read(self._stdout.fileno(), 1 << 16)
        if not part:
            raise self._ended_error()
        return part

    def close_input(self) -> None:
        """Close the child's input, so that it ends by itself."""
        with contextlib.suppress(OSError):
            self._stdin.close()

    def kill_group(self) -> None:
        """Kill the child's process group, and keep the pipes open."""
        # Nobody waited for it yet, so its pid cannot be another process's.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Ask the child to exit; kill it if it does not exit in time."""
        self.close_input()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GOODBYE_S)
        self.kill()

    def kill(self) -> None:
        """Kill the child's process group, and close the pipes."""
        if self._process.returncode is None:
            self.kill_group()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_KILL_WAIT_S)
        self.release_pipes()

    def release_pipes(self) -> None:
        """Close the pipes, but leave the process alone; a forked process does not own it."""
        for stream in (self._stdin, self._stdout, self._stderr):
            with contextlib.suppress(OSError):
                stream.close()
        self._process.returncode = self._process.returncode or 0

    def _ended_error(self) -> SilentError:
        """Return the error that the child ended, with the end of its error output."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GOODBYE_S)
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - _STDERR_KEPT))
        words = self._stderr.read().decode(errors="replace").strip().splitlines()[-3:]
        status = self._process.returncode
        by_signal = -status if status is not None and status < 0 else None
        return SilentError(f"its process ended ({status}): {' | '.join(words)}", by_signal)


def _child_environment(credential: Credential | None) -> dict[str, str]:
    """Return the child's environment, with the host's credential."""
    # Not as an argument: all users of the machine can read arguments.
    given = {} if credential is None else {CREDENTIAL_VARIABLE: credential.to_json()}
    return {**child_environ(), **given}
