"""The register center's clock, without a query each time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

#: Maximum age of the last clock reading.
_SERVES_S: Final = 1.0


class EstimatedClock:
    """Estimates the database's time: never ahead, and behind by at most the query's duration.

    If a poll seems to have begun a little too early, more changes count as later than it; the next
    poll corrects that.
    """

    def __init__(
        self, read_clock: Callable[[], datetime], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = read_clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        #: a database time, and the monotonic time of its reading
        self._known: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """Return the database's time; query it only if the last reading is too old."""
        known = self._known
        if known is None or self._monotonic() - known[1] > _SERVES_S:
            known = self._read_database_clock(known)
        return known[0] + timedelta(seconds=self._monotonic() - known[1])

    def _read_database_clock(self, before: tuple[datetime, float] | None) -> tuple[datetime, float]:
        """Query the database's time, unless another thread has just done so."""
        with self._lock:
            if self._known is not None and self._known is not before:
                return self._known  # another thread has just refreshed it
            answer = self._ask()
            self._known = (answer, self._monotonic())
            return self._known
