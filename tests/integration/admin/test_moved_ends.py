"""A wrong clock is set right: what it gave an end to has as much time left as before."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, cast

import pytest
from sqlalchemy import create_engine, select

from controller.control_center.clock_watch import ClockWatch
from controller.control_center.dispatch import Broker, Dispatcher
from controller.control_center.steady_clock import SteadyClock
from registry import Registry
from registry.admin import HELD, LeaseLengths
from registry.db import clock as db_clock
from registry.db.engine import parse_database_url
from registry.db.schema import metadata
from tests.raw_sql import RawSql
from tests.register import ACTOR, a_cluster, a_report, add_request, take_lease

HOUR: Final = 3600
LENGTHS: Final = LeaseLengths(lease_s=30, fence_timeout_s=60, spot_grace_s=120, room_hold_s=600)


class NoQueue:
    """A broker that is away: the sweep ends what is over, and sends nothing."""

    def queue_lengths(self) -> None:
        return None


class Site:
    """A control centre that leads, and a database whose clock is set."""

    def __init__(self, register: Registry, raw: RawSql, monkeypatch: pytest.MonkeyPatch) -> None:
        self.register, self.raw, self._patch = register, raw, monkeypatch
        self.step_s, self.passed_s = 0, 0
        self.lease = take_lease(register, length_s=1e6)
        self.watch = ClockWatch(register, lambda: self.lease, LENGTHS)
        self.begin()

    def begin(self) -> None:
        """Begin a control centre, which knows what is recorded."""
        clock = SteadyClock(self.register, lambda: time.monotonic() + self.passed_s)
        self.dispatcher = Dispatcher(
            self.register,
            cast("Broker", NoQueue()),
            interval_s=1,
            resend_after_s=60,
            build_timeout_s=1e6,
            clock=clock,
        )
        self.sweep()

    def sweep(self) -> None:
        self.dispatcher.sweep()

    def set_clock(self, step_s: int, *, noticed: bool = True) -> None:
        """Set the database's clock so far from the right time."""
        self.step_s = step_s
        self._set()
        if noticed:
            self.sweep()
            self.watch.settle_times()

    def pass_time(self, seconds: int) -> None:
        self.passed_s += seconds
        self._set()
        self.sweep()

    def _set(self) -> None:
        by = self.step_s + self.passed_s
        now = (
            f"SELECT strftime('%Y-%m-%d %H:%M:%f', 'now', '{by:+d} seconds')"
            if self.raw.dialect == "sqlite"
            else f"SELECT clock_timestamp() + interval '{by} seconds'"
        )
        self._patch.setitem(db_clock._NOW, self.raw.dialect, now)

    def beat(self) -> None:
        """Have a heartbeat written, by which a step back is noticed."""
        (host,) = self.register.hosts.list(limit=1).items
        self.register.hosts.record_report(host.id, a_report(started_at=self.register.now()))


@pytest.fixture
def site(register: Registry, raw: RawSql, monkeypatch: pytest.MonkeyPatch) -> Site:
    a_cluster(register)
    site = Site(register, raw, monkeypatch)
    site.beat()
    return site


def left_s(site: Site, end: datetime | None) -> float:
    assert end is not None
    return (end - site.register.now()).total_seconds()


def request_of(seconds: int) -> Callable[[Site], Callable[[], float]]:
    """Make a request with a lifetime; return what reads how much of it is left."""

    def make(site: Site) -> Callable[[], float]:
        key = add_request(site.register, 1, ttl_s=seconds).id
        return lambda: left_s(site, site.register.requests.get(key).expires_at)

    return make


def extended_request(site: Site) -> Callable[[], float]:
    key = add_request(site.register, 1).id
    site.register.requests.change(key, ttl_s=2 * HOUR, actor=ACTOR)
    return lambda: left_s(site, site.register.requests.get(key).expires_at)


def reservation(site: Site) -> Callable[[], float]:
    key = site.register.reservations.create(
        tenant="a", vm_type="small", count=1, starts_at=site.register.now(), for_s=600, actor=ACTOR
    ).id
    return lambda: left_s(site, site.register.reservations.get(key).ends_at)


def token(site: Site) -> Callable[[], float]:
    made, _ = site.register.tokens.create("operator", None, "t", ttl_s=600, actor=ACTOR)
    return lambda: left_s(
        site,
        next(each.expires_at for each in site.register.tokens.list().items if each.id == made.id),
    )


