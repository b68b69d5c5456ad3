"""Limits log lines that unknown callers can cause to one a minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

LOG_EVERY_S: Final = 60.0


class LogThrottle:
    """Limits the log lines of a repeated event to one a minute, with its count."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged_at = float("-inf")
        self._times = 0

    def count_event(self) -> int:
        """Count one event. Return the count since the last report, or 0 if no report is due."""
        self._times += 1
        now = self._clock()
        if now - self._logged_at < LOG_EVERY_S:
            return 0
        self._logged_at = now
        times, self._times = self._times, 0
        return times


class ThrottlingFilter(logging.Filter):
    """Limits log lines of libraries that unknown callers can cause to one a minute."""

    _PROVOKED: Final = ("Invalid HTTP request received.", "socket.accept() out of system resource")

    def __init__(self) -> None:
        super().__init__()
        self._counters = {text: LogThrottle() for text in self._PROVOKED}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a line; add the number of suppressed ones to it."""
        text = next((text for text in self._PROVOKED if str(record.msg).startswith(text)), None)
        if text is None:
            return True
        times = self._counters[text].count_event()
        if times > 1:
            record.msg = f"{text} ({times} times since it was logged last)"
        return times > 0


def throttle_library_logs() -> None:
    """Limit the log lines of asyncio and uvicorn that unknown callers can cause."""
    for name in ("asyncio", "uvicorn.error"):
        logger = logging.getLogger(name)
        if not any(isinstance(each, ThrottlingFilter) for each in logger.filters):
            logger.addFilter(ThrottlingFilter())
