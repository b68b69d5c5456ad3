"""The client of a fork server: starts the server when needed and requests children from it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Final

from controller.fork_server.children import environ_of_children, kill_group
from controller.fork_server.messages import MESSAGE, ChildReport

_SERVER: Final = "controller.fork_server.server"
#: Time limit for a fork by a server whose imports are done.
_FORK_S: Final = 60.0
#: Minimum time limit of one call, even if the server has answered none of several before it.
_ONE_FORK_S: Final = 2.0
#: Time limit of the imports. A shorter one would restart the server for ever on a slow machine.
_IMPORT_S: Final = 600.0
#: After such a pause, earlier unanswered calls count no more: the server may have answered
#: after their callers had gone.
_CALLED_AGAIN_S: Final = 10.0
#: Time for the server to exit after SIGTERM.
_GOODBYE_S: Final = 2.0
#: Time to wait for the end of a killed child.
_REAP_S: Final = 10.0


class ForkServerError(OSError):
    """The fork server forked no child."""


class ForkServerLateError(ForkServerError):
    """The fork server forked no child in time. Another attempt may succeed."""


class _StaleServerError(Exception):
    """Files that the fork server imported have changed, so it forks no more."""


class ForkedChild:
    """A child process that a fork server forked."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes], line: socket.socket) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self._line = line
        self._status: int | None = None
        self._orphaned = False  #: its server has died, so another process may have the pid
        self._reading = threading.Lock()  #: may be held while `close` waits for the child's end
        self._lock = threading.Lock()  #: held only briefly, so that `kill` returns at once
        self._closed = False

    def poll(self) -> int | None:
        """Return the child's exit status, negative for a signal; None while it runs."""
        with self._reading:
            if self._status is None:
                self._read_reports(0.0)
            return self._status

    def kill(self) -> None:
        """Kill the child and its process group, from any thread."""
        if self._reading.acquire(blocking=False):
            try:
                self._read_reports(0.0)
            finally:
                self._reading.release()
        self._kill_group()

    def close(self) -> int:
        """Kill the child, wait for its end and return its exit status. May be called twice."""
        with self._reading:
            if not self._closed:
                self._read_reports(0.0)
                self._kill_group()
                self.stdin.close()
                self.stdout.close()
                if self._status is None:
                    self._read_reports(_REAP_S)
                with self._lock:
                    self._closed = True
                # The server now reaps the child, and then closes its end of the socket.
                with contextlib.suppress(OSError):
                    self._line.shutdown(socket.SHUT_WR)
                    self._line.settimeout(_REAP_S)
                    while self._line.recv(MESSAGE.size):
                        pass
                self._line.close()
            return -1 if self._status is None else self._status

    def _kill_group(self) -> None:
        with self._lock:
            if (
                not self._closed and not self._orphaned
            ):  # the server has not reaped it: the pid is still the child's
                kill_group(self.pid)

    def _read_reports(self, patience_s: float) -> None:
        """Read the fork server's reports about the child; record if the server has died."""
        while not self._closed and not self._orphaned:
            self._line.settimeout(patience_s)
            try:
                message = self._line.recv(MESSAGE.size)
            except OSError:
                return
            if message:
                self._status = MESSAGE.unpack(message)[1]
                patience_s = 0.0
            else:
                self._orphaned = True
                if self._status is None:
                    self._status = -signal.SIGKILL  # the kernel has killed it


