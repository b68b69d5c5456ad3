"""The metrics of every process: its version, its resource usage, its errors."""

from __future__ import annotations

from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
)
from prometheus_client import ProcessCollector as ResourceUse
from prometheus_client import generate_latest as as_text

from service.version import commit, engine_version

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


class ProcessMetrics:
    """The metrics of one process; its other counters register here."""

    def __init__(self, process: str) -> None:
        # A series more for each counter, of no use here.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library says no types
        self.registry = CollectorRegistry()
        ResourceUse(registry=self.registry)
        Gauge(
            "fuga_build_info",
            "Always 1; kind, version and commit of this process.",
            ["process", "version", "commit"],
            registry=self.registry,
        ).labels(process, engine_version(), commit() or "").set(1)
        self._problems = Counter(
            "fuga_problems",
            "Warnings and errors logged, by event (of libraries: by logger).",
            ["level", "kind"],
            registry=self.registry,
        )

    def count_problem(self, level: str, kind: str) -> None:
        """Count a warning or an error; `configure_logging` calls this with each."""
        self._problems.labels(level, kind).inc()

    def text(self) -> bytes:
        """Return all metrics of the process in Prometheus's text format."""
        return as_text(self.registry)
