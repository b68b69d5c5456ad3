"""The watch of one host, which polls it."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Final

import structlog

from hypervisor import HypervisorError
from monitor.address_cache import AddressCache
from monitor.clock import EstimatedClock
from monitor.metrics import MISSED, NOT_RECORDED, PollMetrics
from monitor.probe import HostProbe
from monitor.recorder import PollRecorder
from monitor.translate import to_report
from registry import AnotherMachineError
from registry.hosts import Miss, WatchedHost

log: Final = structlog.get_logger(__name__)


class HostWatch:
    """Polls one host, independently of the others.

    A poll waits only for a child process, at most until the deadline: a hung libvirtd delays
    no other poll.
    """

    def __init__(
        self,
        host: WatchedHost,
        probe: HostProbe,
        metrics: PollMetrics,
        *,
        recorder: PollRecorder,
        clock: EstimatedClock,
        addresses: AddressCache,
    ) -> None:
        self.host = host
        self._probe = probe
        self._metrics = metrics
        self._recorder = recorder
        self._clock = clock
        self._addresses = addresses
        self._stop = threading.Event()
        self._health = host.health

    def stop(self) -> None:
        """Stop polling the host. Returns at once; a poll under way ends at its deadline."""
        self._stop.set()

    def close(self) -> None:
        """Close the host's connection, once no poll is under way."""
        self._probe.close()

    def poll(self) -> None:
        """Poll the host once; record the report or the missed poll."""
        bound = log.bind(host=self.host.name)
        try:
            started_at = self._clock.now()
            begun = time.monotonic()
            try:
                seen = self._probe.report(self.host.pool)
                took_s = time.monotonic() - begun
                polled_at = self._clock.now()
                took_ms = round(took_s * 1000)
                report = to_report(
                    seen,
                    # The database's clock may have stepped back during the poll. A start in the
                    # future would make VMs that were started since count as missing.
                    started_at=min(started_at, polled_at - timedelta(seconds=took_s)),
                    polled_at=polled_at,
                    took_ms=took_ms,
                    addresses=self._addresses.addresses_of(self.host.uri),
                )
                host = self._recorder.record(self.host.id, report)
            except (HypervisorError, AnotherMachineError) as error:
                if self._stop.is_set():
                    return  # the watch was stopped
                host = self._recorder.record_miss(self.host.id, Miss(str(error), started_at))
                self._metrics.count_poll(MISSED)
                bound.warning("look_missed", misses=host.missed_polls, error=str(error))
            else:
                self._metrics.record_answer(took_ms / 1000)
                bound.debug("looked", took_ms=took_ms, domains=len(report.domains))
        except Exception:
            # The register center may be away for a moment: the watch must go on.
            self._metrics.count_poll(NOT_RECORDED)
            bound.exception("look_not_recorded")
            return
        if host.health != self._health:
            bound.info("health_changed", from_state=self._health, to_state=host.health)
            self._health = host.health
