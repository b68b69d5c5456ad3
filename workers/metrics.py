"""The metrics of a worker's tasks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final
from uuid import UUID

from prometheus_client import Counter, Histogram

from service import ProcessMetrics
from workers.context import TaskOutcome

_BUCKETS_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
#: A task that ended with an unexpected error.
ERROR: Final = "error"


class TaskMetrics:
    """Counts tasks by outcome, and measures those that this worker executed."""

    def __init__(self, metrics: ProcessMetrics) -> None:
        self._tasks = Counter(
            "fuga_tasks",
            "Messages taken by this worker, by outcome.",
            ["task", "outcome"],
            registry=metrics.registry,
        )
        self._seconds = Histogram(
            "fuga_task_seconds",
            "Duration of this worker's tasks.",
            ["task"],
            buckets=_BUCKETS_S,
            registry=metrics.registry,
        )

    def run(self, task: str, work: Callable[[UUID], TaskOutcome], row_id: UUID) -> None:
        """Run a worker's task, count it by outcome, and measure its duration."""
        started = time.perf_counter()
        outcome = ERROR
        try:
            outcome = work(row_id).value
        finally:
            self._tasks.labels(task, outcome).inc()
            if outcome != TaskOutcome.NOT_OURS:
                self._seconds.labels(task).observe(time.perf_counter() - started)
