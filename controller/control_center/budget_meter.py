"""Measures each minute what is used of budgets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from controller.control_center.repetition import repeat_until
from controller.control_center.steady_clock import SteadyClock
from registry import Registry
from registry.rounds import Lease

INTERVAL_S: Final = 60.0


class BudgetMeter:
    """Measures budgets at an interval, and only while its control centre leads."""

    def __init__(
        self, registry: Registry, lease: Callable[[], Lease | None], clock: SteadyClock
    ) -> None:
        self._registry = registry
        self._lease = lease
        self._clock = clock

    def run(self, stop: threading.Event) -> None:
        """Measure until stopped; if it fails, budgets keep what was measured before."""
        repeat_until(stop, INTERVAL_S, self.measure, failed="budgets_not_measured")

    def measure(self) -> int:
        """Measure all budgets once, if this control centre leads; return how many there are."""
        if self._lease() is None:
            return 0
        return self._registry.budgets.measure(by=self._clock.now())
