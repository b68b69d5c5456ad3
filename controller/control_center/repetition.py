"""Repeats a task of the control centre at an interval, whatever fails."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from registry import RegistryError

log = structlog.get_logger()


def repeat_until(
    stop: threading.Event, interval_s: float, task: Callable[[], object], *, failed: str
) -> None:
    """Run a task every ``interval_s`` until stopped; log its failures as the event ``failed``."""
    while not stop.wait(interval_s):
        try:
            task()
        except RegistryError as error:
            log.error(failed, error=str(error))
        except Exception:  # the loop outlives a database that is away for a moment
            log.exception(failed)
