"""The sweep: finds assignments that need a worker and sends their ids repeatedly.

Brokers lose messages, and workers die with messages; the rows stay. So the sweep waits for
no answer: it sends again what is still due after a while, and workers claim a row before they
touch a host.

If the broker is away or hangs, a sweep loses the time of one call. The steps that need no
broker come first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import structlog

from controller.control_center.steady_clock import SteadyClock
from controller.worker_queue import TaskQueue
from registry import Registry, RegistryError
from registry.tasks import WorkQueue
from service import Check

#: If no sweep completes for this long, due work reaches the workers late.
LATE_S: Final = 30.0
#: Pause while messages wait: workers may take the few of them before the interval ends.
_SOON_S: Final = 0.25

log = structlog.get_logger()


class Broker(TaskQueue, Protocol):
    """A task queue that also counts the messages that wait."""

    def queue_lengths(self) -> Mapping[WorkQueue, int] | None:
        """Return the number of waiting messages by queue; None if the broker does not answer."""
        ...


class Dispatcher:
    """Sends due tasks to workers in sweeps: at an interval, and at once when nudged."""

    def __init__(
        self,
        registry: Registry,
        queue: Broker,
        *,
        interval_s: float,
        resend_after_s: float,
        build_timeout_s: float,
        on_sent: Callable[[str], None] = lambda _: None,
        now: Callable[[], float] = time.monotonic,
        clock: SteadyClock | None = None,
    ) -> None:
        self._registry = registry
        self.clock = clock or SteadyClock(registry)
        self._queue = queue
        self._interval_s = interval_s
        self._resend_after_s = resend_after_s
        self._build_timeout_s = build_timeout_s
        self._on_sent = on_sent
        self._now = now
        self._nudged = threading.Event()
        self._swept_at = now()
        self._broker_takes = True
        self._workers_lag = False

    def nudge(self) -> None:
        """Start the next sweep now instead of at the end of the interval."""
        self._nudged.set()

    @property
    def age_s(self) -> float:
        """Seconds since the last complete sweep, or since the first one began."""
        return self._now() - self._swept_at

    def check(self) -> Check:
        """Return the health check of the sweep: that it runs, and the broker takes messages."""
        age_s = self.age_s
        if not self._broker_takes:
            return Check("sweep", False, f"the broker has accepted no messages for {age_s:.0f} s")
        if age_s > self._interval_s + LATE_S:
            return Check("sweep", False, f"last done {age_s:.0f} s ago")
        return Check("sweep", True, "done, and again and again")

    def sweep(self) -> int:
        """End expired rows and send due tasks; return how many tasks were sent."""
        by = self.clock.now()
        expired = self._registry.requests.expire(by=by)
        if expired:
            log.info("requests_expired", requests=[str(key) for key in expired])
        ended = self._registry.requests.end_spot_vms()
        if ended:
            log.info("spot_vms_ended", vms=[str(key) for key in ended])
        settled = self._registry.reservations.begin_and_end_due(by=by)
        if settled:
            log.info("reservations_settled", reservations=[str(key) for key in settled])
        overdue = self._registry.assignments.end_overdue(self._build_timeout_s)
        if overdue:
            log.warning("builds_overdue", assignments=[str(key) for key in overdue])
        sent = self._send_due_tasks()
        if self._broker_takes:
            self._swept_at = self._now()
        return sent

    def _send_due_tasks(self) -> int:
        """Send due tasks until the broker refuses one; the rest stays due.

        Sends at most as many as workers will soon take. A task counts as sent only if the broker
        took it.
        """
        waiting = self._queue.queue_lengths()
        self._broker_takes = waiting is not None
        if waiting is None:
            return 0
        self._workers_lag = any(waiting.values())
        sent = 0
        for task in self._registry.assignments.send_due_tasks(
            resend_after_s=self._resend_after_s, waiting=waiting
        ):
            self._broker_takes = self._queue.send(task.task, task.id)
            if not self._broker_takes:
                break
            self._on_sent(task.task)
            sent += 1
        if sent:
            log.debug("swept", sent=sent)
        return sent

    def run(self, stop: threading.Event) -> None:
        """Send due tasks to workers, sweep after sweep, until stopped."""
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
                soon = self._workers_lag and self._broker_takes
                self._nudged.wait(min(self._interval_s, _SOON_S) if soon else self._interval_s)
            self._nudged.clear()
