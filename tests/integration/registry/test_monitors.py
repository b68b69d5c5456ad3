"""Monitors hold leases, and read of the hosts what changed."""

from __future__ import annotations

from uuid import UUID

from registry import HostAdminEvent, Registry
from registry.db import uuid7
from tests.raw_sql import RawSql
from tests.register import ACTOR, TEST_URIS, a_report, add_host


def beat(
    register: Registry, key: UUID, name: str = "m", *, watched: int = 0, late: int = 0
) -> None:
    register.monitors.record_heartbeat(key, name, lease_s=60, watched=watched, late=late)


def let_time_pass(raw: RawSql, key: UUID, by: str) -> None:
    over = raw.before("now", by)
    raw.run(f"UPDATE monitors SET lease_until = {over} WHERE id = ?", raw.key(key))


def test_a_monitor_that_beats_is_live_and_tells_what_it_watches(register: Registry) -> None:
    key = uuid7()
    beat(register, key, "one", watched=3)
    [first] = register.monitors.all()

    beat(register, key, "one", watched=5, late=1)

    [seen] = register.monitors.all()
    assert (seen.id, seen.name, seen.watched, seen.late) == (key, "one", 5, 1)
    assert seen.is_live
    assert seen.started_at == first.started_at
    assert seen.heartbeat_at >= first.heartbeat_at


def test_a_monitor_that_was_not_heard_is_told_of_until_an_hour_has_passed(
    register: Registry, raw: RawSql
) -> None:
    silent, forgotten, other = uuid7(), uuid7(), uuid7()
    for key, name in ((silent, "a"), (forgotten, "b"), (other, "c")):
        beat(register, key, name)
    let_time_pass(raw, silent, "1 seconds")
    let_time_pass(raw, forgotten, "3601 seconds")

    beat(register, other, "c")

    assert [(seen.name, seen.is_live) for seen in register.monitors.all()] == [
        ("a", False),
        ("c", True),
    ]


def test_a_monitor_that_leaves_is_gone_at_once(register: Registry) -> None:
    key = uuid7()
    beat(register, key)

    register.monitors.unregister(key)

    assert register.monitors.all() == ()


def test_only_hosts_that_changed_are_read_again(register: Registry) -> None:
    first, second = add_host(register, "first"), add_host(register, "second")
    before = register.watched_hosts.all()

    register.hosts.update("second", uri="test+unix:///elsewhere", actor=ACTOR, uri_policy=TEST_URIS)
    third = add_host(register, "third", up=False)
    after = register.watched_hosts.changed_since(before.cursor)

    assert {host.id for host in before.hosts} == {first.id, second.id}
    assert {host.name: host.uri for host in after.hosts} == {
        "second": "test+unix:///elsewhere",
        "third": third.uri,
    }
    assert register.watched_hosts.changed_since(after.cursor).hosts == ()


def test_polls_are_no_changes(register: Registry) -> None:
    host = add_host(register)
    cursor = register.watched_hosts.all().cursor

    register.hosts.record_report(host.id, a_report())

    assert register.watched_hosts.changed_since(cursor).hosts == ()


def test_a_host_that_was_retired_is_gone(register: Registry) -> None:
    host, drained = add_host(register, "h1"), add_host(register, "h2")
    cursor = register.watched_hosts.all().cursor

    register.hosts.change_admin("h1", HostAdminEvent.RETIRE, actor=ACTOR)
    register.hosts.change_admin("h2", HostAdminEvent.DRAIN, actor=ACTOR)
    read = register.watched_hosts.changed_since(cursor)

    assert read.gone == {host.id}
    assert [each.id for each in read.hosts] == [drained.id]
    assert [each.id for each in register.watched_hosts.all().hosts] == [drained.id]


def test_hosts_in_trouble_are_those_whose_latest_look_was_missed(register: Registry) -> None:
    missed, well = add_host(register, "missed"), add_host(register, "well")
    for host in (missed, well):
        register.hosts.record_miss(host.id, "no answer", unreachable_after=3, down_after=10)
    register.hosts.record_report(well.id, a_report())

    assert register.watched_hosts.failing_hosts() == {missed.id}
