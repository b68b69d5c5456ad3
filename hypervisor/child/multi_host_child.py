"""A child process that polls many hosts: reads a request per line, answers a line.

Usage: ``python -m hypervisor.child.multi_host_child``, by `hypervisor.shared_child` alone. Each
poll has a thread, so a hung poll delays no other. A hung thread ends only with the process.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from hypervisor import wire
from hypervisor.child.driver import LibvirtHost, start_event_loop
from hypervisor.credential import Credential
from hypervisor.errors import HostUnreachableError, OperationFailedError

_MAX_MEMORY_BYTES: Final = 1 << 30
#: Three connections to each of its hosts, and some more.
_MAX_FILES: Final = 4096
#: Stack of a thread; the default would exhaust the memory limit with a hundred threads.
_STACK_BYTES: Final = 1 << 19
_MAX_THREADS: Final = 1000
_BEAT_S: Final = 1.0
_MAX_LOGGED_BYTES: Final = 1 << 20  #: of libvirt's log, in a file that nothing reads
_GOODBYE_S: Final = 0.3
_OUT_OF_MEMORY: Final = 3


class _PolledHosts:
    """Polls hosts, each at most once at a time, and reports the results."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._write_lock = threading.Lock()
        self._known: dict[int, LibvirtHost] = {}
        self._busy: set[int] = set()

    def poll(self, request: Mapping[str, Any]) -> None:
        """Poll a host as requested, and send the answer."""
        key = request["host"]
        self._busy.add(key)
        try:
            answer = self._poll_host(key, request)
        except MemoryError:
            # Other polls may run out of memory too; retrying one by one finds the culprits.
            os._exit(_OUT_OF_MEMORY)
        finally:
            self._busy.discard(key)
        self.send({"id": request["id"], **answer})

    def forget(self, key: int) -> None:
        """Close the connections to a host that is not polled any more."""
        host = self._known.pop(key, None)
        if host is not None and key not in self._busy:
            host.close()

    def close(self) -> None:
        """Close the connections to all hosts without a poll under way."""
        for key in list(self._known):
            self.forget(key)

    def send(self, answer: Mapping[str, Any]) -> None:
        """Send one message to the parent as a line."""
        line = memoryview(wire.encode(answer))
        with self._write_lock:
            while line:
                line = line[os.write(self._answers, line) :]

    def _poll_host(self, key: int, request: Mapping[str, Any]) -> dict[str, Any]:
        """Poll a host, and return the report or the error as JSON values."""
        host = self._known.get(key)
        if host is None:
            given = request["credential"]
            host = LibvirtHost(request["uri"], Credential.from_json(given) if given else None)
            self._known[key] = host
        try:
            return {"ok": host.perform("report", request["args"])}
        except HostUnreachableError as error:
            return {"error": "unreachable", "reason": error.reason}
        except OperationFailedError as error:
            return {"error": "failed", "reason": error.reason, "code": error.code}
        except MemoryError:
            raise
        except Exception as error:  # an unexpected error of a host
            self.forget(key)
            return {"error": "unreachable", "reason": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Serve the parent's requests to poll hosts until the parent ends."""
    # Answers of hosts are parsed here: oversized ones must not use up other processes' memory.
    resource.setrlimit(resource.RLIMIT_DATA, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_FILES if hard == resource.RLIM_INFINITY else min(_MAX_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    threading.stack_size(_STACK_BYTES)
    # What a library or an ssh prints must not end up among the answers.
    answers = os.dup(1)
    os.dup2(2, 1)
    start_event_loop()
    hosts = _PolledHosts(answers)
    threading.Thread(target=_send_heartbeats, args=(hosts,), daemon=True).start()
    try:
        _serve_requests(hosts)
    finally:  # hung threads would keep this process alive
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)  # with what libvirt started for us
        os._exit(0)


def _serve_requests(hosts: _PolledHosts) -> None:
    """Pass the parent's requests to threads that poll hosts, until the input ends."""
    pollers = ThreadPoolExecutor(_MAX_THREADS)
    # The pool keeps its threads. If not even one can start, this raises.
    pollers.submit(threading.get_ident).result()
    for line in sys.stdin.buffer:
        request = wire.decode(line)
        # If no further thread can start, an existing one takes the work.
        with contextlib.suppress(RuntimeError):
            if "forget" in request:
                pollers.submit(hosts.forget, request["forget"])
            else:
                pollers.submit(hosts.poll, request)
    closing = threading.Thread(target=hosts.close, daemon=True)
    closing.start()
    closing.join(_GOODBYE_S)


def _send_heartbeats(hosts: _PolledHosts) -> None:
    """Send heartbeats to the parent, and truncate this process's log."""
    while True:
        with contextlib.suppress(OSError):
            if os.fstat(2).st_size > _MAX_LOGGED_BYTES:
                os.ftruncate(2, 0)
                os.lseek(2, 0, os.SEEK_SET)
        try:
            hosts.send({"id": 0})
        except OSError:
            return  # the parent has gone
        time.sleep(_BEAT_S)


if __name__ == "__main__":
    main()
