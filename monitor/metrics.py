"""The metrics of a monitor's polls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from service import ProcessMetrics

_BUCKETS_S: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 8.0, 30.0)
ANSWERED: Final = "answered"
MISSED: Final = "missed"
NOT_RECORDED: Final = "not_recorded"  #: the register center did not accept it


class PollMetrics:
    """Counts the polls of hosts by outcome, and measures their duration."""

    def __init__(self, metrics: ProcessMetrics) -> None:
        self._polls = Counter(
            "fuga_polls", "Polls of hosts.", ["outcome"], registry=metrics.registry
        )
        self._seconds = Histogram(
            "fuga_poll_seconds",
            "Duration of polls of hosts that answered.",
            buckets=_BUCKETS_S,
            registry=metrics.registry,
        )
        self._watched = Gauge(
            "fuga_watched_hosts", "Hosts that this monitor polls.", registry=metrics.registry
        )

    def report_watched_hosts(self, count: Callable[[], int]) -> None:
        """Export the number of polled hosts, read from ``count``."""
        self._watched.set_function(lambda: float(count()))

    def count_poll(self, outcome: str) -> None:
        """Count a poll by its outcome."""
        self._polls.labels(outcome).inc()

    def record_answer(self, seconds: float) -> None:
        """Count an answered poll and record its duration."""
        self.count_poll(ANSWERED)
        self._seconds.observe(seconds)
