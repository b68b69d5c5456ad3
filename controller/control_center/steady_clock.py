"""The time by which rows expire for good; a forward step of the database's clock waits an hour.

VMs of requests with a lifetime are deleted, reservations end and history is purged. Setting the
clock back does not undo that. So after a forward step this clock continues from the old time for
an hour, in which operators can set the clock right. After that hour the new time counts.
A clock that returns to its time before a backward step has stepped forward, too. What was given an
end in between has it moved when that is recorded (`registry.admin.moved_ends`).
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

#: The largest difference between the clock and the elapsed time that is no step. Reading the
#: time from a slow database takes less.
TOLERANCE: Final = timedelta(seconds=60)

log = structlog.get_logger()


def seconds_since_boot() -> float:
    """Return the seconds since this machine booted, including suspended time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """Follows the database's clock; detects steps by this machine's time since boot."""

    def __init__(
        self, registry: Registry, elapsed: Callable[[], float] = seconds_since_boot
    ) -> None:
        self._registry = registry
        self._elapsed = elapsed
        self._lock = threading.Lock()
        self._at: datetime | None = None  #: the last time of the database that was accepted
        self._elapsed_s = 0.0  #: this machine's time since boot at that moment
        self._held_since: float | None = None  #: None: no forward step is held back
        self._recorded_s = 0.0  #: how much of what is held back is recorded

    @classmethod
    def begin(cls, registry: Registry) -> SteadyClock:
        """Return a clock that is read before the control lease is taken.

        The lease says until when another control centre led, and so whether the clock may have
        been set right since.
        """
        clock = cls(registry)
        clock.now()
        return clock

    def now(self) -> datetime:
        """Return the database's time, with a recent forward step held back."""
        with self._lock:
            now, elapsed_s = self._registry.now(), self._elapsed()
            if self._at is None:
                self._restore_held_step(now, elapsed_s)
            assert self._at is not None  # noqa: S101 - it has begun
            expected = self._at + timedelta(seconds=elapsed_s - self._elapsed_s)
            ahead = now - expected
            if ahead > TOLERANCE and not self._is_step_accepted(ahead, elapsed_s):
                return expected
            self._at, self._elapsed_s, self._held_since = now, elapsed_s, None
            self._recorded_s = 0.0
            return now

    def _restore_held_step(self, now: datetime, elapsed_s: float) -> None:
        """Restore a forward step that an earlier process held back, or that none saw."""
        step = self._registry.clock_steps.last_step_ahead()
        self._at, self._elapsed_s = now, elapsed_s
        if step is not None:
            self._at -= timedelta(seconds=step.ahead_s)
            self._held_since = elapsed_s - (now - step.at).total_seconds()
            self._recorded_s = step.ahead_s
        else:
            # The clock was set right while no control centre ran.
            self._at -= timedelta(seconds=self._registry.clock_steps.unseen_return_s())

    def _is_step_accepted(self, ahead: timedelta, elapsed_s: float) -> bool:
        """Return whether a forward step was held back long enough; record a new or larger step."""
        ahead_s = ahead.total_seconds()
        if self._held_since is None or ahead_s - self._recorded_s > TOLERANCE.total_seconds():
            self._registry.clock_steps.record_step_ahead(ahead_s)
            self._held_since, self._recorded_s = elapsed_s, ahead_s
            log.error("clock_stepped_ahead", alert=True, by_s=round(ahead_s, 1))
        if elapsed_s - self._held_since < HELD.total_seconds():
            return False
        log.warning("clock_taken_as_right", by_s=round(ahead_s, 1))
        return True
