"""Keeps one ailing host from occupying every thread of a worker."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hypervisor import HostUnreachableError
from registry import HostAccess
from workers.driver import HostDriver, Hosts
from workers.errors import HostBusyError


class Gate:
    """Lends hosts, at most ``lanes`` threads each, and none for a while after silence.

    A call into a hung host blocks its thread until the call's deadline. Lanes
    bound how many threads one host can hold that way; the pause after an
    unanswered call bounds how often it can. After the pause one thread goes
    first, and only its success opens the other lanes again. Who finds the lanes
    full waits a moment, for a host that is well does its work in less.
    """

    def __init__(
        self,
        hosts: Hosts,
        *,
        lanes: int,
        pause_s: float,
        wait_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hosts = hosts
        self._lanes = lanes
        self._pause_s = pause_s
        self._wait_s = wait_s
        self._clock = clock
        self._changed = threading.Condition()
        self._inside: Counter[str] = Counter()
        self._silent_until: dict[str, float] = {}

    @contextmanager
    def enter(self, host: HostAccess) -> Iterator[HostDriver]:
        """Lend the driver of a host; `HostBusyError` when it has no lane free."""
        uri = host.uri
        self._take_lane(uri)
        try:
            with self._hosts.use(host) as driver:
                yield driver
        except HostUnreachableError:
            with self._changed:
                self._silent_until[uri] = self._clock() + self._pause_s
            raise
        else:
            with self._changed:
                self._silent_until.pop(uri, None)
        finally:
            with self._changed:
                self._inside[uri] -= 1
                if not self._inside[uri]:
                    del self._inside[uri]
                self._changed.notify_all()

    def _take_lane(self, uri: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._may_enter(uri), timeout=self._wait_s)
            if not self._may_enter(uri):
                raise HostBusyError(uri, f"{self._inside[uri]} threads are on it")
            self._inside[uri] += 1

    def _may_enter(self, uri: str) -> bool:
        silent_until = self._silent_until.get(uri)
        if silent_until is not None and self._clock() < silent_until:
            raise HostBusyError(uri, "it did not answer a moment ago")
        lanes = self._lanes if silent_until is None else 1
        return self._inside[uri] < lanes
