"""Samples the capacity of classes of hosts each minute, for its history."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from controller.control_center.repetition import repeat_until
from controller.control_center.steady_clock import SteadyClock
from registry import Registry, StaleEpochError
from registry.rounds import Lease

INTERVAL_S: Final = 60.0


class CapacitySampler:
    """Takes a sample at an interval, and only while its control centre leads."""

    def __init__(
        self, registry: Registry, lease: Callable[[], Lease | None], clock: SteadyClock
    ) -> None:
        self._registry = registry
        self._lease = lease
        self._clock = clock

    def run(self, stop: threading.Event) -> None:
        """Take samples until stopped; a minute whose sample fails has none."""
        repeat_until(stop, INTERVAL_S, self.sample, failed="capacity_not_sampled")

    def sample(self) -> bool:
        """Take a sample; return whether this control centre leads and took one."""
        lease = self._lease()
        if lease is None:
            return False
        try:
            return self._registry.capacity_history.sample(lease, by=self._clock.now())
        except StaleEpochError:
            return False
