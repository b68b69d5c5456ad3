"""The fork server: imports the modules that children need, and forks a child for each call.

The server calls nothing of what it imported, holds no secrets and has one thread. It exits when
its client has closed the control socket and all children are gone. It kills a child when the
client shuts down the child's socket. If the client was killed, the child's standard input has
ended and the child gets a few seconds to exit by itself. At SIGTERM the server kills its children
and exits; if it dies in another way, the kernel kills them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import math
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module, invalidate_caches
from types import FrameType
from typing import Final, NoReturn

from controller.fork_server.messages import (
    DESCRIPTORS,
    MAX_NAME_BYTES,
    MESSAGE,
    ChildReport,
    exit_status_of,
)

_PR_SET_PDEATHSIG: Final = 1
#: A kernel stamps changed files by a clock that stands for up to one tick of 100 a second.
_TICK_NS: Final = 10_000_000
#: Time for a child to remove its files after its client was killed.
_OWN_END_S: Final = 5.0


def main() -> None:
    """Run the fork server: import modules, then fork children for the client at a socket."""
    since = time.time_ns() - _TICK_NS
    control, *modules = sys.argv[1:]
    client = socket.socket(fileno=int(control))
    for module in modules:
        import_module(module)
    # Pages that a search for cycles of objects would write are shared with all children.
    gc.collect()
    gc.freeze()
    ForkSession(client, since).run()


@dataclass(slots=True)
class _ForkedProcess:
    """A child that the server forked, with the socket for reports about it."""

    pid: int
    ended: int  #: pidfd: readable once the child has ended
    line: socket.socket
    wanted: bool = True  #: False once the client closed its socket
    over: bool = False
    killed_at: float = math.inf  #: time at which the child is killed if it still runs


class ForkSession:
    """Serves one client: forks its children and reports their ends."""

    def __init__(self, client: socket.socket, since: int) -> None:
        self._client: socket.socket | None = client
        self._pid = os.getpid()
        self._libc = ctypes.CDLL(None)
        self._imported = _modification_times()
        # What changed during the imports may have been read before or after.
        self._stale = any(since <= at <= time.time_ns() for at in _change_times().values())
        self._children: list[_ForkedProcess] = []
        self._poll = select.poll()
        self._poll.register(client, select.POLLIN)

    def run(self) -> None:
        """Serve until the client has gone and no child is left, or until SIGTERM."""
        signal.signal(signal.SIGTERM, partial(_end_server, os.getpid()))
        try:
            self._handle_messages()
        finally:
            for child in self._children:
                self._kill_child(child)
            for child in self._children:
                os.waitpid(child.pid, 0)

    def _handle_messages(self) -> None:
        """Fork requested children, report their ends, and kill those that nobody wants."""
        while self._client is not None or self._children:
            ready = dict(self._poll.poll(self._poll_timeout_ms()))
            for child in [*self._children]:
                if child.ended in ready:
                    self._report_end(child)
                if child.wanted and (events := ready.get(child.line.fileno())):
                    self._schedule_kill(child, client_died=bool(events & select.POLLHUP))
                if time.monotonic() >= child.killed_at:
                    child.killed_at = math.inf
                    self._kill_child(child)
                if child.over and not child.wanted:
                    self._reap_child(child)
            if self._client is not None and self._client.fileno() in ready:
                self._handle_message(self._client)

    def _poll_timeout_ms(self) -> float | None:
        """Return the milliseconds until the next scheduled kill of a child, or None."""
        first = min((child.killed_at for child in self._children), default=math.inf)
        return None if first == math.inf else max(0.0, first - time.monotonic()) * 1000

    def _handle_message(self, client: socket.socket) -> None:
        """Fork the child that the client's next message requests; close the client's last one."""
        name, descriptors, _, _ = socket.recv_fds(client, MAX_NAME_BYTES, DESCRIPTORS)
        if not name:
            self._poll.unregister(client)
            client.close()
            self._client = None
            return
        if not descriptors:  # the client sees that its line has ended
            return
        line = socket.socket(fileno=descriptors[0])
        failed = errno.EMFILE if len(descriptors) < DESCRIPTORS else 0
        if _has_hung_up(line):  # the client gave up waiting
            line.close()
        elif not failed:
            try:
                self._fork_child(name.decode(), line, *descriptors[1:])
            except OSError as error:
                failed = error.errno or errno.EIO
        if failed:
            _send_report(line, ChildReport.FAILED, failed)
            line.close()
        for descriptor in descriptors[1:]:
            os.close(descriptor)

    def _fork_child(self, module: str, line: socket.socket, stdin: int, stdout: int) -> None:
        """Fork a child that runs a module; report instead if an imported file has changed."""
        if self._stale or _modification_times() != self._imported:
            _send_report(line, ChildReport.STALE, 0)
            line.close()
            return
        # The child waits at a gate until nothing can fail here: once the client knows it, it lives.
        gate, opener = os.pipe()
        try:
            pid = os.fork()
            if pid == 0:
                self._run_child(module, line, (stdin, stdout), (gate, opener))
            try:
                ended = os.pidfd_open(pid)
            except OSError:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise
            os.write(opener, b".")
        finally:
            os.close(gate)
            os.close(opener)
        self._children.append(_ForkedProcess(pid, ended, line))
        self._poll.register(ended, select.POLLIN)
        self._poll.register(line, select.POLLIN)

    def _run_child(
        self, module: str, line: socket.socket, pipes: tuple[int, int], gate: tuple[int, int]
    ) -> NoReturn:
        """Run a module's ``main`` in the forked child, and exit."""
        status = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self._pid:  # it died before the signal was set
                os._exit(status)
            os.setsid()
            os.dup2(pipes[0], 0)
            os.dup2(pipes[1], 1)
            os.close(gate[1])
            if not os.read(gate[0], 1):
                os._exit(status)
            # Not before it leads its group: the client may kill that from now on.
            _send_report(line, ChildReport.FORKED, os.getpid())
            self._close_descriptors(line, *pipes, gate[0])
            sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as an interpreter has them
            sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
            invalidate_caches()
            import_module(module).main()
            status = 0
        except BaseException as error:
            if not isinstance(error, SystemExit):
                traceback.print_exc()
        finally:
            # Whatever a policy made of them, nothing may return to the loop of the server.
            try:
                with contextlib.suppress(Exception):
                    sys.stdout.flush()
                with contextlib.suppress(Exception):
                    sys.stderr.flush()
            finally:
                os._exit(status)

    def _close_descriptors(self, line: socket.socket, *others: int) -> None:
        """Close, in a child, the descriptors of the server and of other children."""
        for descriptor in (*others, *(child.ended for child in self._children)):
            os.close(descriptor)
        for each in (line, self._client, *(child.line for child in self._children)):
            if each is not None:
                each.close()

    def _report_end(self, child: _ForkedProcess) -> None:
        """Report a child's exit status; reap the child later, while the client may use its pid."""
        self._poll.unregister(child.ended)
        child.over = True
        found = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert found is not None  # noqa: S101 - waited for
        _send_report(child.line, ChildReport.ENDED, exit_status_of(found))

    def _schedule_kill(self, child: _ForkedProcess, *, client_died: bool) -> None:
        self._poll.unregister(child.line)
        child.wanted = False
        child.killed_at = time.monotonic() + (_OWN_END_S if client_died else 0.0)

    def _kill_child(self, child: _ForkedProcess) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)

    def _reap_child(self, child: _ForkedProcess) -> None:
        self._kill_child(child)  # its process group
        os.waitpid(child.pid, 0)
        os.close(child.ended)
        child.line.close()
        self._children.remove(child)


