"""A made-up site: VMs that are built, move, fail and go, and the usage that follows from events."""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from registry import CapacityExceededError, MoveRefusedError, Registry
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


class Span(NamedTuple):
    """A time in which a VM's assignment held its amounts, or was charged for them."""

    vm: Any
    begin: datetime
    end: datetime
    charged: bool
    borrowed: bool

    def amounts(self) -> dict[str, int]:
        found = dict(zip(RESOURCES, TYPES[self.vm.vm_type], strict=True)) | {"vms": 1}
        return {("borrowed:" if self.borrowed else "") + name: found[name] for name in found}


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
        #: by an event's number: the VMs that are borrowed from then on, or were until they went
        self.borrowed: dict[int, set[str]] = {}

    def live(self, **fields: Any) -> list[Any]:
        return list(self.registry.vms.list(limit=500, **fields).items)

    # ---- what happens ----

    def live_for(self, steps: int) -> None:
        """Let requests come, and so many steps happen, at times spread over weeks."""
        for _ in range(4):
            self.request()
        for _ in range(steps):
            self.step()
        self.sweep()
        self.spread()

    def step(self) -> None:
        steps = (self.request, self.move, self.delete, self.resize, self.sweep, self.lend)
        with contextlib.suppress(CapacityExceededError, MoveRefusedError):  # hosts that are full
            self.draw.choices(steps, weights=(2, 1, 2, 1, 1, 2))[0]()

    def request(self) -> None:
        wanted = add_request(
            self.registry,
            self.draw.randint(1, 3),
            tenant=self.draw.choice("ab"),
            vm_type=self.draw.choice(tuple(TYPES)),
            labels={"team": self.draw.choice("xy")} if self.draw.random() < 0.7 else {},
        )
        self.place(wanted)

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
            requested = self.world.ask(vm, to)
            if self.draw.random() < 0.4:
                self.world.movers.fail(self.draw.choice(tuple(Breaks)))
            if self.draw.random() < 0.8:
                self.world.move(requested)

    def delete(self) -> None:
        if found := self.live():
            self.registry.vms.delete(self.draw.choice(found).id, actor=ACTOR)

    def resize(self) -> None:
        found = self.registry.requests.list(limit=500).items
        wanted = [each for each in found if each.state in ("pending", "partly_placed", "placed")]
        if wanted:
            requested = self.draw.choice(wanted)
            count = self.draw.randint(1, 3)
            if requested.count and self.live(request_id=requested.id):
                self.registry.requests.change(requested.id, count=count, actor=ACTOR)
                self.note_borrowed()

    def lend(self) -> None:
        """Let the newest placed VM of a request be borrowed, or borrowed ones be ordinary."""
        found = self.registry.requests.list(limit=500).items
        several = [each for each in found if each.vms_wanted > 1 and each.state != "released"]
        if several:
            requested = self.draw.choice(several)
            count = requested.count - 1 if requested.vms_borrowed == 0 else requested.vms_wanted
            most = requested.vms_wanted + 1
            self.registry.requests.change(requested.id, count=count, max_count=most, actor=ACTOR)
            self.note_borrowed()

    def note_borrowed(self) -> None:
        last = all_events(self.registry)[-1].id
        vms = self.live(include_deleted=True)
        self.borrowed[last] = {str(vm.id) for vm in vms if vm.borrowed}

    def sweep(self) -> None:
        self.world.sweep()

    # ---- when it happened ----

    def spread(self) -> None:
        """Spread all times over weeks, in their order."""
        columns = {
            "assignments": ("created_at", "activated_at", "released_at"),
            "borrowed_times": ("since", "until"),
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
        sums: defaultdict[tuple[str | None, str], list[int]] = defaultdict(lambda: [0, 0])
        for span in self.spans(events, since, until):
            for resource, amount in span.amounts().items():
                sums[name_by(span.vm, by), resource][span.charged] += amount * us(
                    span.end - span.begin
                )
        return {key: (held, charge) for key, (held, charge) in sums.items() if held or charge}

    def spans(self, events: list[Event], since: datetime, until: datetime) -> Iterator[Span]:
        """Yield each time between two events for each assignment that then held or was charged."""
        holds: set[str] = set()
        charged: dict[str, str] = {}  # by VM
        vm_of: dict[str, str] = {}
        vms = {
            str(vm.id): vm for vm in self.registry.vms.list(limit=500, include_deleted=True).items
        }
        before = since
        borrowed: set[str] = set()
        for event in [*events, None]:
            at = until if event is None else min(max(event.at, since), until)
            for is_charged, keys in ((False, holds), (True, set(charged.values()))):
                for key in keys:
                    if before < at:
                        vm = vm_of[key]
                        yield Span(vms[vm], before, at, is_charged, vm in borrowed)
            before = at
            if event is not None:
                borrowed = self.borrowed.get(event.id, borrowed)
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


def add_ended_vm(registry: Registry, raw: RawSql, since: datetime, until: datetime) -> None:
    """Draw a VM of tenant a with one vCPU and label team=x that was there for that time."""
    (host,) = a_cluster(registry)
    request = add_request(registry, labels={"team": "x"})
    (key,) = place(registry, request, host).assignment_ids
    run_vm(registry, key)
    registry.requests.delete(request.id, actor=ACTOR)
    remove_vm(registry, key)
    begin, end = stored(since), stored(until)
    raw.run("UPDATE assignments SET created_at = ?, activated_at = ?", begin, begin)
    raw.run("UPDATE assignments SET released_at = ?", end)
    raw.run("UPDATE vms SET deleted_at = ?", end)


def midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)
