"""Threads for held consoles, separate from those of short tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from service.fair_semaphore import FairSemaphore
from workers.driver import HostDrivers


class ConsoleThreads:
    """At most ``limit`` threads that hold consoles, with their connections to hosts.

    No tenant gets all of them.
    """

    def __init__(self, hosts: HostDrivers, *, limit: int) -> None:
        self.hosts = hosts
        self._places = FairSemaphore(limit)
        self._running: set[threading.Thread] = set()

    def begin(self, tenant: str, claim: Callable[[], Callable[[], object] | None]) -> bool | None:
        """Claim a console session if a thread is free for the tenant, and start the thread.

        Returns None if no thread is free, False if there was nothing to claim.
        """
        if not self._places.take(tenant):
            return None
        work = None
        try:
            work = claim()
        finally:
            if work is None:
                self._places.give_back(tenant)
        if work is None:
            return False
        thread = threading.Thread(
            target=self._run_work, args=(tenant, work), name="console", daemon=True
        )
        self._running.add(thread)
        thread.start()
        return True

    def join(self, *, within_s: float) -> None:
        """Wait until all threads have released their consoles, or for ``within_s`` seconds."""
        deadline = time.monotonic() + within_s
        for thread in list(self._running):
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run_work(self, tenant: str, work: Callable[[], object]) -> None:
        """Hold a console in this thread, then give the thread back."""
        try:
            work()
        finally:
            self._running.discard(threading.current_thread())
            self._places.give_back(tenant)
