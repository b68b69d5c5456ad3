"""The database's clock steps back: nothing waits until it has caught up, and operators learn."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, cast
from uuid import uuid4

import pytest
from sqlalchemy import Column, Engine, create_engine, func, select

from controller.cli.operating.status import clock_sentence
from controller.control_center.clock_watch import ClockWatch
from controller.control_center.steady_clock import SteadyClock
from registry import Registry
from registry.admin import ClockStep, LeaseLengths
from registry.admin.clock_steps import HELD, TOLERANCE, _limited_times
from registry.db.clock import UtcDateTime
from registry.db.engine import parse_database_url
from registry.db.schema import metadata, power_actions
from registry.rounds import CONTROL_LEASE
from tests.raw_sql import RawSql
from tests.register import ACTOR, a_cluster, a_report, add_request, place, running, take_lease

STEP_S: Final = 3600.0
LENGTHS: Final = LeaseLengths(lease_s=30, fence_timeout_s=60, spot_grace_s=120, room_hold_s=600)
#: Times that keep nothing from happening, or that somebody chose, by table; ``*``: all of it.
LEFT_ALONE: Final[dict[str, set[str]]] = {
    # What happened, for people to read.
    "events": {"at"},
    "audit": {"at", "last_at"},
    "rounds": {"slot_start_at", "created_at"},
    "round_hash_chain": {"created_at"},
    "site_keys": {"created_at"},
    "closed_usage": {"created_at"},
    # Measured again each minute.
    "budgets": {"measured_at", "spent_at"},
    "shadow_rounds": {"created_at"},
    "console_reads": {"requested_at", "answered_at"},
    "strangers": {"first_seen_at"},
    # Another hour begins with the next sample, whichever hour it is.
    "capacity_samples": {"hour", "sampled_at"},
    "preserved_disks": {"kept_at"},
    "installation_secrets": {"made_at"},
    "vm_types": {"created_at"},
    "tenants": {"created_at", "removed_at"},
    "ssh_keys": {"created_at"},
    "vm_groups": {"created_at"},
    "networks": {"created_at"},
    "network_former_sources": {"placed_until"},  # compared with assignments' creation alone
    "hosts": {"created_at"},
    "requests": {"created_at", "updated_at", "ending_since", "expires_at"},
    "vms": {"created_at", "deleted_at", "paused_since"},
    "volumes": {"created_at", "removed_at"},
    "images": {"created_at", "removed_at", "held_at"},
    "image_copies": {"created_at"},
    "assignments": {"created_at"},
    "moves": {"requested_at", "began_at"},
    "plans": {"approved_at"},
    "rolls": {"began_at", "ended_at"},
    "what_ifs": {"requested_at", "began_at", "ended_at"},
    # Somebody chose them: they come later by the step.
    "reservations": {"keep_from", "starts_at", "ends_at", "created_at", "decided_at"},
    "tokens": {"created_at", "revoked_at", "expires_at"},
    "login_codes": {"created_at", "used_at"},
    # Whoever wants a lease shortens it: `registry.rounds.leases`.
    "leases": {"expires_at", "held_since"},
}


def times() -> Iterator[Column[datetime]]:
    for table in metadata.sorted_tables:
        yield from (each for each in table.columns if isinstance(each.type, UtcDateTime))


def step_back(raw: RawSql) -> None:
    """Let the clock step back: all that is stored was written so much later than now."""
    for each in times():
        table = each.table.name
        if table in {"events", "rounds", "round_hash_chain"}:  # these are never changed
            continue
        later = (
            f"strftime('%Y-%m-%d %H:%M:%f000', {each.name}, '+{STEP_S:.0f} seconds')"
            if raw.dialect == "sqlite"
            else f"{each.name} + interval '{STEP_S:.0f} seconds'"
        )
        raw.run(f"UPDATE {table} SET {each.name} = {later}")


def engine_of(register: Registry) -> Engine:
    return create_engine(parse_database_url(register.database_url))


def ahead(register: Registry) -> set[str]:
    """Name the times that lie further ahead than they can."""
    found = set()
    with engine_of(register).connect() as connection:
        for each in _limited_times(LENGTHS):
            for name, within_s in each.within_s.items():
                at = connection.scalar(select(func.max(each.table.c[name])).where(each.which))
                limit = register.now() + timedelta(seconds=within_s) + TOLERANCE
                if at is not None and at > limit:
                    found.add(f"{each.table.name}.{name}")
    return found


@pytest.fixture
def lived(register: Registry) -> Registry:
    """A site at work: a VM is built, another waits for a worker, and processes beat."""
    (host,) = a_cluster(register)
    place(register, add_request(register, 2), host, 2)
    register.hosts.record_report(host.id, a_report(started_at=register.now()))
    first, _ = register.assignments.send_due_tasks(resend_after_s=60)
    assert register.assignments.claim_build(first.id, "w1", 60) is not None
    register.monitors.record_heartbeat(uuid4(), "m1", lease_s=15, watched=1, late=0)
    register.processes.register("worker", "w1", "kvm7", 1, stamp_of=lambda _: "s")
    return register


def test_each_stored_time_is_brought_back_or_left_alone_for_a_reason() -> None:
    brought_back = {
        (each.table.name, name) for each in _limited_times(LENGTHS) for name in each.within_s
    }
    left = {(table, name) for table, names in LEFT_ALONE.items() for name in names}

    assert not brought_back & left
    assert brought_back | left == {(each.table.name, each.name) for each in times()}


def test_what_a_dead_worker_had_is_built_soon_after_the_clock_stepped_back(
    lived: Registry, raw: RawSql
) -> None:
    step_back(raw)
    short = LeaseLengths(lease_s=0, fence_timeout_s=0, spot_grace_s=0, room_hold_s=0)
    assert lived.assignments.send_due_tasks(resend_after_s=0) == ()

    lived.clock_steps.correct_times(short)

    assert len(lived.assignments.send_due_tasks(resend_after_s=0)) == 2


def test_all_that_lies_ahead_is_brought_back_and_the_step_is_noted_once(
    lived: Registry, raw: RawSql
) -> None:
    step_back(raw)
    assert {"assignments.lease_until", "monitors.lease_until", "hosts.last_polled_at"} <= ahead(
        lived
    )
    assert lived.liveness().clock_ahead_s > STEP_S - 60

    back_s = lived.clock_steps.correct_times(LENGTHS)

    assert STEP_S - 60 < back_s <= STEP_S
    assert ahead(lived) == set()
    assert lived.clock_steps.correct_times(LENGTHS, thorough=True) == 0
    (noted,) = lived.events.list(kind="clock_stepped_back")
    step = lived.liveness().clock_step
    assert step is not None
    assert (step.at, step.back_s) == (noted.at, pytest.approx(back_s, abs=0.01))
    assert lived.liveness().clock_ahead_s < TOLERANCE.total_seconds()


def test_a_host_that_was_fenced_before_the_clock_stepped_back_comes_back(
    register: Registry, raw: RawSql
) -> None:
    host, *_ = a_cluster(register, 3)
    running(register, host)
    register.hosts.update("h1", labels=["on_failure=rebuild"], fence_target="bmc", actor=ACTOR)
    register.hosts.record_miss(host.id, "timeout", unreachable_after=1, down_after=1)
    assert register.fencing.request_for_failed_hosts(take_lease(register)) == ("h1",)
    order = register.fencing.claim(host.id, "w1", 60)
    assert order is not None
    register.fencing.record_success(order)
    step_back(raw)
    seen = register.hosts.record_report(host.id, a_report(started_at=register.now()))
    assert seen.health == "down"

    register.clock_steps.correct_times(LENGTHS)

    seen = register.hosts.record_report(host.id, a_report(started_at=register.now()))
    assert seen.health == "up"


def test_a_guest_is_forced_off_after_its_own_time(lived: Registry, raw: RawSql) -> None:
    (vm, *_) = lived.vms.list(limit=1).items
    now = lived.now()
    times = dict.fromkeys(("requested_at", "signalled_at", "due_at"), now)
    with engine_of(lived).begin() as connection:
        connection.execute(
            power_actions.insert().values(
                vm_id=vm.id,
                state="shutting_down",
                requested_by=ACTOR,
                timeout_s=300,
                force_at=now + timedelta(seconds=300),
                **times,
            )
        )
    step_back(raw)

    lived.clock_steps.correct_times(LENGTHS)

    with engine_of(lived).connect() as connection:
        force_at = connection.scalar(select(power_actions.c.force_at))
    assert timedelta(seconds=240) < force_at - lived.now() <= timedelta(seconds=300)


def test_a_clock_that_runs_well_is_left_alone(lived: Registry) -> None:
    lived.assignments.send_due_tasks(resend_after_s=60)

    assert ahead(lived) == set()
    assert lived.clock_steps.correct_times(LENGTHS, thorough=True) == 0
    assert lived.liveness().clock_step is None
    assert lived.events.list(kind="clock_stepped_back") == ()


def test_only_who_leads_looks_and_looks_through_history_first(lived: Registry, raw: RawSql) -> None:
    lease = take_lease(lived)
    step_back(raw)

    assert ClockWatch(lived, lambda: None, LENGTHS).settle_times() == 0
    watch = ClockWatch(lived, lambda: lease, LENGTHS)
    assert watch.settle_times() > STEP_S - 60
    assert watch.settle_times() == 0


def test_a_dead_leaders_lease_ends_soon_and_a_live_one_keeps_it(
    register: Registry, raw: RawSql
) -> None:
    lost = take_lease(register, length_s=30)
    step_back(raw)

    assert register.leases.acquire(CONTROL_LEASE, "cc-2", 30) is None

    lease = register.liveness().lease
    assert lease is not None
    assert lease.expires_at <= register.now() + timedelta(seconds=60)
    assert register.leases.renew(lost, 30).epoch == lost.epoch
    raw.run(f"UPDATE leases SET expires_at = {raw.before('now', '1 seconds')}")
    taken = register.leases.acquire(CONTROL_LEASE, "cc-2", 30)
    assert taken is not None
    assert taken.epoch == lost.epoch + 1


class SteppingSite:
    """A register center whose database's clock is set, on a machine whose own time goes on."""

    def __init__(self, register: Registry) -> None:
        self._register = register
        self.clock_steps = self
        self.step, self.passed_s = timedelta(), 0.0

    def now(self) -> datetime:
        return self._register.now() + self.step + timedelta(seconds=self.passed_s)

    def record_step_ahead(self, ahead_s: float) -> None:
        self._register.clock_steps.record_step_ahead(ahead_s)

    def last_step_ahead(self) -> ClockStep | None:
        noted = self._register.clock_steps.last_step_ahead()
        return noted and replace(noted, at=noted.at + self.step)

    def unseen_return_s(self) -> float:
        return 0.0

    def clock(self) -> SteadyClock:
        return SteadyClock(cast("Registry", self), lambda: time.monotonic() + self.passed_s)