def _end_server(server: int, _number: int, _frame: FrameType | None) -> None:
    """End the fork server on SIGTERM; end a new child, which has the same handler, at once."""
    if os.getpid() != server:  # a child that was forked a moment ago
        os._exit(1)
    sys.exit()


def _has_hung_up(line: socket.socket) -> bool:
    """Return whether the other end of a socket is closed."""
    poll = select.poll()
    poll.register(line, 0)
    return bool(poll.poll(0))


def _send_report(line: socket.socket, said: ChildReport, number: int) -> None:
    with contextlib.suppress(OSError):  # the client has gone
        line.send(MESSAGE.pack(said, number))


def _modification_times() -> dict[str, int]:
    """Return the mtime of each imported file and of each folder of packages."""
    return {path: found.st_mtime_ns if found else 0 for path, found in _file_stats()}


def _change_times() -> dict[str, int]:
    """Return the ctime of each of these files and folders, which also shows a replaced file."""
    return {path: found.st_ctime_ns if found else 0 for path, found in _file_stats()}


def _file_stats() -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield each imported file and folder of packages with its status, or None."""
    folders = (path for path in sys.path if path.endswith("-packages"))
    files = (getattr(module, "__file__", None) for module in [*sys.modules.values()])
    for path in (*folders, *files):
        if path:
            try:
                yield path, os.stat(path)  # noqa: PTH116 - a thousand in each call
            except OSError:
                yield path, None


if __name__ == "__main__":
    main()
