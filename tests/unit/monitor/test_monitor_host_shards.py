"""Monitors split the hosts between them, and take over those of one that is gone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from monitor.host_shards import Peers, rendezvous_rank
from registry.db.ids import uuid7

INTERVAL_S = 10.0


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Leases:
    """The table of monitors, on a clock that all share."""

    clock: Clock
    until: dict[UUID, float] = field(default_factory=dict)
    beats: int = 0
    away: bool = False

    @property
    def monitors(self) -> Leases:
        return self

    def record_heartbeat(
        self, key: UUID, name: str, *, lease_s: float, watched: int, late: int
    ) -> None:
        if self.away:
            raise ConnectionError("the database is away")
        self.beats += 1
        self.until[key] = self.clock.now + lease_s

    def unregister(self, key: UUID) -> None:
        del self.until[key]

    def all(self) -> tuple[Any, ...]:
        if self.away:
            raise ConnectionError("the database is away")
        return tuple(
            SimpleNamespace(id=key, is_live=until > self.clock.now)
            for key, until in self.until.items()
        )


def some_peers(leases: Leases, count: int = 2) -> list[Peers]:
    peers = [Peers(leases, 1, INTERVAL_S, leases.clock) for _ in range(count)]  # type: ignore[arg-type]
    for each in peers:
        each.renew_lease(watched=0, late=0)
    return peers


def let_pass(leases: Leases, seconds: float, *meeting: Peers) -> None:
    """Let time pass; some monitors meet each second."""
    for _ in range(round(seconds)):
        leases.clock.now += 1
        for each in meeting:
            each.renew_lease(watched=0, late=0)


def test_every_host_has_one_monitor_and_each_a_fair_part_of_them() -> None:
    monitors, hosts = [uuid7() for _ in range(4)], [uuid7() for _ in range(4000)]

    first = Counter(
        each for host in hosts for each in monitors if not rendezvous_rank(host, each, monitors)
    )

    assert sum(first.values()) == len(hosts)
    assert min(first.values()) > 850


def test_of_a_monitor_that_goes_only_its_own_hosts_change_hands() -> None:
    monitors, hosts = [uuid7() for _ in range(4)], [uuid7() for _ in range(1000)]
    gone, *rest = monitors

    def owner(host: UUID, among: list[UUID]) -> UUID:
        return next(each for each in among if rendezvous_rank(host, each, among) == 0)

    moved = [host for host in hosts if owner(host, monitors) != owner(host, rest)]

    assert {owner(host, monitors) for host in moved} == {gone}
    assert {owner(host, rest) for host in moved} == set(rest)


def test_who_looks_second_is_who_would_take_over() -> None:
    monitors = [uuid7() for _ in range(3)]
    host = uuid7()
    first, second, _ = sorted(monitors, key=lambda each: rendezvous_rank(host, each, monitors))

    assert rendezvous_rank(host, second, [each for each in monitors if each != first]) == 0


def test_a_monitor_that_is_silent_is_gone_when_its_lease_runs_out() -> None:
    leases = Leases(Clock())
    one, other = some_peers(leases)
    let_pass(leases, 30, one, other)
    assert one.renew_lease(watched=0, late=0) == {one.key, other.key}

    let_pass(leases, one.lease_s - 3, one)
    before = one.renew_lease(watched=0, late=0)
    let_pass(leases, 4, one)

    assert before == {one.key, other.key}
    assert one.renew_lease(watched=0, late=0) == {one.key}


def test_a_monitor_that_wakes_takes_its_hosts_back() -> None:
    leases = Leases(Clock())
    one, other = some_peers(leases)
    let_pass(leases, 60, one)

    assert other.renew_lease(watched=0, late=0) == {one.key, other.key}
    assert one.renew_lease(watched=0, late=0) == {one.key, other.key}


def test_a_monitor_that_says_goodbye_is_gone_at_once() -> None:
    leases = Leases(Clock())
    one, other = some_peers(leases)
    one.renew_lease(watched=0, late=0)

    other.release_lease()

    assert one.renew_lease(watched=0, late=0) == {one.key}


def test_after_the_register_center_was_away_nobody_takes_all_hosts() -> None:
    leases = Leases(Clock())
    one, other = some_peers(leases)
    let_pass(leases, 30, one, other)

    leases.clock.now += 300  # neither could beat
    both = one.renew_lease(watched=0, late=0)
    let_pass(leases, one.lease_s + 1, one)

    assert both == {one.key, other.key}
    assert one.renew_lease(watched=0, late=0) == {one.key}  # the other one did not come back


def test_a_new_monitor_does_not_wait_for_those_whose_leases_ran_out() -> None:
    leases = Leases(Clock())
    some_peers(leases)
    leases.clock.now += 60

    [new] = some_peers(leases, 1)

    assert new.renew_lease(watched=0, late=0) == {new.key}


def test_beats_are_few_and_well_within_the_lease() -> None:
    leases = Leases(Clock())
    [one] = some_peers(leases, 1)

    let_pass(leases, 60, one)

    assert 60 / one.lease_s * 2 <= leases.beats <= 60 / one.lease_s * 5
