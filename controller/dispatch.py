"""The sweep: finds assignments that need a worker and sends their ids, again and again.

Brokers lose messages and workers die with them; the rows do not. So nothing
waits for an answer: what is still due after a while is sent once more, and
workers claim a row before they touch a host.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from controller.queue import TaskQueue
from registry import Registry, RegistryError

log = structlog.get_logger()


class Dispatcher:
    """Sweeps at an interval, and at once when nudged."""

    def __init__(
        self,
        registry: Registry,
        queue: TaskQueue,
        *,
        interval_s: float,
        resend_after_s: float,
        build_timeout_s: float,
        on_sent: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._registry = registry
        self._queue = queue
        self._interval_s = interval_s
        self._resend_after_s = resend_after_s
        self._build_timeout_s = build_timeout_s
        self._on_sent = on_sent
        self._nudged = threading.Event()

    def nudge(self) -> None:
        """Sweep now rather than at the end of the interval."""
        self._nudged.set()

    def sweep(self) -> int:
        """End what has expired and send what is due; return how many tasks that were."""
        expired = self._registry.requests.expire()
        if expired:
            log.info("requests_expired", requests=[str(key) for key in expired])
        due = self._registry.assignments.due(resend_after_s=self._resend_after_s)
        for task in due:
            self._queue.send(task.task, task.id)
            self._on_sent(task.task)
        if due:
            log.debug("swept", sent=len(due))
        overdue = self._registry.assignments.end_overdue(self._build_timeout_s)
        if overdue:
            log.warning("builds_overdue", assignments=[str(key) for key in overdue])
        return len(due)

    def run(self, stop: threading.Event) -> None:
        """Sweep until told to stop."""
        while not stop.is_set():
            try:
                more = self.sweep() > 0
            except RegistryError as error:
                log.error("sweep_failed", error=str(error))
                more = False
            except Exception:  # the loop outlives a database that is away for a moment
                log.exception("sweep_failed")
                more = False
            if more:
                time.sleep(0.05)  # the rest of a long batch, without starving others
            else:
                self._nudged.wait(self._interval_s)
            self._nudged.clear()
