"""Asks a fork server for children; starts it at the first call, and again when it has died."""

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
#: For a server that has imported everything to fork.
_FORK_S: Final = 60.0
#: For one call of several short ones that it answered none of.
_ONE_FORK_S: Final = 2.0
#: For a server to import everything: one that is killed on a starved machine is started for ever.
_IMPORT_S: Final = 600.0
#: A call after so long a pause is not counted with those before, which may have been answered
#: after its readers have gone.
_CALLED_AGAIN_S: Final = 10.0
#: For the server to end after the request to.
_GOODBYE_S: Final = 2.0
#: For a killed child to end: longer if the kernel holds it.
_REAP_S: Final = 10.0


class ForkServerError(OSError):
    """A fork server forked no child."""


class ForkServerLateError(ForkServerError):
    """It forked no child in time; another attempt may succeed."""


class ForkedChild:
    """A child of a fork server."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes], line: socket.socket) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self._line = line
        self._status: int | None = None
        self._orphaned = False  #: its server has died, and its id may be another process's
        self._reading = threading.Lock()  #: may be held while its end is waited for
        self._lock = threading.Lock()  #: never is, so that `kill` returns at once
        self._closed = False

    def poll(self) -> int | None:
        """Return its exit status, negative for a signal; None while it runs."""
        with self._reading:
            if self._status is None:
                self._read_reports(0.0)
            return self._status

    def kill(self) -> None:
        """Kill it, and all that it started, from any thread."""
        if self._reading.acquire(blocking=False):
            try:
                self._read_reports(0.0)
            finally:
                self._reading.release()
        self._kill()

    def close(self) -> int:
        """Kill it, wait for its end and return its exit status; twice is once."""
        with self._reading:
            if not self._closed:
                self._read_reports(0.0)
                self._kill()
                self.stdin.close()
                self.stdout.close()
                if self._status is None:
                    self._read_reports(_REAP_S)
                with self._lock:
                    self._closed = True
                # Its server now lets go of it, and then closes the line as well.
                with contextlib.suppress(OSError):
                    self._line.shutdown(socket.SHUT_WR)
                    self._line.settimeout(_REAP_S)
                    while self._line.recv(MESSAGE.size):
                        pass
                self._line.close()
            return -1 if self._status is None else self._status

    def _kill(self) -> None:
        with self._lock:
            if not self._closed and not self._orphaned:  # its server leaves its id to it
                kill_group(self.pid)

    def _read_reports(self, patience_s: float) -> None:
        """Read what its server says of it, and whether that lives."""
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
    process: subprocess.Popen[bytes]
    control: socket.socket
    started_at: float
    forked: bool = False  #: something: it has imported everything
    silent_since: float | None = None  #: the first of the calls that it has answered none of
    silent_at: float = 0.0  #: the last of them

    def hangs_at(self, now: float) -> float:
        """Return until when a call of now may wait for it."""
        if self.silent_since is None or now - self.silent_at > _CALLED_AGAIN_S:
            self.silent_since = now
        at = max(self.silent_since + _FORK_S, now + _ONE_FORK_S)
        return at if self.forked else max(at, self.started_at + _IMPORT_S)


class ForkServer:
    """A process that imports modules once and forks children. Safe to share between threads.

    Nothing is started before `fork` or `warm_up`. The server is started again when it has died
    and when a file that it imported, or what is installed, has changed.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = tuple(modules)
        self._lock = threading.Lock()
        self._server: _ForkServerProcess | None = None
        self._old: list[subprocess.Popen[bytes]] = []  #: those that end with their last child
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the server; None: it was not started, or has ended."""
        server = self._server
        if server is None or server.process.poll() is not None:
            return None
        return server.process.pid

    def warm_up(self) -> None:
        """Start the server, which imports everything before its first call, unless closed."""
        with self._lock:
            if not self._closed:
                self._running_server()

    def fork(self, module: str, deadline: float) -> ForkedChild:
        """Return a child that runs ``main`` of a module, by ``deadline`` of the monotonic clock.

        Raises
        ------
        ForkServerLateError
            If the server forks none by then.
        ForkServerError
            If it cannot, or twice dies before it does.
        """
        for _ in range(2):
            with self._lock:
                server = self._running_server()
                hangs_at = server.hangs_at(time.monotonic())
            try:
                child = _child_forked_by(server.control, module, min(deadline, hangs_at))
            except TimeoutError:
                with self._lock:
                    server.silent_at = now = time.monotonic()
                if hangs_at > min(deadline, now):
                    raise ForkServerLateError("its fork server forks no child in time") from None
                server.process.kill()  # it hangs
                child = None
            except ForkServerError:
                server.silent_since = None
                raise
            with self._lock:
                if child is not None:
                    server.forked = True
                    server.silent_since = None
                    return child
                self._retire(server)
        raise ForkServerError("its fork server forks no child")

    def close(self) -> None:
        """End the server, which kills its children."""
        with self._lock:
            self._closed = True
            if self._server is not None:
                self._retire(self._server)
            for process in self._old:
                process.terminate()
                try:
                    process.wait(_GOODBYE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            self._old.clear()

    def _running_server(self) -> _ForkServerProcess:
        """Return a server that runs, as far as anybody knows."""
        if self._closed:
            raise ForkServerError("its fork server was closed")
        self._old = [process for process in self._old if process.poll() is None]
        if self._server is not None and self._server.process.poll() is not None:
            self._retire(self._server)
        if self._server is None:
            self._server = _start_server(self._modules)
        return self._server

    def _retire(self, server: _ForkServerProcess) -> None:
        """Ask no more of a server. It goes on until the last of its children is gone."""
        if server is self._server:
            server.control.close()
            self._old.append(server.process)
            self._server = None


def _start_server(modules: Sequence[str]) -> _ForkServerProcess:
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


def _child_forked_by(control: socket.socket, module: str, deadline: float) -> ForkedChild | None:
    """Return a child; None: the server is dead or stale. Raises `TimeoutError`: it is silent."""
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
            except BlockingIOError:  # as many wait for it as the kernel keeps
                raise TimeoutError from None
            except OSError:
                return None
        line.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            message = line.recv(MESSAGE.size)
        except ConnectionError:
            return None
        said, number = MESSAGE.unpack(message) if message else (ChildReport.STALE, 0)
        if said == ChildReport.FAILED:
            raise ForkServerError(f"its fork server cannot fork: {os.strerror(number)}")
        if said != ChildReport.FORKED:
            return None
        kept.pop_all()
        return ForkedChild(number, to_child, from_child, line)
