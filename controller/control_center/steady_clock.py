"""The time by which things end for good: a step ahead of the database's clock waits an hour.

VMs of requests with a lifetime are deleted, reservations end, and history goes, and no step back
of the clock brings any of it back. After a step ahead these go on by the old time, while operators
learn of the step and set the clock right. Otherwise the new time counts after an hour.
A clock that stepped back and returns to where it was did not step ahead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import structlog

from registry import Registry
from registry.admin import HELD

#: A clock that is further ahead of what passed since the last look was set. A look at a database
#: that answers late takes less.
TOLERANCE: Final = timedelta(seconds=60)

log = structlog.get_logger()


def since_boot() -> float:
    """Return the seconds since this machine started, those in which it slept as well."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """Follows the database's clock, by what passes on this machine from look to look."""

    def __init__(self, registry: Registry, elapsed: Callable[[], float] = since_boot) -> None:
        self._registry = registry
        self._elapsed = elapsed
        self._lock = threading.Lock()
        self._at: datetime | None = None  #: the time at the last look that was believed
        self._elapsed_s = 0.0  #: at that look
        self._held_since: float | None = None  #: None: the clock did not step ahead
        #: The time minus `elapsed`, as it was before a step back; None: it did not step back.
        self._before_back: datetime | None = None

    def now(self) -> datetime:
        """Return the database's time, or the time that it was without its step ahead."""
        with self._lock:
            now, elapsed_s = self._registry.now(), self._elapsed()
            if self._at is None:
                self._begin(now, elapsed_s)
            assert self._at is not None  # noqa: S101 - it has begun
            expected = self._at + timedelta(seconds=elapsed_s - self._elapsed_s)
            if expected - now > TOLERANCE:
                self._keep_before_back(expected, elapsed_s)
            ahead = now - expected
            if ahead > TOLERANCE and not (
                self._is_back(now, elapsed_s) or self._is_over(ahead, elapsed_s)
            ):
                return expected
            self._at, self._elapsed_s, self._held_since = now, elapsed_s, None
            return now

    def _begin(self, now: datetime, elapsed_s: float) -> None:
        """Go on where another process, or this one before its restart, held a step."""
        step = self._registry.clock_steps.ahead()
        self._at, self._elapsed_s = now, elapsed_s
        back = self._registry.clock_steps.back()
        if back is not None:
            self._keep_before_back(now + timedelta(seconds=back.back_s), elapsed_s)
        if step is not None:
            self._at -= timedelta(seconds=step.ahead_s)
            self._held_since = elapsed_s - (now - step.at).total_seconds()

    def _keep_before_back(self, time_before: datetime, elapsed_s: float) -> None:
        before = time_before - timedelta(seconds=elapsed_s)
        self._before_back = max(before, self._before_back or before)

    def _is_back(self, now: datetime, elapsed_s: float) -> bool:
        """Return whether the clock is at most where it was before it stepped back."""
        if self._before_back is None:
            return False
        beyond = now - timedelta(seconds=elapsed_s) - self._before_back
        if abs(beyond) <= TOLERANCE:
            self._before_back = None
        return beyond <= TOLERANCE

    def _is_over(self, ahead: timedelta, elapsed_s: float) -> bool:
        """Return whether the step waited long enough; note one that is new."""
        ahead_s = ahead.total_seconds()
        if self._held_since is None:
            self._registry.clock_steps.note_ahead(ahead_s)
            self._held_since = elapsed_s
            log.error("clock_stepped_ahead", alert=True, by_s=round(ahead_s, 1))
        if elapsed_s - self._held_since < HELD.total_seconds():
            return False
        log.warning("clock_taken_as_right", by_s=round(ahead_s, 1))
        return True
