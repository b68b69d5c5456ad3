"""Usage is what assignments held, to the microsecond, whatever is summed up and purged."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller.control_center.purge import Purger, purge_all
from registry import (
    CapacityExceededError,
    InvalidError,
    MoveRefusedError,
    Registry,
    UnknownNameError,
)
from registry.admin import Periods
from registry.audit import Event
from registry.usage import Usage
from tests.fakes.movers import Breaks
from tests.integration.moves.world import NAMES, MovingWorld
from tests.raw_sql import RawSql
from tests.register import (
    ACTOR,
    a_cluster,
    add_group,
    add_request,
    add_tenant,
    add_vm_type,
    place,
    remove_vm,
    run_vm,
    take_lease,
)
from workers import builds

START = datetime(2020, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
TYPES = {"small": (1, 3072, 15), "large": (2, 4099, 7)}
RESOURCES = ("vcpus", "memory_mib", "disk_gib")
#: Held and charged, in microseconds, by name and resource.
Sums = Mapping[tuple[str | None, str], tuple[int, int]]


def us(span: timedelta) -> int:
    return span // timedelta(microseconds=1)


def stored(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S.%f")


def sums_of(usage: Usage) -> Sums:
    return {
        (each.name, each.resource): (int(each.held * 10**6), int(each.charged * 10**6))
        for each in usage.items
    }


class Site:
    """VMs that are built, move, fail and go, and the usage that follows from the events alone."""

    def __init__(self, registry: Registry, raw: RawSql, seed: int) -> None:
        self.world = MovingWorld(registry)
        self.registry = registry
        self.raw = raw
        self.draw = random.Random(seed)
        add_group(registry, "g")
        add_tenant(registry, "b", parent="g")
        vcpus, memory_mib, disk_gib = TYPES["large"]
        add_vm_type(registry, "large", vcpus=vcpus, memory_mib=memory_mib, disk_gib=disk_gib)
        self.lease = take_lease(registry)

    def live(self, **fields: Any) -> list[Any]:
        return list(self.registry.vms.list(limit=500, **fields).items)

    # ---- what happens ----

    def step(self) -> None:
        steps = (self.request, self.move, self.delete, self.resize, self.sweep)
        with contextlib.suppress(CapacityExceededError, MoveRefusedError):  # hosts that are full
            self.draw.choices(steps, weights=(2, 1, 2, 1, 1))[0]()

    def request(self) -> None:
        asked = add_request(
            self.registry,
            self.draw.randint(1, 2),
            tenant=self.draw.choice("ab"),
            vm_type=self.draw.choice(tuple(TYPES)),
            labels={"team": self.draw.choice("xy")} if self.draw.random() < 0.7 else {},
        )
        self.place(asked)

    def place(self, asked: Any) -> None:
        name = self.draw.choice(NAMES)
        fails = self.draw.random() < 0.3
        if fails:
            self.world.hosts[name].fail_at("start_paused")
        host = self.registry.hosts.get(name)
        for key in place(self.registry, asked, host, 1, self.lease).assignment_ids:
            if self.draw.random() < 0.8:
                builds.build_vm(key, self.world.worker())

    def move(self) -> None:
        active = [vm for vm in self.live() if vm.assignment_state == "active" and not vm.moving_to]
        if active:
            vm = self.draw.choice(active)
            to = self.draw.choice([name for name in NAMES if name != vm.host])
            asked = self.world.ask(vm, to)
            if self.draw.random() < 0.4:
                self.world.movers.fail(self.draw.choice(tuple(Breaks)))
            if self.draw.random() < 0.8:
                self.world.move(asked)

    def delete(self) -> None:
        if found := self.live():
            self.registry.vms.delete(self.draw.choice(found).id, actor=ACTOR)

    def resize(self) -> None:
        found = self.registry.requests.list(limit=500).items
        wanted = [each for each in found if each.state in ("pending", "partly_placed", "placed")]
        if wanted:
            asked = self.draw.choice(wanted)
            count = self.draw.randint(1, 3)
            if asked.count and self.live(request_id=asked.id):
                self.registry.requests.change(asked.id, count=count, actor=ACTOR)

    def sweep(self) -> None:
        self.world.sweep()

    # ---- when it happened ----

    def spread(self) -> None:
        """Spread all times over weeks, in their order."""
        columns = {
            "assignments": ("created_at", "activated_at", "released_at"),
            "events": ("at",),
            "vms": ("deleted_at",),
            "rounds": ("created_at",),
        }
        found: set[Any] = set()
        for table, names in columns.items():
            for name in names:
                rows = self.raw.rows(f"SELECT DISTINCT {name} AS at FROM {table}")
                found |= {row["at"] for row in rows if row["at"] is not None}
        at = START
        for old in sorted(found):
            at += timedelta(microseconds=self.draw.choice((1, 10**6, 10**10, 2 * 10**11)))
            at += timedelta(microseconds=self.draw.randint(0, 10**9))
            for table, names in columns.items():
                for name in names:
                    self.raw.run(f"UPDATE {table} SET {name} = ? WHERE {name} = ?", stored(at), old)
        self.end = at + DAY

    # ---- what follows ----

    def expected(self, events: list[Event], since: datetime, until: datetime, by: str) -> Sums:
        """Sum up from event to event: what holds, and which assignment each VM is charged for."""
        holds: set[str] = set()
        charged: dict[str, str] = {}  # by VM
        vm_of: dict[str, str] = {}
        sums: defaultdict[tuple[str | None, str], list[int]] = defaultdict(lambda: [0, 0])
        vms = {
            str(vm.id): vm for vm in self.registry.vms.list(limit=500, include_deleted=True).items
        }
        before = since
        for event in [*events, None]:
            at = until if event is None else min(max(event.at, since), until)
            for held, keys in ((0, holds), (1, set(charged.values()))):
                for key in keys:
                    vm = vms[vm_of[key]]
                    amounts = dict(zip(RESOURCES, TYPES[vm.vm_type], strict=True)) | {"vms": 1}
                    for resource, amount in amounts.items():
                        sums[name_by(vm, by), resource][held] += amount * us(at - before)
            before = at
            if event is None or event.kind != "assignment_state":
                continue
            key, vm_id = event.subject_id, event.data["vm"]
            vm_of[key] = vm_id
            holds.add(key)
            if event.to_state == "active":
                charged[vm_id] = key
            if event.to_state == "released":
                holds.discard(key)
                if charged.get(vm_id) == key:
                    del charged[vm_id]
        return {key: (held, charge) for key, (held, charge) in sums.items() if held or charge}


def as_time(value: Any) -> datetime:
    """Return a time as the database gives it."""
    return datetime.fromisoformat(value).replace(tzinfo=UTC) if isinstance(value, str) else value


def name_by(vm: Any, by: str) -> str | None:
    match by:
        case "tenant":
            return str(vm.tenant)
        case "group":
            return "g" if vm.tenant == "b" else None
        case "type":
            return str(vm.vm_type)
        case _:
            return vm.labels.get("team")  # type: ignore[no-any-return]  # any VM


def all_events(registry: Registry) -> list[Event]:
    found: list[Event] = []
    while page := registry.events.list(after=found[-1].id if found else 0, limit=500):
        found += page
    return found


@pytest.mark.parametrize("seed", range(3))
def test_usage_is_what_the_events_say(register: Registry, raw: RawSql, seed: int) -> None:
    site = Site(register, raw, seed)
    for _ in range(4):
        site.request()
    for _ in range(30):
        site.step()
    site.sweep()
    site.spread()
    events = all_events(register)

    def check(*, whole_days: bool = False, labels: bool = True) -> None:
        for _ in range(6):
            span = us(site.end - START)
            times = [START + timedelta(microseconds=site.draw.randint(0, span)) for _ in "fu"]
            since, until = min(times), max(times) + timedelta(microseconds=1)
            if whole_days:
                since, until = (midnight(each) for each in (since, until + DAY))
            for by in ("tenant", "group", "type", *(["label:team"] if labels else [])):
                found = sums_of(register.usage.read(since=since, until=until, by=by))
                assert found == site.expected(events, since, until, by), (since, until, by)

    assert {each.event for each in events} >= {"started", "proven_absent"}
    check()
    ends = raw.rows("SELECT released_at FROM assignments WHERE released_at IS NOT NULL ORDER BY 1")
    half = as_time(ends[len(ends) // 2]["released_at"])
    assert register.usage.add_ended(by=half + DAY) == len(ends) // 2 > 2
    check()
    while register.usage.add_ended():
        pass
    assert raw.value("SELECT count(*) FROM assignments WHERE in_daily_usage") == raw.value(
        "SELECT count(*) FROM assignments WHERE state = 'released'"
    )
    check()
    purge_all(register, Periods(inputs_days=1, rounds_days=1, events_months=1200))
    check(whole_days=True, labels=False)
    assert register.check() == []


def midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


@pytest.fixture
def ended(register: Registry, raw: RawSql) -> Registry:
    """A VM of tenant a that was there from the 2nd of March until noon on the 4th."""
    (host,) = a_cluster(register)
    asked = add_request(register, labels={"team": "x"})
    (key,) = place(register, asked, host).assignment_ids
    run_vm(register, key)
    register.requests.delete(asked.id, actor=ACTOR)
    remove_vm(register, key)
    begin, end = stored(START + DAY), stored(START + 3.5 * DAY)
    raw.run(
        "UPDATE assignments SET created_at = ?, activated_at = ?, released_at = ?",
        begin,
        begin,
        end,
    )
    raw.run("UPDATE vms SET deleted_at = ?", end)
    raw.run("UPDATE rounds SET created_at = ?", begin)
    return register


def vm_days(usage: Usage) -> dict[str | None, float]:
    return {each.name: int(each.charged) / 86_400 for each in usage.items if each.resource == "vms"}


def test_a_purge_keeps_whole_days_and_says_what_it_took(ended: Registry) -> None:
    purge_all(ended, Periods(inputs_days=1, rounds_days=1))

    usage = ended.usage.read

    assert vm_days(usage(since=START, until=START + 9 * DAY)) == {None: 2.5}
    assert vm_days(usage(since=START + 3 * DAY, until=START + 4 * DAY, by="tenant")) == {"a": 0.5}
    assert usage(since=START + 4.25 * DAY, until=START + 9 * DAY).items == ()
    with pytest.raises(InvalidError, match="some of 2020-03-02 are purged"):
        usage(since=START + 1.25 * DAY, until=START + 9 * DAY)
    with pytest.raises(InvalidError, match=r"some of 2020-03-02 to 2020-03-03 are purged"):
        usage(since=START + DAY, until=START + 3 * DAY, by="label:team")


def test_the_leader_sums_up_what_ended_a_day_ago(ended: Registry, raw: RawSql) -> None:
    lease = take_lease(ended)
    purger = Purger(ended, lambda: lease, Periods(rounds_days=36_500), interval_s=1)
    raw.run("UPDATE assignments SET released_at = ?", stored(ended.now() - 0.9 * DAY))
    purger.add_usage(threading.Event())
    assert raw.value("SELECT count(*) FROM daily_usage") == 0
    raw.run("UPDATE assignments SET released_at = ?", stored(START + 3.5 * DAY))

    purger.add_usage(threading.Event())
    purger.add_usage(threading.Event())

    found = raw.rows("SELECT DISTINCT day FROM daily_usage ORDER BY day")
    assert [str(row["day"]) for row in found] == ["2020-03-02", "2020-03-03", "2020-03-04"]
    assert vm_days(ended.usage.read(since=START, until=START + 9 * DAY)) == {None: 2.5}


def test_a_removed_tenant_counts_and_is_in_no_group(register: Registry, raw: RawSql) -> None:
    (host,) = a_cluster(register)
    add_group(register, "top")
    add_group(register, "low", parent="top")
    add_tenant(register, "c", parent="low")
    asked = add_request(register, tenant="c")
    (key,) = place(register, asked, host).assignment_ids
    run_vm(register, key)
    register.requests.delete(asked.id, actor=ACTOR)
    remove_vm(register, key)
    at = stored(START)
    raw.run("UPDATE assignments SET created_at = ?, activated_at = ?", at, at)
    raw.run("UPDATE assignments SET released_at = ?", stored(START + DAY))

    def of(**fields: str) -> dict[str | None, float]:
        return vm_days(register.usage.read(since=START, until=START + DAY, **fields))

    assert of(group="top") == of(group="low") == of(tenant="c") == {None: 1.0}
    assert of(by="group") == {"low": 1.0}
    register.tenants.remove("c", actor=ACTOR)
    assert of(tenant="c") == of(by="group") == {None: 1.0}
    assert of(group="top") == {}
    assert of(tenant="a") == {}
    with pytest.raises(UnknownNameError):
        of(group="c")
    with pytest.raises(UnknownNameError):
        of(tenant="nobody")


def test_a_period_ends_after_it_begins(register: Registry) -> None:
    with pytest.raises(InvalidError):
        register.usage.read(since=START, until=START)
    with pytest.raises(InvalidError):
        register.usage.read(since=START, by="label:")
