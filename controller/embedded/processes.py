"""The processes of `fuga up`: started, watched, started again, stopped in bounded time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from controller.session.private_files import write_private
from controller.terminal.errors import CliError

#: How one of our own programs is called; -P: the current folder holds no modules of ours.
FUGA: Final = (sys.executable, "-P", "-m", "controller.cli.main")
_LAUNCH: Final = str(Path(__file__).with_name("launch.py"))
_BACKOFF_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_STEADY_S: Final = 30.0  #: who lived that long starts with a clean slate
_LOG_LIMIT_BYTES: Final = 20_000_000
_RECORD_AGAIN_S: Final = 5.0  #: until a record that could not be written is tried again
_STOP_S: Final = 10.0  #: from the request to end until it is killed


@dataclass(frozen=True, slots=True)
class ProcessId:
    """The identity of a process: a pid alone may be reused."""

    pid: int
    started: int  #: in clock ticks since boot

    @classmethod
    def from_pid(cls, pid: int) -> ProcessId | None:
        """Return the identity of a running process; None if it has ended or is a zombie."""
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        fields = status[status.rindex(")") + 2 :].split()
        return None if fields[0] in "ZX" else cls(pid, int(fields[19]))

    @property
    def alive(self) -> bool:
        """Whether this process still runs; another one with its pid does not count."""
        return ProcessId.from_pid(self.pid) == self

    def signal(self, number: signal.Signals, *, group: bool = False) -> None:
        """Send a signal to the process, or to its process group; ignore an ended process."""
        if not self.alive:
            return
        try:
            if group and os.getpgid(self.pid) == self.pid:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)
        except ProcessLookupError:
            pass


@dataclass(slots=True)
class _Child:
    """A process of `fuga up`, with its failures and the time of its next start."""

    name: str
    command: tuple[str, ...]
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    failures: int = 0
    start_again_at: float = 0.0
    identity: ProcessId | None = None


@dataclass(slots=True)
class ChildSupervisor:
    """Starts the processes of one `fuga up`, restarts those that end, and stops all.

    Every child has a session of its own, so that Ctrl-C reaches `fuga up` alone,
    and ends with its parent. All methods belong to one thread, the main one: the
    kernel watches the thread that started a child.
    """

    logs: Path
    record: Path  #: file with the pids, for a later `fuga up` or `fuga down`
    environ: Mapping[str, str]
    say: Callable[[str], None]
    now: Callable[[], float] = time.monotonic
    _children: list[_Child] = field(default_factory=list)
    _record_again_at: float | None = None  #: None: the record is as it should be

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a process of `fuga up`; `check` starts it again whenever it ends."""
        child = _Child(name, tuple(command))
        self._children.append(child)
        self._spawn_child(child)

    def check(self) -> None:
        """Log ended children, and restart each after its pause."""
        for child in self._children:
            if child.process is not None:
                code = child.process.poll()
                if code is None:
                    continue
                child.process = None
                self._postpone_start(child, f"ended unexpectedly ({_exit_reason(code)})")
            elif self.now() >= child.start_again_at:
                self._spawn_child(child)
        if self._record_again_at is not None and self.now() >= self._record_again_at:
            self._write_record()

    def raise_if_failing(self, failures: int = 3) -> None:
        """Raise `CliError` with the end of a child's log if it keeps failing."""
        for child in self._children:
            if child.failures >= failures:
                tail = _last_lines(self.log_file(child.name), lines=12)
                raise CliError(
                    f"{child.name} does not start. The end of {self.log_file(child.name)}:\n{tail}"
                )

    def stop(self, order: Sequence[Sequence[str]], *, wait_s: float = _STOP_S) -> None:
        """End the children group by group; kill those that do not end in time."""
        try:
            for names in order:
                group = [each for each in self._children if each.name in names]
                terminate_all([each.identity for each in group if each.identity], wait_s=wait_s)
                for each in group:
                    if each.process is not None:
                        each.process.wait()
                        each.process = None
        finally:  # a second Ctrl-C: at once, then
            for each in self._children:
                if each.process is not None and each.identity is not None:
                    each.identity.signal(signal.SIGKILL, group=True)
                    each.process.wait()
        self._children.clear()
        with suppress(OSError):  # of processes that ended: the next `fuga up` sees that
            self.record.unlink(missing_ok=True)

    def pid(self, name: str) -> int | None:
        """Return the pid of a child, or None if it does not run."""
        for child in self._children:
            if child.name == name and child.process is not None:
                return child.process.pid
        return None

    def log_file(self, name: str) -> Path:
        """Return the path of the log of a process."""
        return self.logs / f"{name}.log"

    def _postpone_start(self, child: _Child, what: str) -> None:
        """Schedule a child's restart after a pause that grows with its failures."""
        steady = self.now() - child.started_at > _STEADY_S
        child.failures = 1 if steady else child.failures + 1
        pause_s = _BACKOFF_S[min(child.failures, len(_BACKOFF_S)) - 1]
        child.start_again_at = self.now() + pause_s
        self.say(
            f"{child.name} {what}; it starts again in {pause_s:g} s."
            f" Its log: {self.log_file(child.name)}"
        )

    def _spawn_child(self, child: _Child) -> None:
        """Start a child through the launcher, with its log as output."""
        child.started_at = self.now()
        try:
            with self._open_log(child.name) as log:
                child.process = subprocess.Popen(
                    [sys.executable, "-I", "-S", _LAUNCH, str(os.getpid()), *child.command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=dict(self.environ),
                    start_new_session=True,
                )
        except OSError as error:  # no memory or no process is left
            self._postpone_start(child, f"cannot be started ({error.strerror})")
            return
        child.identity = ProcessId.from_pid(child.process.pid)
        self._write_record()

    def _open_log(self, name: str) -> BinaryIO:
        """Open a child's log, or the null device if the log cannot be written."""
        path = self.log_file(name)
        try:
            if path.exists() and path.stat().st_size > _LOG_LIMIT_BYTES:
                path.replace(path.with_suffix(".log.1"))
            return path.open("ab")
        except OSError as error:
            self.say(f"{name} runs without a log: {path}: {error.strerror}")
            return Path(os.devnull).open("ab")

    def _write_record(self) -> None:
        """Write the pids of the running children to a file; try again later if that fails."""
        running = {
            each.name: {"pid": each.identity.pid, "started": each.identity.started}
            for each in self._children
            if each.process is not None and each.identity is not None
        }
        failed_before = self._record_again_at is not None
        try:
            write_private(self.record, json.dumps(running) + "\n")
            self._record_again_at = None
        except OSError as error:
            self._record_again_at = self.now() + _RECORD_AGAIN_S
            if not failed_before:
                self.say(f"{self.record} cannot be written ({error.strerror}); it is tried again")


def terminate_all(processes: Sequence[ProcessId], *, wait_s: float = _STOP_S) -> None:
    """Send SIGTERM to processes, wait for all of them, then kill their process groups."""
    for each in processes:
        each.signal(signal.SIGTERM)
        each.signal(signal.SIGCONT, group=True)  # one that is stopped could not hear it
    deadline = time.monotonic() + wait_s
    while any(each.alive for each in processes) and time.monotonic() < deadline:
        time.sleep(0.02)
    for each in processes:
        each.signal(signal.SIGKILL, group=True)
    deadline = time.monotonic() + wait_s
    while any(each.alive for each in processes) and time.monotonic() < deadline:
        time.sleep(0.02)


def terminate_leftovers(record: Path) -> list[str]:
    """End processes that an earlier `fuga up` left running; return their names."""
    try:
        noted = json.loads(record.read_text())
        found = {name: ProcessId(int(it["pid"]), int(it["started"])) for name, it in noted.items()}
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError, AttributeError):
        found = {}  # cut short by a crash: the children ended with their parent
    left = {name: each for name, each in found.items() if each.alive}
    terminate_all(list(left.values()))
    record.unlink(missing_ok=True)
    return list(left)


def _exit_reason(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _last_lines(path: Path, *, lines: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 16_384))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"
