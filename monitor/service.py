"""The monitor: one watch per host of the register center, for as long as the host is in it."""

from __future__ import annotations

import threading
import time
from typing import Final
from uuid import UUID

import structlog

from monitor.metrics import LookMetrics
from monitor.probe import ProbeFactory
from monitor.settings import MonitorSettings
from monitor.watch import HostWatch
from registry import Host, Registry
from registry.process import Check

log: Final = structlog.get_logger(__name__)

_GOODBYE_S: Final = 2.0
#: Many times the interval: a database that is slow for a moment is no failure.
_FOLLOWED_WITHIN_S: Final = 30.0


class Monitor:
    """Keeps the set of watches equal to the set of hosts that are not retired."""

    def __init__(
        self,
        registry: Registry,
        probe_for: ProbeFactory,
        settings: MonitorSettings,
        metrics: LookMetrics,
    ) -> None:
        self._registry = registry
        self._probe_for = probe_for
        self._settings = settings
        self._metrics = metrics
        self._watches: dict[UUID, HostWatch] = {}
        self._followed_at: float | None = None
        metrics.watched(lambda: len(self._watches))

    def check(self) -> Check:
        """Tell whether this monitor polls: it learned of all hosts lately, and watches each."""
        if self._followed_at is None:
            return Check("polling", False, "the hosts were not read yet")
        age_s = time.monotonic() - self._followed_at
        if age_s > _FOLLOWED_WITHIN_S:
            return Check("polling", False, f"the hosts were last read {age_s:.0f} s ago")
        ended = [each.host.name for each in list(self._watches.values()) if not each.is_alive]
        if ended:
            return Check("polling", False, f"not watched any more: {', '.join(ended[:5])}")
        return Check("polling", True, f"{len(self._watches)} hosts are watched")

    def run(self, stop: threading.Event) -> None:
        """Watch until ``stop`` is set."""
        # New hosts are seen within an interval, of which their first look is part.
        period_s = min(1.0, self._settings.poll_interval_s / 2)
        try:
            while not stop.is_set():
                self.follow_hosts()
                stop.wait(period_s)
        finally:
            self._end()

    def follow_hosts(self) -> None:
        """Start watches of new hosts, stop those of hosts that went or changed their address."""
        try:
            hosts = {host.id: host for host in self._registry.hosts.all()}
        except Exception:
            log.exception("hosts_not_read")  # the watches that there are go on
            return
        self._followed_at = time.monotonic()
        for host_id, watch in list(self._watches.items()):
            host = hosts.get(host_id)
            if host is None or _address(host) != _address(watch.host):
                watch.stop()
                del self._watches[host_id]
                log.info("watch_stopped", host=watch.host.name)
        for host_id, host in hosts.items():
            if host_id not in self._watches:
                watch = HostWatch(
                    host,
                    self._probe_for(host.uri),
                    self._registry,
                    self._settings,
                    self._metrics,
                )
                watch.start()
                self._watches[host_id] = watch
                log.info("watch_started", host=host.name)

    def _end(self) -> None:
        for watch in self._watches.values():
            watch.stop()
        # A watch that waits for a hung host is left behind: its thread is a daemon,
        # and its child process ends when it finds us gone.
        deadline = time.monotonic() + _GOODBYE_S
        for watch in self._watches.values():
            watch.join(timeout_s=max(0.0, deadline - time.monotonic()))
        self._watches.clear()


def _address(host: Host) -> tuple[str, str]:
    return host.uri, host.pool
