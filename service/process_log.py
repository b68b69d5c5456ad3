"""The start of a process's log, by its settings."""

from __future__ import annotations

import structlog

from service.logs import configure_logging
from service.metrics import ProcessMetrics
from service.settings import SharedSettings
from service.version import release


def begin_log(settings: SharedSettings, metrics: ProcessMetrics) -> None:
    """Configure the process's log by its settings, and log the release. Call once, at the start."""
    configure_logging(
        settings.log_level, form=settings.log_format, on_problem=metrics.count_problem
    )
    structlog.get_logger(__name__).info("process_starts", release=release())
