"""Capacity by hour: what is sampled, and what steps of the clock and gaps make of it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from controller.control_center.capacity_sampler import CapacitySampler
from controller.control_center.purge import purge_all
from controller.control_center.steady_clock import SteadyClock
from registry import HostAdminEvent, InvalidError, Registry, StaleEpochError, UnknownNameError
from registry.admin import Periods, PurgeCounts
from registry.capacity import capacity_history
from registry.capacity.packed_days import HOURS, MEASURES, Hour, pack_day, unpack_day
from registry.records.capacity import CapacityPoint
from tests.raw_sql import RawSql
from tests.register import (
    ACTOR,
    a_report,
    add_host,
    add_request,
    add_tenant,
    add_vm_type,
    place,
    take_lease,
)

NOON = datetime(2020, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
WHOLE = {"since": NOON - timedelta(days=2), "until": NOON + timedelta(days=300)}


class Site:
    """A register whose capacity is sampled at times that a test names."""

    def __init__(self, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
        self.registry = registry
        self.lease = take_lease(registry)
        self.at = NOON
        monkeypatch.setattr(capacity_history, "db_now", lambda _: self.at)

    def sample(self, at: datetime, times: int = 1) -> None:
        for minute in range(times):
            self.at = at + minute * MINUTE
            self.registry.capacity_history.sample(self.lease)

    def hours(self, **fields: object) -> list[CapacityPoint]:
        """Return the hours of vCPUs, as they are known on a later day."""
        self.at, before = WHOLE["until"], self.at
        found = self.registry.capacity_history.read(**{**WHOLE, "resource": "vcpus", **fields})
        self.at = before
        return list(found)

    def samples(self) -> dict[int, int]:
        """Return the number of samples of each hour, counted from noon."""
        return {(each.at - NOON) // HOUR: each.samples for each in self.hours()}


@pytest.fixture
def site(register: Registry, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(register, monkeypatch)


def capacity_of(registry: Registry, name: str) -> int:
    """Return the vCPUs of a host."""
    offered = {each.resource: each.capacity for each in registry.hosts.get(name).inventories}
    return offered["vcpus"]


def level(*amounts: int) -> tuple[int, int]:
    """Return mean and maximum of amounts."""
    return round(sum(amounts) / len(amounts)), max(amounts)


def of(point: CapacityPoint, measure: str) -> tuple[int, int]:
    """Return mean and maximum of a measure."""
    return getattr(point, f"{measure}_mean"), getattr(point, f"{measure}_max")


def test_an_hour_has_mean_and_maximum_of_each_class_and_of_the_site(site: Site) -> None:
    registry = site.registry
    add_tenant(registry, "a")
    add_vm_type(registry, vcpus=2)
    first = add_host(registry, "h1", labels=("rack=1", "zone=x"))
    second = add_host(registry, "h2", labels=("zone=y",))
    for host, busy in ((first, 25.0), (second, 50.0)):
        report = replace(a_report(started_at=registry.now()), cpu_busy_percent=busy)
        registry.hosts.record_report(host.id, report)
    capacity = {host.name: capacity_of(registry, host.name) for host in (first, second)}
    threads = 16
    site.sample(NOON)
    place(registry, add_request(registry, 2), first, 2, site.lease)
    add_request(registry, 3, name="waits")
    registry.hosts.change_admin("h2", HostAdminEvent.DRAIN, actor=ACTOR)
    site.sample(NOON + MINUTE)

    (all_of_it,) = site.hours()
    (of_first,) = site.hours(host_class="zone=x,rack=1")
    (of_second,) = site.hours(host_class="zone=y")

    both = sum(capacity.values())
    assert (all_of_it.at, all_of_it.samples) == (NOON, 2)
    assert of(all_of_it, "capacity") == level(both)
    assert of(all_of_it, "in_service") == level(both, capacity["h1"])
    assert of(all_of_it, "committed") == level(0, 4)
    assert of(all_of_it, "waiting") == level(0, 6)
    assert of(all_of_it, "used") == level(round(threads * 0.75))
    assert of(of_first, "committed") == level(0, 4)
    assert of(of_first, "used") == level(round(threads * 0.25))
    assert of_first.waiting_mean is None
    assert of(of_second, "in_service") == level(capacity["h2"], 0)
    assert of(of_second, "capacity") == level(capacity["h2"])
    assert registry.capacity_history.classes() == ("rack=1,zone=x", "zone=y")
    memory = [each for each in site.hours(resource="memory_mib") if each.used_mean is not None]
    assert of(memory[0], "used") == level(2 * 1024)


def test_hours_without_samples_are_left_out_and_days_count_by_samples(site: Site) -> None:
    host = add_host(site.registry, "h1")
    site.sample(NOON, 60)
    site.sample(NOON + 5 * HOUR, 20)
    assert site.samples() == {0: 60, 5: 20}

    report = a_report(vcpus=100, started_at=site.registry.now())
    site.registry.hosts.record_report(host.id, report)
    site.sample(NOON + 6 * HOUR, 20)

    assert site.samples() == {0: 60, 5: 20, 6: 20}
    offered = [each.capacity_max for each in site.hours()]
    assert offered[0] != offered[2]
    (day,) = site.hours(by_day=True)
    assert day.at == NOON.replace(hour=0)
    assert day.samples == 100
    mean = round((offered[0] * 80 + offered[2] * 20) / 100)
    assert of(day, "capacity") == (mean, max(offered))


@pytest.mark.parametrize(
    ("times", "samples"),
    [
        # Over the turn of an hour and back: neither hour counts twice.
        pytest.param([(0, 60), (60, 2), (57, 3), (60, 60)], {0: 60, 1: 60}, id="a little back"),
        pytest.param([(0, 60), (-180, 60), (0, 58)], {-3: 60, 0: 58}, id="back and again"),
        pytest.param([(0, 30), (600, 60), (30, 30)], {0: 30, 10: 60}, id="ahead and back"),
        pytest.param([(0, 30), (20, 10)], {0: 40}, id="back within the hour"),
        pytest.param([(0, 10), (9, 2)], {0: 11}, id="twice in a minute"),
    ],
)
def test_no_hour_counts_twice_whatever_the_clock_does(
    site: Site, times: list[tuple[int, int]], samples: dict[int, int]
) -> None:
    add_host(site.registry, "h1")
    for minute, count in times:
        site.sample(NOON + minute * MINUTE, count)

    assert site.samples() == samples


def test_a_time_that_is_held_back_counts(site: Site) -> None:
    add_host(site.registry, "h1")
    site.at = NOON + 300 * HOUR

    assert site.registry.capacity_history.sample(site.lease, by=NOON)

    assert site.samples() == {0: 1}


def test_only_the_leader_samples_and_a_failed_database_costs_its_minutes(
    site: Site, register: Registry
) -> None:
    add_host(register, "h1")
    stale, leads = site.lease, [True]
    clock = SteadyClock(register)
    sampler = CapacitySampler(register, lambda: stale if leads[0] else None, clock)
    assert sampler.sample()
    leads[0] = False
    assert not sampler.sample()
    leads[0] = True
    register.leases.release(stale)
    site.lease = take_lease(register, "cc-2")
    site.at += 2 * MINUTE

    assert not sampler.sample()
    with pytest.raises(StaleEpochError):
        register.capacity_history.sample(stale)
    site.sample(NOON + 3 * MINUTE)
    assert sum(site.samples().values()) == 2


def test_the_loop_outlives_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, taken = threading.Event(), []

    def fail() -> bool:
        taken.append(1)
        if len(taken) == 3:
            stop.set()
        raise OSError("no database")

    sampler = CapacitySampler(None, lambda: None, None)  # type: ignore[arg-type]
    monkeypatch.setattr(sampler, "sample", fail)
    monkeypatch.setattr("controller.control_center.capacity_sampler.INTERVAL_S", 0.001)

    sampler.run(stop)

    assert len(taken) == 3


def test_classes_beyond_the_bound_are_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity_history, "MAX_CLASSES", 2)
    for number, label in enumerate("aabcd"):
        add_host(site.registry, f"h{number}", labels=(f"rack={label}",))
    site.sample(NOON)
    site.sample(NOON + HOUR)

    names = site.registry.capacity_history.classes()
    hours = [site.hours(host_class=name)[0] for name in names]

    assert names == ("others", "rack=a", "rack=b")
    whole = site.hours()[0]
    assert sum(each.capacity_max for each in hours) == whole.capacity_max
    assert hours[0].capacity_max == hours[1].capacity_max == 2 * hours[2].capacity_max


def test_a_class_keeps_its_history_while_its_hosts_come_and_go(site: Site) -> None:
    registry = site.registry
    add_host(registry, "h1", labels=("zone=x",))
    site.sample(NOON)
    registry.hosts.change_admin("h1", HostAdminEvent.DRAIN, actor=ACTOR)
    registry.hosts.change_admin("h1", HostAdminEvent.RETIRE, actor=ACTOR)
    site.sample(NOON + HOUR)
    add_host(registry, "h2", labels=("zone=x",))
    site.sample(NOON + 2 * HOUR)

    found = site.hours(host_class="zone=x")

    assert [(each.at - NOON) // HOUR for each in found] == [0, 2]
    assert [each.capacity_max for each in site.hours()][1] == 0


def test_pages_are_the_whole_once(site: Site) -> None:
    add_host(site.registry, "h1")
    for hour in range(30):
        site.sample(NOON + hour * HOUR)
    site.at = NOON + 40 * HOUR
    history = site.registry.capacity_history
    whole = list(history.read(since=NOON))
    found: list[CapacityPoint] = []
    cursor = None
    while True:
        page = history.list(since=NOON, limit=7, cursor=cursor)
        found += page.items
        if (cursor := page.next) is None:
            break

    assert len(whole) == 30 * 3
    assert found == whole


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"since": NOON, "until": NOON}, InvalidError),
        ({"since": NOON, "until": NOON + timedelta(days=800)}, InvalidError),
        ({"since": NOON, "host_class": "zone=none"}, UnknownNameError),
        ({"since": NOON, "resource": "gold"}, UnknownNameError),
        ({"since": NOON, "limit": 501}, InvalidError),
        ({"since": NOON, "cursor": "x"}, InvalidError),
    ],
)
def test_what_is_not_known_is_refused(
    site: Site, fields: dict[str, object], error: type[Exception]
) -> None:
    site.sample(NOON)
    with pytest.raises(error):
        site.registry.capacity_history.list(**fields)  # type: ignore[arg-type]


def test_days_are_purged_after_two_years(site: Site, raw: RawSql) -> None:
    now = site.registry.now()
    for days in (733, 730, 0):
        site.sample(now - timedelta(days=days))
        site.sample(now - timedelta(days=days) + HOUR)
    assert site.registry.retention.count_due(Periods()) == PurgeCounts(capacity_days=1)

    assert purge_all(site.registry, Periods()) == PurgeCounts(capacity_days=1)

    kept = raw.value("SELECT count(DISTINCT day) FROM capacity_days")
    assert kept in {1, 2, 3}  # two hours may lie on two days
    assert purge_all(site.registry, Periods()) == PurgeCounts()


def random_hour(draw: random.Random) -> Hour:
    hour = Hour(draw.randint(1, 61))
    for resource in ("vcpus", "memory_mib", "gpu.a100"):
        for measure in MEASURES:
            if draw.random() < 0.7:
                mean = draw.randrange(10 ** draw.randint(1, 15))
                hour.levels[resource, measure] = (mean, mean + draw.randrange(1000))
    return hour


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(20))
def test_a_packed_day_is_the_same_day(seed: int) -> None:
    draw = random.Random(seed)
    likely: Callable[[int], bool] = lambda _: draw.random() < seed / 19  # noqa: E731
    day = {number: random_hour(draw) for number in filter(likely, range(HOURS))}

    assert unpack_day(pack_day(day)) == day
