"""Sums up usage, signs closed months and deletes old history, in small batches, while leading."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Final

import structlog

from controller.control_center.steady_clock import SteadyClock
from registry import Registry, RegistryError, StaleEpochError
from registry.admin import Periods, PurgeCounts
from registry.rounds import Lease

log = structlog.get_logger()

FIRST_AFTER_S: Final = 60.0
#: Pause between batches, in which rounds and reports get the database.
PAUSE_S: Final = 0.05


class Purger:
    """Purges at an interval, and only while its control centre leads."""

    def __init__(
        self,
        registry: Registry,
        lease: Callable[[], Lease | None],
        periods: Periods,
        *,
        interval_s: float,
        pause_s: float = PAUSE_S,
        clock: SteadyClock | None = None,
    ) -> None:
        self._registry = registry
        self._clock = clock or SteadyClock(registry)
        self._lease = lease
        self._periods = periods
        self._interval_s = interval_s
        self._pause_s = pause_s

    def run(self, stop: threading.Event) -> None:
        """Purge expired history at an interval until stopped."""
        pause = min(FIRST_AFTER_S, self._interval_s)
        while not stop.wait(pause):
            try:
                self.purge(stop)
            except RegistryError as error:
                log.error("purge_failed", error=str(error))
            except Exception:  # the loop outlives a database that is away for a moment
                log.exception("purge_failed")
            pause = self._interval_s

    def purge(self, stop: threading.Event) -> PurgeCounts:
        """Delete all history that is due; stop between two batches if the lease is lost."""
        self.add_usage(stop)
        self.sign_closed_months()
        taken = PurgeCounts()
        while not stop.is_set() and (lease := self._lease()) is not None:
            try:
                batch = self._registry.retention.purge_batch(
                    self._periods, lease=lease, by=self._clock.now()
                )
            except StaleEpochError:
                break
            if not batch:
                break
            taken += batch
            stop.wait(self._pause_s)
        if taken:
            log.info("history_purged", **dataclasses.asdict(taken))
            _record_purge(self._registry, taken, actor="control")
        return taken

    def add_usage(self, stop: threading.Event) -> None:
        """Add ended assignments to the daily sums of usage, in batches."""
        while not stop.is_set() and self._lease() is not None:
            if not self._registry.usage.add_ended(by=self._clock.now()):
                break
            stop.wait(self._pause_s)

    def sign_closed_months(self) -> None:
        """Sign closed months and corrections with the site's key, if this process has it."""
        signer = self._registry.rounds.signer
        if signer is not None and self._lease() is not None:
            self._registry.closed_months.sign(signer.sign_entry)


def purge_all(registry: Registry, periods: Periods, *, actor: str = "cli") -> PurgeCounts:
    """Delete all history that is due, whether or not this process leads."""
    taken = PurgeCounts()
    while batch := registry.retention.purge_batch(periods):
        taken += batch
    if taken:
        _record_purge(registry, taken, actor=actor)
    return taken


def _record_purge(registry: Registry, taken: PurgeCounts, *, actor: str) -> None:
    """Record as an event how much history was deleted."""
    counts = dataclasses.asdict(taken)
    registry.events.add(
        actor=actor,
        kind="history_purged",
        subject_type="database",
        subject_id="history",
        reason=", ".join(f"{number} {name}" for name, number in counts.items() if number),
    )
