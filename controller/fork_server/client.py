"""Asks a fork server for children; starts it at the first call, and again when it has died."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Final

from controller.fork_server.children import environ_of_children, kill_group
from controller.fork_server.messages import MESSAGE, Said

_SERVER: Final = "controller.fork_server.server"
#: For a server that forked before to fork again.
_FORK_S: Final = 60.0
#: For the server to end after it was asked to.
_GOODBYE_S: Final = 2.0
#: For a killed child to end: longer if the kernel holds it.
_BURIAL_S: Final = 10.0


class ForkServerError(OSError):
    """A fork server forked no child."""


class ForkedChild:
    """A child of a fork server."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes], line: socket.socket) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self._line = line
        self._status: int | None = None
        self._lock = threading.Lock()
        self._closed = False

    def poll(self) -> int | None:
        """Return its exit status, negative for a signal; None while it runs."""
        with self._lock:
            return self._polled(0.0)

    def kill(self) -> None:
        """Kill it, and all that it started, from any thread."""
        with self._lock:
            if not self._closed:  # until then its server leaves its id to it
                kill_group(self.pid)

    def close(self) -> int:
        """Kill it, wait for its end and return its exit status; twice is once."""
        with self._lock:
            if not self._closed:
                kill_group(self.pid)
                self.stdin.close()
                self.stdout.close()
                self._polled(_BURIAL_S)
                self._closed = True
                # Its server now lets go of it, and then closes the line as well.
                with contextlib.suppress(OSError):
                    self._line.shutdown(socket.SHUT_WR)
                    self._line.settimeout(_BURIAL_S)
                    while self._line.recv(MESSAGE.size):
                        pass
                self._line.close()
            return -1 if self._status is None else self._status

    def _polled(self, patience_s: float) -> int | None:
        if self._status is None and not self._closed:
            self._line.settimeout(patience_s)
            with contextlib.suppress(OSError):
                message = self._line.recv(MESSAGE.size)
                # Its server has died, and the kernel has killed it.
                self._status = MESSAGE.unpack(message)[1] if message else -9
        return self._status


@dataclass(slots=True, eq=False)
class _Server:
    process: subprocess.Popen[bytes]
    control: socket.socket
    forked: bool = False  #: something: it has imported everything


class ForkServer:
    """A process that imports modules once and forks children. Safe to share between threads.

    Nothing is started before `fork` or `warm_up`. The server is started again when it has died
    and when a file that it imported, or what is installed, has changed.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = tuple(modules)
        self._lock = threading.Lock()
        self._server: _Server | None = None
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
        """Start the server, which imports everything while nobody waits, unless it was closed."""
        with self._lock:
            if not self._closed:
                self._running()

    def fork(self, module: str, deadline: float) -> ForkedChild:
        """Return a child that runs ``main`` of a module, by ``deadline`` of the monotonic clock.

        Raises
        ------
        ForkServerError
            If the server forks none by then, or twice dies before it does.
        """
        for _ in range(2):
            with self._lock:
                server = self._running()
                deadline_of_fork = time.monotonic() + _FORK_S if server.forked else deadline
            try:
                child = _asked(server.control, module, min(deadline, deadline_of_fork))
            except TimeoutError:
                if deadline_of_fork > deadline:
                    raise ForkServerError("its fork server forks no child in time") from None
                server.process.kill()  # it hangs
                child = None
            with self._lock:
                if child is not None:
                    server.forked = True
                    return child
                self._give_up(server)
        raise ForkServerError("its fork server forks no child")

    def close(self) -> None:
        """End the server, which kills its children."""
        with self._lock:
            self._closed = True
            if self._server is not None:
                self._give_up(self._server)
            for process in self._old:
                process.terminate()
                try:
                    process.wait(_GOODBYE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            self._old.clear()

    def _running(self) -> _Server:
        """Return a server that runs, as far as anybody knows."""
        if self._closed:
            raise ForkServerError("its fork server was closed")
        self._old = [process for process in self._old if process.poll() is None]
        if self._server is not None and self._server.process.poll() is not None:
            self._give_up(self._server)
        if self._server is None:
            self._server = _started(self._modules)
        return self._server

    def _give_up(self, server: _Server) -> None:
        """Ask no more of a server. It goes on until the last of its children is gone."""
        if server is self._server:
            server.control.close()
            self._old.append(server.process)
            self._server = None


def _started(modules: Sequence[str]) -> _Server:
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
    return _Server(process, ours)


def _asked(control: socket.socket, module: str, deadline: float) -> ForkedChild | None:
    """Return a child; None: the server is dead or stale. Raises `TimeoutError`: it is silent."""
    line, its_line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    its_stdin, stdin = os.pipe()
    stdout, its_stdout = os.pipe()
    child = None
    try:
        try:
            socket.send_fds(control, [module.encode()], [its_line.fileno(), its_stdin, its_stdout])
        except OSError:
            return None
        finally:
            os.close(its_stdin)
            os.close(its_stdout)
            its_line.close()
        line.settimeout(max(0.001, deadline - time.monotonic()))
        with contextlib.suppress(ConnectionError):
            message = line.recv(MESSAGE.size)
            said, number = MESSAGE.unpack(message) if message else (Said.STALE, 0)
            if said == Said.FAILED:
                raise ForkServerError(f"its fork server cannot fork: {os.strerror(number)}")
            if said == Said.FORKED:
                child = ForkedChild(
                    number,
                    os.fdopen(stdin, "wb", buffering=0),
                    os.fdopen(stdout, "rb", buffering=0),
                    line,
                )
        return child
    finally:
        if child is None:
            line.close()
            os.close(stdin)
            os.close(stdout)
