"""The monitor: one watch per host of the register center, for as long as the host is in it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import structlog

from hypervisor import Credential
from monitor.clock import NearClock
from monitor.metrics import LookMetrics
from monitor.probe import HostProbe, LockedOut, ProbeFactory
from monitor.recorder import Recorder
from monitor.settings import MonitorSettings
from monitor.translate import to_credential
from monitor.watch import HostWatch
from registry import Host, HostCredentialError, HostCredentials, Registry
from registry.process import Check

log: Final = structlog.get_logger(__name__)

_GOODBYE_S: Final = 2.0
#: Of the interval, for how long looks wait for each other to be written together.
_GATHER: Final = 0.05
_GATHER_AT_MOST_S: Final = 0.1
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
        credentials: HostCredentials | None = None,
    ) -> None:
        self._registry = registry
        self._probe_for = probe_for
        self._settings = settings
        self._metrics = metrics
        self._credentials = credentials or settings.resolved_host_credentials()
        gather_s = min(_GATHER_AT_MOST_S, settings.poll_interval_s * _GATHER)
        self._recorder = Recorder(registry, gather_s)
        self._clock = NearClock(registry.now)
        self._watches: dict[UUID, _Watched] = {}
        self._followed_at: float | None = None
        metrics.watched(lambda: len(self._watches))

    def check(self) -> Check:
        """Tell whether this monitor polls: it learned of all hosts lately, and watches each."""
        if self._followed_at is None:
            return Check("polling", False, "the hosts were not read yet")
        age_s = time.monotonic() - self._followed_at
        if age_s > _FOLLOWED_WITHIN_S:
            return Check("polling", False, f"the hosts were last read {age_s:.0f} s ago")
        ended = [
            watched.watch.host.name
            for watched in list(self._watches.values())
            if not watched.watch.is_alive
        ]
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
        """Start watches of new hosts, stop those of hosts that went or are reached otherwise now.

        Files of a credential that changed are another way to its hosts. A credential in
        disorder opens no connection; what is open stays open.
        """
        try:
            hosts = {host.id: host for host in self._registry.hosts.all()}
        except Exception:
            log.exception("hosts_not_read")  # the watches that there are go on
            return
        self._followed_at = time.monotonic()
        ways = {host_id: self._way_to(host) for host_id, host in hosts.items()}
        for host_id, watched in list(self._watches.items()):
            way = ways.get(host_id)
            if way is None or (way != watched.way and not _may_stay(watched.way, way)):
                watched.watch.stop()
                del self._watches[host_id]
                log.info("watch_stopped", host=watched.watch.host.name)
        for host_id, host in hosts.items():
            if host_id not in self._watches:
                self._watch(host, ways[host_id])

    def _watch(self, host: Host, way: _Way) -> None:
        if way.locked_out is not None:
            probe: HostProbe = LockedOut(host.uri, way.locked_out)
        else:
            probe = self._probe_for(host.uri, way.credential)
        watch = HostWatch(
            host,
            probe,
            self._registry,
            self._settings,
            self._metrics,
            recorder=self._recorder,
            clock=self._clock,
        )
        watch.start()
        self._watches[host.id] = _Watched(watch, way)
        log.info("watch_started", host=host.name)

    def _way_to(self, host: Host) -> _Way:
        try:
            files = self._credentials.find(host.uri, host.credential)
        except HostCredentialError as error:
            return _Way(host.uri, host.pool, host.credential, host.ssh_host_keys, None, str(error))
        credential = to_credential(files, host)
        return _Way(host.uri, host.pool, host.credential, host.ssh_host_keys, credential)

    def _end(self) -> None:
        watches = [watched.watch for watched in self._watches.values()]
        for watch in watches:
            watch.stop()
        # A watch that waits for a hung host is left behind: its thread is a daemon,
        # and its child process ends when it finds us gone.
        deadline = time.monotonic() + _GOODBYE_S
        for watch in watches:
            watch.join(timeout_s=max(0.0, deadline - time.monotonic()))
        self._watches.clear()


@dataclass(frozen=True, slots=True)
class _Way:
    """How a host is reached: what the register center says, and what lies here for it."""

    uri: str
    pool: str
    named: str | None
    ssh_host_keys: tuple[str, ...]
    credential: Credential | None
    locked_out: str | None = None


@dataclass(frozen=True, slots=True)
class _Watched:
    watch: HostWatch
    way: _Way


def _may_stay(before: _Way, now: _Way) -> bool:
    """Tell whether all that happened is that the credential's files are in disorder."""
    return (
        now.locked_out is not None
        and before.locked_out is None
        and now == replace(before, credential=None, locked_out=now.locked_out)
    )
