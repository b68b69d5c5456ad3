"""Corrects stored times that lie in the future after the database's clock stepped back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import structlog

from controller.settings import ControllerSettings
from registry import Registry, RegistryError
from registry.admin import LeaseLengths
from registry.rounds import Lease

log = structlog.get_logger()

INTERVAL_S: Final = 10.0


class ClockWatch:
    """Checks at an interval whether the clock stepped back, while its control centre leads."""

    def __init__(
        self, registry: Registry, lease: Callable[[], Lease | None], lengths: LeaseLengths
    ) -> None:
        self._registry = registry
        self._lease = lease
        self._lengths = lengths
        self._epoch: int | None = None  #: in which the whole history was checked

    def run(self, stop: threading.Event) -> None:
        """Check the database's clock at an interval until stopped."""
        while not stop.wait(INTERVAL_S):
            try:
                self.settle_times()
            except RegistryError as error:
                log.error("clock_not_read", error=str(error))
            except Exception:  # the loop outlives a database that is away for a moment
                log.exception("clock_not_read")

    def settle_times(self) -> float:
        """Correct stored times that lie in the future; return the clock's least step back in s."""
        lease = self._lease()
        if lease is None:
            return 0.0
        # There may have been no leader when the clock stepped back.
        thorough = lease.epoch != self._epoch
        back_s = self._registry.clock_steps.correct_times(self._lengths, thorough=thorough)
        self._epoch = lease.epoch
        if back_s:
            log.error("clock_stepped_back", alert=True, by_s=round(back_s, 1))
        return back_s


def lease_lengths(settings: ControllerSettings) -> LeaseLengths:
    """Return the settings' lengths of leases and holds, which bound the times that rows store."""
    return LeaseLengths(
        lease_s=settings.lease_s,
        fence_timeout_s=settings.fence_timeout_s,
        spot_grace_s=settings.spot_grace_s,
        room_hold_s=settings.room_hold_s,
    )
