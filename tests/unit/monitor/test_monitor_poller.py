"""A watch looks at one host; a set of watches looks at many, and none waits for another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from hypervisor import HostPoll, HostUnreachableError, OperationFailedError
from monitor.address_cache import AddressCache
from monitor.clock import EstimatedClock
from monitor.metrics import PollMetrics
from monitor.poller import HostWatch
from monitor.probe import ProbeFactory
from monitor.recorder import PollRecorder
from monitor.scheduler import next_poll_time
from monitor.service import Monitor
from monitor.settings import MonitorSettings
from registry.db.ids import uuid7
from registry.hosts import HostsRead, Miss, MissPolicy
from service import ProcessMetrics

AN_EMPTY_HOST = HostPoll(
    hostname="h",
    vcpus=4,
    memory_mib=8192,
    disk_gib=500,
    cpu_busy_percent=1.0,
    memory_used_mib=300,
    disk_used_gib=1,
    domains=(),
    volumes=(),
)
POLICY = MissPolicy(unreachable_after=3, down_after=10)
FAST = MonitorSettings(poll_interval_s=0.08, poll_deadline_s=0.2)


@dataclass
class FakeProbe:
    """Answers, fails, or hangs until released; remembers its looks."""

    answer: Callable[[], HostPoll] = lambda: AN_EMPTY_HOST
    looks: int = 0
    closed: bool = False

    def report(self, pool: str) -> HostPoll:
        self.looks += 1
        return self.answer()

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeMonitors:
    """Monitors whose leases are live until they leave."""

    live: dict[UUID, bool] = field(default_factory=dict)

    def record_heartbeat(self, key: UUID, name: str, **_: Any) -> None:
        self.live[key] = True

    def unregister(self, key: UUID) -> None:
        del self.live[key]

    def all(self) -> tuple[Any, ...]:
        return tuple(SimpleNamespace(id=key, is_live=live) for key, live in self.live.items())


@dataclass
class FakeHosts:
    """Tells all hosts at first, and then those that are others than at the read before."""

    registry: FakeRegistry

    def all(self) -> HostsRead:
        if self.registry.away:
            raise ConnectionError("the database is away")
        self.registry.reads.append(tuple(self.registry.listed))
        cursor = len(self.registry.reads)
        return HostsRead(cursor=cursor, hosts=self.registry.reads[-1], gone=frozenset())

    def changed_since(self, cursor: int) -> HostsRead:
        before = {host.id: host for host in self.registry.reads[cursor - 1]}
        now = self.all()
        changed = tuple(host for host in now.hosts if before.get(host.id) != host)
        gone = before.keys() - {host.id for host in now.hosts}
        return HostsRead(cursor=now.cursor, hosts=changed, gone=frozenset(gone))

    def failing_hosts(self) -> frozenset[UUID]:
        return frozenset(self.registry.troubled)


@dataclass
class FakeRegistry:
    """Remembers what it is told of each host."""

    listed: list[Any] = field(default_factory=list)
    reports: list[tuple[UUID, Any]] = field(default_factory=list)
    misses: list[tuple[UUID, str]] = field(default_factory=list)
    away: bool = False
    reads: list[tuple[Any, ...]] = field(default_factory=list)
    troubled: set[UUID] = field(default_factory=set)
    heard: FakeMonitors = field(default_factory=FakeMonitors)

    @property
    def hosts(self) -> FakeRegistry:
        return self

    def now(self) -> datetime:
        if self.away:
            raise ConnectionError("the database is away")
        return datetime.now(UTC)

    @property
    def watched_hosts(self) -> FakeHosts:
        return FakeHosts(self)

    @property
    def monitors(self) -> FakeMonitors:
        return self.heard

    def record_reports(self, reports: Mapping[UUID, Any]) -> Any:
        self.reports += reports.items()
        return dict.fromkeys(reports, SimpleNamespace(health="up", missed_polls=0))

    def record_misses(self, misses: Mapping[UUID, Miss], _: Any) -> Any:
        self.misses += [(host_id, miss.error) for host_id, miss in misses.items()]
        found = SimpleNamespace(health="enrolling", missed_polls=len(self.misses))
        return dict.fromkeys(misses, found)

    def reports_of(self, host: Any) -> int:
        return sum(host_id == host.id for host_id, _ in self.reports)


def a_host(name: str = "h", **changes: Any) -> Any:
    values = {"id": uuid7(), "name": name, "uri": f"test://{name}/", "pool": "default"}
    values |= {"health": "enrolling", "credential": None, "ssh_host_keys": ()}
    return SimpleNamespace(**values | changes)


def by_uri(probes: dict[str, FakeProbe]) -> ProbeFactory:
    def open_again(uri: str, _: object) -> FakeProbe:
        probes[uri].closed = False
        return probes[uri]

    return open_again


def no_metrics() -> PollMetrics:
    return PollMetrics(ProcessMetrics("monitor"))


def a_watch(host: Any, probe: FakeProbe, registry: Any) -> HostWatch:
    return HostWatch(
        host,
        probe,
        no_metrics(),
        recorder=PollRecorder(registry, 0.0, POLICY),
        clock=EstimatedClock(registry.now),
        addresses=AddressCache(),
    )


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass within 20 s"
        time.sleep(0.005)


def test_a_look_is_written_with_the_time_before_it() -> None:
    registry, host = FakeRegistry(), a_host()

    a_watch(host, FakeProbe(), registry).poll()

    [(host_id, report)] = registry.reports
    assert host_id == host.id
    assert report.detected == {"vcpus": 4, "memory_mib": 8192, "disk_gib": 500}
    assert report.started_at <= report.polled_at


def test_a_look_during_which_the_clock_steps_back_begins_by_the_new_time() -> None:
    registry, host = FakeRegistry(), a_host()
    watch = a_watch(host, FakeProbe(), registry)
    before = datetime.now(UTC)
    times = iter((before, before - timedelta(hours=1)))
    watch._clock = SimpleNamespace(now=lambda: next(times))  # type: ignore[assignment]

    watch.poll()

    [(_, report)] = registry.reports
    assert report.started_at <= report.polled_at == before - timedelta(hours=1)


@pytest.mark.parametrize(
    "error",
    [
        HostUnreachableError("test://h/", "no answer within 8 s"),
        OperationFailedError("report", "Storage pool not found: no pool 'default'"),
    ],
)
def test_a_look_that_failed_is_a_miss_with_its_reason(error: Exception) -> None:
    def fail() -> HostPoll:
        raise error

    registry, host = FakeRegistry(), a_host()

    a_watch(host, FakeProbe(fail), registry).poll()

    assert registry.misses == [(host.id, str(error))]
    assert registry.reports == []


def test_a_watch_outlives_a_register_center_that_is_away_for_a_moment() -> None:
    registry, host = FakeRegistry(away=True), a_host()
    watch = a_watch(host, FakeProbe(), registry)
    watch.poll()

    registry.away = False
    watch.poll()

    assert registry.reports_of(host) == 1


def test_a_host_that_hangs_delays_no_other() -> None:
    begun, released = threading.Event(), threading.Event()

    def hang() -> HostPoll:
        begun.set()
        released.wait(30)
        raise HostUnreachableError("test://hung/", "no answer")

    hung, well = a_host("hung"), a_host("well")
    registry: Any = FakeRegistry(listed=[hung, well])
    probes = {hung.uri: FakeProbe(hang), well.uri: FakeProbe()}

    with running(Monitor(registry, by_uri(probes), FAST, no_metrics())):
        until(begun.is_set)
        before = registry.reports_of(well)
        until(lambda: registry.reports_of(well) >= before + 5)
        assert probes[hung.uri].looks == 1
        released.set()


def test_hosts_are_watched_while_they_are_in_the_register_center() -> None:
    first, second = a_host("first"), a_host("second")
    registry: Any = FakeRegistry(listed=[first])
    probes = {first.uri: FakeProbe(), second.uri: FakeProbe()}

    with running(Monitor(registry, by_uri(probes), FAST, no_metrics())):
        until(lambda: registry.reports_of(first) >= 1)
        registry.listed = [second]
        until(lambda: registry.reports_of(second) >= 1)
        until(lambda: probes[first.uri].closed)
        looks = probes[first.uri].looks
        until(lambda: registry.reports_of(second) >= 4)

        assert probes[first.uri].looks == looks
    assert probes[second.uri].closed


def test_a_host_with_a_new_address_gets_a_new_probe() -> None:
    host = a_host()
    registry: Any = FakeRegistry(listed=[host])
    probes = {host.uri: FakeProbe(), "test://moved/": FakeProbe()}

    with running(Monitor(registry, by_uri(probes), FAST, no_metrics())):
        until(lambda: probes[host.uri].looks >= 1)
        registry.listed = [a_host(id=host.id, uri="test://moved/")]
        until(lambda: probes["test://moved/"].looks >= 1)
        until(lambda: probes[host.uri].closed)


def test_a_monitor_that_cannot_read_the_hosts_goes_on_with_those_it_has() -> None:
    host = a_host()
    registry: Any = FakeRegistry(listed=[host])
    monitor = Monitor(registry, lambda *_: FakeProbe(), FAST, no_metrics())
    monitor.follow_hosts()

    registry.away = True
    monitor.follow_hosts()
    registry.away = False

    seen = registry.reports_of(host)
    until(lambda: registry.reports_of(host) > seen)
    monitor._shut_down()


def test_monitors_look_at_different_hosts_and_at_one_in_trouble_both() -> None:
    listed = [a_host(f"h{number}") for number in range(40)]
    registry: Any = FakeRegistry(listed=listed)
    probes = [{host.uri: FakeProbe() for host in listed} for _ in range(2)]

    def lookers(host: Any) -> int:
        return sum(each[host.uri].looks > 0 and not each[host.uri].closed for each in probes)

    with (
        running(Monitor(registry, by_uri(probes[0]), FAST, no_metrics())),
        running(Monitor(registry, by_uri(probes[1]), FAST, no_metrics())),
    ):
        until(lambda: [lookers(host) for host in listed] == [1] * 40)
        assert all(any(not probe.closed for probe in each.values()) for each in probes)
        registry.troubled = {listed[7].id}
        until(lambda: [lookers(host) for host in listed] == [1] * 7 + [2] + [1] * 32)
        registry.troubled = set()
        until(lambda: [lookers(host) for host in listed] == [1] * 40)


def test_a_monitor_that_leaves_gives_its_hosts_to_the_other_one() -> None:
    listed = [a_host(f"h{number}") for number in range(20)]
    registry: Any = FakeRegistry(listed=listed)
    probes = [{host.uri: FakeProbe() for host in listed} for _ in range(2)]

    with running(Monitor(registry, by_uri(probes[0]), FAST, no_metrics())):
        with running(Monitor(registry, by_uri(probes[1]), FAST, no_metrics())):
            until(lambda: len(registry.heard.live) == 2)
            until(lambda: any(probe.closed for probe in probes[0].values()))
        looks = {uri: probe.looks for uri, probe in probes[0].items()}
        until(lambda: all(probes[0][uri].looks > looks[uri] for uri in looks))


@pytest.mark.parametrize(
    ("now", "expected"),
    [(10.0, 11.0), (10.9, 11.0), (11.5, 12.0), (18.2, 19.0), (9.5, 11.0)],
    ids=["at once", "nearly late", "one missed", "many missed", "clock behind"],
)
def test_the_cadence_is_fixed_and_a_slow_look_skips_ticks(now: float, expected: float) -> None:
    assert next_poll_time(10.0, 1.0, now) == pytest.approx(expected)


class running:  # noqa: N801 - reads as a statement
    """Runs a monitor beside the test and ends it."""

    def __init__(self, monitor: Monitor) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=monitor.run, args=(self._stop,))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive()
