"""What a worker of a simulation fleet counts of its runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from service import ProcessMetrics

_BUCKETS_S: Final = (1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 6 * 3600.0, 24 * 3600.0)


class Outcome(StrEnum):
    """What became of a message that names a run."""

    FINISHED = "finished"
    STOPPED = "stopped"  #: it has written what it had
    FAILED = "failed"
    NOT_OURS = "not_ours"  #: somebody else is at it, or it need not be done any more
    REFUSED = "refused"  #: it is outside our folder, or there we may not do what we must
    ERROR = "error"  #: an error that nobody expected


class RunMetrics:
    """Counts messages by what became of them, and how many runs are under way."""

    def __init__(self, metrics: ProcessMetrics, *, jobs: int) -> None:
        self._messages = Counter(
            "fuga_simulation_messages",
            "Messages taken by this worker, by outcome of the run.",
            ["outcome"],
            registry=metrics.registry,
        )
        for outcome in Outcome:
            self._messages.labels(outcome.value)
        self._running = Gauge(
            "fuga_simulation_running", "Runs under way on this worker.", registry=metrics.registry
        )
        Gauge(
            "fuga_simulation_jobs",
            "Maximum number of simultaneous runs.",
            registry=metrics.registry,
        ).set(jobs)
        self._seconds = Histogram(
            "fuga_simulation_run_seconds",
            "Duration of the parts of runs that ended here.",
            buckets=_BUCKETS_S,
            registry=metrics.registry,
        )

    def run(self, work: Callable[[], Outcome]) -> None:
        """Do what a message asks for, and count it."""
        started = time.perf_counter()
        became = Outcome.ERROR
        try:
            with self._running.track_inprogress():
                became = work()
        finally:
            self._messages.labels(became.value).inc()
            if became is Outcome.FINISHED:
                self._seconds.observe(time.perf_counter() - started)