def test_a_step_ahead_counts_after_an_hour_and_is_noted_once(register: Registry) -> None:
    site = SteppingSite(register)
    clock, other = site.clock(), site.clock()
    before = [each.now() for each in (clock, other)]
    site.step = timedelta(hours=5)

    for each in (clock, other, site.clock()):  # the last one: of a process that starts then
        assert each.now() - max(before) < timedelta(seconds=60)
    site.passed_s = HELD.total_seconds() - 60
    assert timedelta(minutes=58) < clock.now() - max(before) < timedelta(hours=1)
    site.passed_s = HELD.total_seconds() + 60

    assert clock.now() - max(before) > site.step
    (noted,) = register.events.list(kind="clock_stepped_ahead")
    step = register.liveness().clock_step
    assert step is not None
    assert (step.at, step.back_s) == (noted.at, 0)
    assert step.ahead_s == pytest.approx(5 * 3600, abs=60)


def test_a_step_ahead_that_is_undone_and_one_back_count_at_once(register: Registry) -> None:
    site = SteppingSite(register)
    clock = site.clock()
    clock.now()
    for hours in (5, 0, -5):
        site.step = timedelta(hours=hours)
        seen = clock.now()
        assert abs(seen - site.now()) < timedelta(seconds=60) or hours == 5


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"clock_ahead_s": 0.2, "clock_step": None}, ()),
        ({}, ()),
        ({"clock_ahead_s": 3600.0, "clock_step": None}, ("60 min ahead", "chronyc tracking")),
        (
            {
                "clock_ahead_s": 0.0,
                "clock_step": {"at": "2026-11-27T08:00:00+00:00", "back_s": 3600.0},
            },
            ("stepped back by 60 min", "chronyc tracking"),
        ),
        (
            {"clock_step": {"at": "2026-11-27T08:00:00+00:00", "back_s": 0, "ahead_s": 3600.0}},
            ("stepped ahead by 60 min", "within an hour"),
        ),
    ],
)
def test_operators_read_what_is_wrong_and_what_to_check(
    status: dict[str, object], said: tuple[str, ...]
) -> None:
    sentence = clock_sentence(status) or ""

    assert bool(sentence) == bool(said)
    assert all(each in sentence for each in said)
