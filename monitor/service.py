"""The monitor: one watch per host of the register center, for as long as the host is in it."""

from __future__ import annotations

import threading
import time
from typing import Final
from uuid import UUID

import structlog

from monitor.probe import ProbeFactory
from monitor.settings import MonitorSettings
from monitor.watch import HostWatch
from registry import Host, Registry

log: Final = structlog.get_logger(__name__)

_GOODBYE_S: Final = 2.0


class Monitor:
    """Keeps the set of watches equal to the set of hosts that are not retired."""

    def __init__(
        self, registry: Registry, probe_for: ProbeFactory, settings: MonitorSettings
    ) -> None:
        self._registry = registry
        self._probe_for = probe_for
        self._settings = settings
        self._watches: dict[UUID, HostWatch] = {}

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
        for host_id, watch in list(self._watches.items()):
            host = hosts.get(host_id)
            if host is None or _address(host) != _address(watch.host):
                watch.stop()
                del self._watches[host_id]
                log.info("watch_stopped", host=watch.host.name)
        for host_id, host in hosts.items():
            if host_id not in self._watches:
                watch = HostWatch(host, self._probe_for(host.uri), self._registry, self._settings)
                self._watches[host_id] = watch
                watch.start()
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
