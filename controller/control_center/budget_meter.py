"""Measures each minute what is used of budgets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import structlog

from controller.control_center.steady_clock import SteadyClock
from registry import Registry, RegistryError
from registry.rounds import Lease

log = structlog.get_logger()

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
        while not stop.wait(INTERVAL_S):
            try:
                self.measure()
            except RegistryError as error:
                log.error("budgets_not_measured", error=str(error))
            except Exception:  # the loop outlives a database that is away for a moment
                log.exception("budgets_not_measured")

    def measure(self) -> int:
        """Measure all budgets once, if this control centre leads; return how many there are."""
        if self._lease() is None:
            return 0
        return self._registry.budgets.measure(by=self._clock.now())
