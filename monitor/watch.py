"""One host's watch: a thread that looks at it at a fixed cadence, bound by a deadline."""

from __future__ import annotations

import threading
import time
from typing import Final

import structlog

from hypervisor import HypervisorError
from monitor.clock import NearClock
from monitor.metrics import MISSED, NOT_RECORDED, LookMetrics
from monitor.probe import HostProbe
from monitor.recorder import Recorder
from monitor.settings import MonitorSettings
from monitor.translate import to_report
from registry import AnotherMachineError, Host, Registry

log: Final = structlog.get_logger(__name__)

#: Of the interval, when the next look begins. The rest is for the look itself,
#: so that the report before it does not outgrow the interval meanwhile.
_CADENCE: Final = 0.75
#: Of the time between two looks of one monitor. Misses that are nearer to each other are
#: of several monitors, and count once; the rest allows for looks that begin late.
_APART: Final = 0.8


class HostWatch:
    """Looks at one host again and again, whatever the other hosts do.

    The probe has a child process of its own, and the thread only ever waits for
    that child, at most until the deadline: a hung libvirtd delays nobody else.
    """

    def __init__(
        self,
        host: Host,
        probe: HostProbe,
        registry: Registry,
        settings: MonitorSettings,
        metrics: LookMetrics,
        *,
        recorder: Recorder,
        clock: NearClock,
    ) -> None:
        self.host = host
        self._probe = probe
        self._registry = registry
        self._settings = settings
        self._metrics = metrics
        self._recorder = recorder
        self._clock = clock
        self._stop = threading.Event()
        self._health = host.health
        self._thread = threading.Thread(target=self._run, name=f"watch-{host.name}", daemon=True)

    def start(self) -> None:
        """Begin to look, at once."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more. Returns at once; a look under way ends by itself, at its deadline."""
        self._stop.set()

    @property
    def is_alive(self) -> bool:
        """Whether somebody looks."""
        return self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        period_s = self._settings.poll_interval_s * _CADENCE
        next_at = time.monotonic()
        try:
            while not self._stop.is_set():
                self.look()
                next_at = _next_tick(next_at, period_s, time.monotonic())
                self._stop.wait(max(0.0, next_at - time.monotonic()))
        finally:
            self._probe.close()

    def look(self) -> None:
        """Look once and write down what was seen, or that nothing was."""
        bound = log.bind(host=self.host.name)
        try:
            started_at = self._clock.now()
            begun = time.monotonic()
            try:
                seen = self._probe.report(self.host.pool)
                took_ms = round((time.monotonic() - begun) * 1000)
                report = to_report(
                    seen,
                    started_at=started_at,
                    polled_at=self._clock.now(),
                    took_ms=took_ms,
                )
                host = self._recorder.record(self.host.id, report)
            except (HypervisorError, AnotherMachineError) as error:
                if self._stop.is_set():
                    return  # nobody asks any more
                host = self._registry.hosts.record_miss(
                    self.host.id,
                    str(error),
                    unreachable_after=self._settings.unreachable_after,
                    down_after=self._settings.down_after,
                    started_at=started_at,
                    apart_s=self._settings.poll_interval_s * _CADENCE * _APART,
                )
                self._metrics.look(MISSED)
                bound.warning("look_missed", misses=host.missed_polls, error=str(error))
            else:
                self._metrics.answered(took_ms / 1000)
                bound.debug("looked", took_ms=took_ms, domains=len(report.domains))
        except Exception:
            # The register center may be away for a moment; a watch that died of
            # it would leave its host unwatched for good.
            self._metrics.look(NOT_RECORDED)
            bound.exception("look_not_recorded")
            return
        if host.health != self._health:
            bound.info("health_changed", from_state=self._health, to_state=host.health)
            self._health = host.health


def _next_tick(last: float, period_s: float, now: float) -> float:
    """Return the first tick after ``last`` that is not over yet: a slow look skips ticks."""
    missed = max(0, int((now - last) // period_s))
    return last + (missed + 1) * period_s