@dataclass(slots=True, eq=False)
class _ForkServerProcess:
    """A running fork server, with the socket to it and the times of its silence."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    started_at: float
    forked: bool = False  #: at least one child, so its imports are done
    silent_since: float | None = None  #: time of the first call that it has not answered
    silent_at: float = 0.0  #: time of the last such call

    def hangs_at(self, now: float) -> float:
        """Return the deadline of a call that begins now, after which the server counts as hung."""
        if self.silent_since is None or now - self.silent_at > _CALLED_AGAIN_S:
            self.silent_since = now
        at = max(self.silent_since + _FORK_S, now + _ONE_FORK_S)
        return at if self.forked else max(at, self.started_at + _IMPORT_S)


class ForkServer:
    """A process that imports modules once and forks children. Safe to share between threads.

    The server is started by `fork` or `warm_up`. It is started again after it died, and after a
    file that it imported, or an installed package, changed.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = tuple(modules)
        self._lock = threading.Lock()
        self._server: _ForkServerProcess | None = None
        self._old: list[subprocess.Popen[bytes]] = []  #: servers that exit with their last child
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the server; None: it was not started, or has ended."""
        server = self._server
        if server is None or server.process.poll() is not None:
            return None
        return server.process.pid

    def warm_up(self) -> None:
        """Start the server, so that its imports are done before the first call, unless closed."""
        with self._lock:
            if not self._closed:
                self._ensure_server()

    def fork(self, module: str, deadline: float) -> ForkedChild:
        """Fork a child that runs ``main`` of a module, by ``deadline`` of the monotonic clock.

        Raises
        ------
        ForkServerLateError
            If the server forks no child by then, as where an upgrade of packages changes its files
            all the time.
        ForkServerError
            If the server cannot fork, or dies twice before it does.
        """
        deaths = 0
        while deaths < 2:
            with self._lock:
                server = self._ensure_server()
                hangs_at = server.hangs_at(time.monotonic())
            try:
                child = _receive_child(server.control, module, min(deadline, hangs_at))
            except TimeoutError:
                with self._lock:
                    server.silent_at = now = time.monotonic()
                if hangs_at > min(deadline, now):
                    raise ForkServerLateError("its fork server forks no child in time") from None
                server.process.kill()  # it hangs
                child = None
            except _StaleServerError:
                if time.monotonic() >= deadline:
                    raise ForkServerLateError("its fork server's files keep changing") from None
                with self._lock:
                    self._retire_server(server)
                continue
            except ForkServerError:
                server.silent_since = None
                raise
            with self._lock:
                if child is not None:
                    server.forked = True
                    server.silent_since = None
                    return child
                self._retire_server(server)
            deaths += 1
        raise ForkServerError("its fork server forks no child")

    def close(self) -> None:
        """End the fork server, which kills its children."""
        with self._lock:
            self._closed = True
            if self._server is not None:
                self._retire_server(self._server)
            for process in self._old:
                process.terminate()
                try:
                    process.wait(_GOODBYE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            self._old.clear()

    def _ensure_server(self) -> _ForkServerProcess:
        """Return the current server; start one if there is none or it has died."""
        if self._closed:
            raise ForkServerError("its fork server was closed")
        self._old = [process for process in self._old if process.poll() is None]
        if self._server is not None and self._server.process.poll() is not None:
            self._retire_server(self._server)
        if self._server is None:
            self._server = _start_server(self._modules)
        return self._server

    def _retire_server(self, server: _ForkServerProcess) -> None:
        """Send no more calls to a server. It exits after its last child."""
        if server is self._server:
            server.control.close()
            self._old.append(server.process)
            self._server = None


def _start_server(modules: Sequence[str]) -> _ForkServerProcess:
    """Start a fork server with a socket to it."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with its:
        # A session of its own: Ctrl-C is the parent's to handle.
        process = subprocess.Popen(
            [sys.executable, "-m", _SERVER, str(its.fileno()), *modules],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(its.fileno(),),
            start_new_session=True,
            env=environ_of_children(),
        )
    return _ForkServerProcess(process, ours, time.monotonic())


def _receive_child(control: socket.socket, module: str, deadline: float) -> ForkedChild | None:
    """Receive a child from the server; return None if the server died.

    Raises `TimeoutError` if the server does not answer in time, and `_StaleServerError` if files
    that it imported changed.
    """
    with ExitStack() as kept:
        with ExitStack() as given:
            line, its_line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            kept.enter_context(line)
            given.enter_context(its_line)
            its_stdin, stdin = os.pipe()
            to_child = kept.enter_context(os.fdopen(stdin, "wb", buffering=0))
            given.callback(os.close, its_stdin)
            stdout, its_stdout = os.pipe()
            from_child = kept.enter_context(os.fdopen(stdout, "rb", buffering=0))
            given.callback(os.close, its_stdout)
            try:
                socket.send_fds(
                    control, [module.encode()], [its_line.fileno(), its_stdin, its_stdout]
                )
            except BlockingIOError:  # the kernel's queue of calls to the server is full
                raise TimeoutError from None
            except OSError:
                return None
        line.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            message = line.recv(MESSAGE.size)
        except ConnectionError:
            return None
        if not message:
            return None
        said, number = MESSAGE.unpack(message)
        if said == ChildReport.STALE:
            raise _StaleServerError
        if said == ChildReport.FAILED:
            raise ForkServerError(f"its fork server cannot fork: {os.strerror(number)}")
        if said != ChildReport.FORKED:
            return None
        kept.pop_all()
        return ForkedChild(number, to_child, from_child, line)
