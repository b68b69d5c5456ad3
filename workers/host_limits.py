"""Keeps a failing host, or its storage, from occupying all threads of a worker."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from hypervisor import HostUnreachableError
from registry.hosts import HostAccess
from workers.driver import HostDriver, HostDrivers, Migrator
from workers.errors import HostBusyError


class _HostPart(NamedTuple):
    """The parts of a host that a piece of work needs."""

    uri: str
    pool: bool  #: whether it also needs the host's storage


class HostLimits:
    """Lends drivers: at most ``max_threads`` threads per host, and none for a while after silence.

    A call to a hung host blocks its thread until the deadline. The maximum bounds how many threads
    one host can block; the pause after an unanswered call bounds at which rate. After the pause one
    thread tries first, and only its success admits the others. If a host is full, a thread waits
    for a moment.

    Storage can hang alone. So work that needs storage is counted separately and has its own pauses.
    Work without storage (power, consoles) may use one thread more.
    """

    def __init__(
        self,
        hosts: HostDrivers,
        *,
        max_threads: int,
        pause_s: float,
        wait_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hosts = hosts
        self._max_threads = max_threads
        self._pause_s = pause_s
        self._wait_s = wait_s
        self._clock = clock
        self._changed = threading.Condition()
        self._inside: Counter[_HostPart] = Counter()
        self._silent_until: dict[_HostPart, float] = {}

    @contextmanager
    def use(self, host: HostAccess, *, pool: bool = False) -> Iterator[HostDriver]:
        """Lend a driver of a host; raise `HostBusyError` if the host has its maximum of threads.

        ``pool`` says that the work needs the host's storage.
        """
        if pool and host.pool_silent:
            raise HostBusyError(host.uri, f"its storage pool {host.pool!r} does not answer")
        part = _HostPart(host.uri, pool)
        self._take_thread(part)
        try:
            with self._hosts.use(host) as driver:
                yield driver
        except HostUnreachableError:
            with self._changed:
                self._silent_until[part] = self._clock() + self._pause_s
            raise
        else:
            with self._changed:
                self._silent_until.pop(part, None)
        finally:
            with self._changed:
                self._inside[part] -= 1
                if not self._inside[part]:
                    del self._inside[part]
                self._changed.notify_all()

    def migrator(
        self, source: HostAccess, destination: HostAccess
    ) -> AbstractContextManager[Migrator]:
        """Lend a migrator from ``source`` to ``destination``; its thread is not counted."""
        return self._hosts.migrator(source, destination)

    def _take_thread(self, part: _HostPart) -> None:
        """Wait for a free thread on a host; raise `HostBusyError` if none gets free."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_free_thread(part), timeout=self._wait_s)
            if not self._has_free_thread(part):
                raise HostBusyError(part.uri, f"{self._thread_count(part.uri)} threads are on it")
            self._inside[part] += 1

    def _has_free_thread(self, part: _HostPart) -> bool:
        """Return whether a host has a free thread; `HostBusyError` if it was silent lately."""
        silent_until = self._silent_until.get(part)
        if silent_until is not None and self._clock() < silent_until:
            raise HostBusyError(part.uri, "it did not answer a moment ago")
        if silent_until is not None:
            return self._inside[part] < 1
        if part.pool and self._inside[part] >= self._max_threads:
            return False
        return self._thread_count(part.uri) <= self._max_threads

    def _thread_count(self, uri: str) -> int:
        """Return how many threads of this worker are on a host."""
        return self._inside[_HostPart(uri, True)] + self._inside[_HostPart(uri, False)]