#: What is given an end, each with the seconds until then.
GIVEN: Final[dict[str, tuple[Callable[[Site], Callable[[], float]], int]]] = {
    "request": (request_of(300), 300),
    "request for longer than the step": (request_of(3 * HOUR), 3 * HOUR),
    "extended request": (extended_request, 2 * HOUR),
    "reservation that begins at once": (reservation, 600),
    "token": (token, 600),
}


#: How far the clock is wrong, step by step, until it is right again.
EXCURSIONS: Final = {
    "behind": (-HOUR, 0),
    "behind by a week": (-7 * 86_400, 0),
    "ahead": (HOUR, 0),
    "behind, returns in two steps": (-HOUR, -HOUR // 2, 0),
    "behind, and further behind": (-HOUR, -3 * HOUR, 0),
    "behind twice": (-HOUR, 0, -HOUR, 0),
    "ahead twice": (HOUR, 0, HOUR, 0),
}


@pytest.mark.parametrize(
    ("steps", "given_after"),
    [
        pytest.param(steps, after, id=f"{name}, given after step {after + 1}")
        for name, steps in EXCURSIONS.items()
        for after in range(min(2, len(steps) - 1))
    ]
    # What is given after the second step ends later: no step is of the size that undoes another.
    + [pytest.param((-HOUR, HOUR, 0), 0, id="behind, and ahead on return")],
)
def test_what_a_wrong_clock_gave_an_end_to_keeps_its_time(
    site: Site, steps: tuple[int, ...], given_after: int
) -> None:
    add_request(site.register, 1)
    for step_s in steps[: given_after + 1]:
        site.set_clock(step_s)
        site.beat()
    left = {name: give(site) for name, (give, _) in GIVEN.items()}
    for step_s in steps[given_after + 1 :]:
        site.pass_time(10)
        site.beat()
        site.set_clock(step_s)

    site.sweep()

    passed_s = 10 * len(steps[given_after + 1 :])
    expected = {name: for_s - passed_s for name, (_, for_s) in GIVEN.items()}
    assert {name: read() for name, read in left.items()} == pytest.approx(expected, abs=8)


def test_the_vms_of_a_request_that_was_made_meanwhile_end_when_its_time_is_over(site: Site) -> None:
    site.set_clock(-HOUR)
    made = add_request(site.register, 1, ttl_s=300)
    site.pass_time(30)
    site.set_clock(0)

    site.sweep()
    assert site.register.requests.get(made.id).state != "expired"
    (moved,) = site.register.events.list(kind="end_moved")
    assert (moved.subject_id, moved.tenant) == (str(made.id), "a")
    assert "the database's clock stepped by +" in (moved.reason or "")

    site.pass_time(int(HELD.total_seconds()) + 60)  # until then nothing ends for good
    assert site.register.requests.get(made.id).state == "expired"


@pytest.mark.parametrize("step_s", [-HOUR, HOUR])
def test_what_was_made_before_the_step_was_noticed_moves_too(site: Site, step_s: int) -> None:
    add_request(site.register, 1)
    site.set_clock(step_s, noticed=False)
    left = request_of(300)(site)
    site.sweep()
    site.watch.settle_times()
    site.beat()

    site.set_clock(0)

    assert left() == pytest.approx(300, abs=8)


@pytest.mark.parametrize("step_s", [-HOUR, HOUR])
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_the_right_clock_gave_an_end_to_stays(site: Site, step_s: int, when: str) -> None:
    """Before the clock steps; and when it is right again, before that is noticed."""
    left = request_of(3 * HOUR)(site)
    site.set_clock(step_s)
    site.beat()
    site.set_clock(0, noticed=False)
    if when == "after":
        left = request_of(3 * HOUR)(site)
    site.sweep()
    site.watch.settle_times()

    assert left() == pytest.approx(3 * HOUR, abs=8)
    assert site.register.events.list(kind="end_moved") == ()


@pytest.mark.parametrize("step_s", [-HOUR, HOUR])
def test_a_reservation_for_a_time_that_somebody_chose_stays_there(site: Site, step_s: int) -> None:
    site.set_clock(step_s)
    begins = site.register.now() + timedelta(hours=5)
    made = site.register.reservations.create(
        tenant="a", vm_type="small", count=1, starts_at=begins, for_s=600, actor=ACTOR
    )
    site.beat()

    site.set_clock(0)
    site.sweep()

    assert site.register.reservations.get(made.id).starts_at == begins


def test_a_control_centre_that_began_meanwhile_moves_them_and_several_move_them_once(
    site: Site,
) -> None:
    site.set_clock(-HOUR)
    left = request_of(300)(site)
    other = site.dispatcher
    site.begin()

    site.set_clock(0)
    other.sweep()
    site.begin()

    assert left() == pytest.approx(300, abs=8)
    (noted,) = site.register.events.list(kind="clock_stepped_ahead")
    assert noted.data["ahead_s"] == pytest.approx(HOUR, abs=8)


@pytest.mark.parametrize(
    ("returned", "stopped_s", "left_s"),
    [(True, 60, 240), (False, 60, 240), (False, 2 * HOUR, HOUR + 300 - 2 * HOUR)],
    ids=["set right", "as wrong as before", "stopped for longer than the step: the later end"],
)
def test_a_clock_that_is_set_right_while_no_control_centre_runs(
    site: Site, returned: bool, stopped_s: int, left_s: int
) -> None:
    site.set_clock(-HOUR)
    left = request_of(300)(site)
    site.register.leases.release(site.lease)

    site.passed_s += stopped_s
    site.set_clock(0 if returned else -HOUR, noticed=False)
    site.beat()  # other processes begin first
    site.begin()
    site.begin()

    assert left() == pytest.approx(left_s, abs=15)
    (made,) = site.register.requests.list().items
    assert made.state != "expired"


def test_a_step_ahead_without_a_step_back_moves_no_end(site: Site) -> None:
    left = request_of(3 * HOUR)(site)

    site.set_clock(HOUR)

    assert left() == pytest.approx(2 * HOUR, abs=8)


def test_a_login_ends_with_the_token_that_made_it_when_ends_move(site: Site) -> None:
    made, _ = site.register.tokens.create("operator", None, "t", ttl_s=HOUR, actor=ACTOR)
    site.set_clock(-2 * HOUR)
    login = site.register.tokens.create("operator", None, "l", ttl_s=HOUR, actor=ACTOR)[0]
    site.raw.run(
        "UPDATE tokens SET parent_id = ? WHERE id = ?",
        site.raw.key(made.id),
        site.raw.key(login.id),
    )

    site.set_clock(0)

    ends = {each.name: each.expires_at for each in site.register.tokens.list().items}
    assert ends["l"] == ends["t"]


NOTICES: Final = {
    "spot_preemptions": "ends_at",
    "spot_room_holds": "until",
    "power_actions": "force_at",
}


@pytest.mark.parametrize("table", NOTICES)
@pytest.mark.parametrize("steps", [(HOUR,), (-HOUR, 0)], ids=["ahead", "behind and right again"])
def test_a_notice_keeps_its_time_in_a_step_ahead(
    site: Site, table: str, steps: tuple[int, ...]
) -> None:
    *before, last = steps
    for step_s in before:
        site.set_clock(step_s)
    ends = site.register.now() + timedelta(seconds=100)
    insert_notice(site, table, ends)
    request_of(300)(site)

    site.set_clock(last, noticed=False)
    site.dispatcher.clock.now()

    column = metadata.tables[table].c[NOTICES[table]]
    with create_engine(parse_database_url(site.register.database_url)).connect() as connection:
        assert left_s(site, connection.scalar(select(column))) == pytest.approx(100, abs=8)


def insert_notice(site: Site, table: str, ends: datetime) -> None:
    """Insert a row of a notice, a hold, or a guest that shuts down, that ends then."""
    request = add_request(site.register, 1)
    (vm,) = site.register.vms.list(request_id=request.id).items
    (host, *_) = site.register.hosts.list().items
    at = ends - timedelta(seconds=100)
    power = dict.fromkeys(("requested_at", "signalled_at", "due_at"), at)
    rows: dict[str, dict[str, object]] = {
        "spot_preemptions": {
            "vm_id": vm.id,
            "host_id": host.id,
            "request_id": request.id,
            "for_tenant": "a",
            "for_request": "r",
            "round": 1,
        },
        "spot_room_holds": {"request_id": request.id, "host_id": host.id, "count": 1},
        "power_actions": power
        | {"vm_id": vm.id, "state": "shutting_down", "requested_by": ACTOR, "timeout_s": 100},
    }
    engine = create_engine(parse_database_url(site.register.database_url))
    with engine.begin() as connection:
        connection.execute(
            metadata.tables[table].insert().values({**rows[table], NOTICES[table]: ends})
        )
