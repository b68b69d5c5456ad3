"""The monitor: keeps one watch for each host assigned to it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog

from monitor.address_cache import AddressCache
from monitor.clock import EstimatedClock
from monitor.host_shards import Peers
from monitor.host_table import (
    ConnectionSettings,
    CredentialChecks,
    HostTable,
    credential_key,
    may_keep_connection,
)
from monitor.metrics import PollMetrics
from monitor.poller import HostWatch
from monitor.probe import HostProbe, LockedOutProbe, ProbeFactory
from monitor.recorder import PollRecorder
from monitor.scheduler import PollScheduler
from monitor.settings import MonitorSettings
from registry import Registry
from registry.hosts import HostCredentials, MissPolicy, WatchedHost
from service import Check
from service.certificates import (
    CertificateEnd,
    credential_certificate_ends,
    server_certificate_ends,
    server_of_host,
)

log: Final = structlog.get_logger(__name__)

_GOODBYE_S: Final = 2.0
#: Fraction of the interval between two polls. The rest is time for the poll itself, so that a
#: report gets no older than the interval.
_CADENCE: Final = 0.75
#: Fraction of the time between two polls. Misses nearer to each other are of several monitors, and
#: count once. The rest allows for late polls.
_APART: Final = 0.8
#: Fraction of the interval that results wait for others to share a transaction.
_GATHER: Final = 0.05
_MAX_GATHER_S: Final = 0.3
#: Maximum age of the host list. Many times the interval, so that a slow database is no failure.
_FOLLOWED_WITHIN_S: Final = 30.0
#: Time limit to read hosts' certificates: less than the hour between two readings, enough for
#: 12,500 silent hosts.
_CERTIFICATES_WITHIN_S: Final = 3000.0


class Monitor:
    """Runs one watch for each host of this monitor."""

    def __init__(
        self,
        registry: Registry,
        probe_for: ProbeFactory,
        settings: MonitorSettings,
        metrics: PollMetrics,
        credentials: HostCredentials | None = None,
    ) -> None:
        self._probe_for = probe_for
        self._settings = settings
        self._metrics = metrics
        self._credential_checks = CredentialChecks(
            credentials or settings.resolved_host_credentials()
        )
        interval_s = settings.poll_interval_s
        self._recorder = PollRecorder(
            registry,
            min(_MAX_GATHER_S, interval_s * _GATHER),
            MissPolicy(
                unreachable_after=settings.unreachable_after,
                down_after=settings.down_after,
                apart_s=interval_s * _CADENCE * _APART,
            ),
        )
        self._clock = EstimatedClock(registry.now)
        self._addresses = AddressCache()
        self._peers = Peers(registry, os.getpid(), interval_s)
        self._table = HostTable(registry, self._peers.key)
        self._scheduler = PollScheduler(interval_s * _CADENCE)
        self._scheduler.start()
        self._watches: dict[UUID, _RunningWatch] = {}
        self._followed_at: float | None = None
        self.turned_at = time.monotonic()
        metrics.report_watched_hosts(lambda: len(self._watches))

    def check(self) -> Check:
        """Check whether this monitor polls in time and has read the host list lately."""
        if self._followed_at is None:
            return Check("polling", False, "the list of hosts has not been read yet")
        age_s = time.monotonic() - self._followed_at
        if age_s > _FOLLOWED_WITHIN_S:
            return Check("polling", False, f"the list of hosts was last read {age_s:.0f} s ago")
        late = self._count_overdue_polls()
        if late or not self._scheduler.is_alive:
            count = len(self._watches)
            return Check("polling", False, f"polls of {late} of {count} hosts are late")
        return Check("polling", True, f"{len(self._watches)} hosts are polled")

    def certificate_ends(self) -> Iterator[CertificateEnd]:
        """Yield when certificates end: those of credentials, and those of the hosts' servers."""
        yield from credential_certificate_ends(self._settings.resolved_host_credentials())
        servers = (
            server_of_host(each.host.name, each.host.uri, each.connection.folder)
            for each in list(self._watches.values())
        )
        known = (each for each in servers if each is not None)
        yield from server_certificate_ends(known, _CERTIFICATES_WITHIN_S)

    def run(self, stop: threading.Event) -> None:
        """Poll the hosts of this monitor until ``stop`` is set."""
        # New hosts are polled within an interval after they were added.
        period_s = min(1.0, self._settings.poll_interval_s / 2)
        try:
            while not stop.is_set():
                # Without the scheduler the loop has no effect, and must not look healthy.
                if self._scheduler.is_alive:
                    self.turned_at = time.monotonic()
                self.follow_hosts()
                stop.wait(period_s)
        finally:
            self._shut_down()

    def follow_hosts(self) -> None:
        """Start watches of new hosts, and stop those of hosts that left or changed.

        Changed credential files lead to new connections. Unusable files open no connection, but
        existing connections stay open.
        """
        if not self._scheduler.is_alive:
            return  # without a heartbeat other monitors take these hosts
        try:
            peers = self._peers.renew_lease(
                watched=len(self._watches), late=self._count_overdue_polls()
            )
            changed = self._table.find_changed_hosts(peers)
        except Exception:
            log.exception("hosts_not_read")  # the existing watches go on
            return
        self._followed_at = time.monotonic()
        credentials = self._credential_checks.refresh(
            watched.host for watched in self._watches.values()
        )
        if credentials:
            changed |= {
                host_id
                for host_id, watched in self._watches.items()
                if credential_key(watched.host) in credentials
            }
        begun = [self._update_watch(host_id) for host_id in changed]
        self._scheduler.add_tasks([watch for watch in begun if watch is not None])

    def _update_watch(self, host_id: UUID) -> HostWatch | None:
        """Stop a host's outdated watch; return a new one to start, or None."""
        watched = self._watches.get(host_id)
        host = self._table.hosts.get(host_id) if self._table.is_polled_here(host_id) else None
        connection = None if host is None else self._credential_checks.connection_settings(host)
        if watched is not None:
            if connection is not None and (
                connection == watched.connection
                or may_keep_connection(watched.connection, connection)
            ):
                return None
            self._scheduler.remove_task(watched.watch)
            del self._watches[host_id]
            log.info("watch_stopped", host=watched.host.name)
        if host is None or connection is None:
            return None
        return self._start_watch(host, connection)

    def _start_watch(self, host: WatchedHost, connection: ConnectionSettings) -> HostWatch:
        """Start the watch of a host; without a usable credential its polls fail."""
        if connection.locked_out is not None:
            probe: HostProbe = LockedOutProbe(host.uri, connection.locked_out)
        else:
            probe = self._probe_for(host.uri, connection.credential)
        watch = HostWatch(
            host,
            probe,
            self._metrics,
            recorder=self._recorder,
            clock=self._clock,
            addresses=self._addresses,
        )
        self._watches[host.id] = _RunningWatch(host, watch, connection)
        log.info("watch_started", host=host.name)
        return watch

    def _count_overdue_polls(self) -> int:
        """Return how many hosts have an overdue poll, allowing for a hung one."""
        return self._scheduler.count_late(
            2 * self._settings.poll_interval_s + 2 * self._settings.poll_deadline_s
        )

    def _shut_down(self) -> None:
        """Stop all polling, and release this monitor's lease."""
        # A poll of a hung host is abandoned: its thread is a daemon, and its child process ends
        # with this one.
        self._scheduler.shut_down(_GOODBYE_S)
        self._addresses.close()
        self._watches.clear()
        try:
            self._peers.release_lease()
        except Exception:
            log.exception("not_left")  # the other monitors wait for the end of the lease


@dataclass(frozen=True, slots=True)
class _RunningWatch:
    """The watch of a host, with the host and connection for which it was started."""

    host: WatchedHost
    watch: HostWatch
    connection: ConnectionSettings
