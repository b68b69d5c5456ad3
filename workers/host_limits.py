"""Keeps one ailing host, or its storage, from occupying every thread of a worker."""

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
    """The parts of a host that work needs."""

    uri: str
    pool: bool  #: also its storage


class HostLimits:
    """Lends hosts, at most ``max_threads`` threads each, and none for a while after silence.

    A call into a hung host blocks its thread until the call's deadline. The
    maximum bounds how many threads one host can hold; the pause after an
    unanswered call bounds how often it can. After the pause one thread goes
    first, and only its success lets the others in again. A thread that finds the host
    full waits a moment: a host that is well does its work in less.

    Storage hangs by itself. Work that needs it counts for itself and has its own pauses;
    work without it (power, consoles) may have one thread more, which storage never takes.
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
    def enter(self, host: HostAccess, *, pool: bool = False) -> Iterator[HostDriver]:
        """Lend the driver of a host; `HostBusyError` when no thread more may enter.

        ``pool``: for work that needs the host's storage, which may be known to be silent.
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

    def mover(
        self, source: HostAccess, destination: HostAccess
    ) -> AbstractContextManager[Migrator]:
        """Lend what moves VMs between two hosts: a process of its own, not counted as a thread."""
        return self._hosts.mover(source, destination)

    def _take_thread(self, part: _HostPart) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._may_enter(part), timeout=self._wait_s)
            if not self._may_enter(part):
                raise HostBusyError(part.uri, f"{self._threads(part.uri)} threads are on it")
            self._inside[part] += 1

    def _may_enter(self, part: _HostPart) -> bool:
        silent_until = self._silent_until.get(part)
        if silent_until is not None and self._clock() < silent_until:
            raise HostBusyError(part.uri, "it did not answer a moment ago")
        if silent_until is not None:
            return self._inside[part] < 1
        if part.pool and self._inside[part] >= self._max_threads:
            return False
        return self._threads(part.uri) <= self._max_threads

    def _threads(self, uri: str) -> int:
        return self._inside[_HostPart(uri, True)] + self._inside[_HostPart(uri, False)]
