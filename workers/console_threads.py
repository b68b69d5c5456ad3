"""Threads for consoles that are held: beside those of the tasks, which are to be done soon."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from workers.driver import Hosts


class ConsoleThreads:
    """Threads in which consoles are held, at most ``limit``, and what they reach hosts by."""

    def __init__(self, hosts: Hosts, *, limit: int) -> None:
        self.hosts = hosts
        self._free = threading.BoundedSemaphore(limit)
        self._running: set[threading.Thread] = set()

    def begin(self, claim: Callable[[], Callable[[], object] | None]) -> bool:
        """Claim work if a thread is free for it, and begin it."""
        if not self._free.acquire(blocking=False):
            return False
        work = None
        try:
            work = claim()
        finally:
            if work is None:
                self._free.release()
        if work is None:
            return False
        thread = threading.Thread(target=self._run, args=(work,), name="console", daemon=True)
        self._running.add(thread)
        thread.start()
        return True

    def join(self, *, within_s: float) -> None:
        """Wait until they have let go of their consoles."""
        deadline = time.monotonic() + within_s
        for thread in list(self._running):
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        finally:
            self._running.discard(threading.current_thread())
            self._free.release()
