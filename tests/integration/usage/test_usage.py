"""Usage is what assignments held, to the microsecond, whatever is summed up and purged."""

from __future__ import annotations

import threading
from datetime import timedelta
from decimal import Decimal

import pytest

from controller.control_center.purge import Purger, purge_all
from registry import InvalidError, Registry, UnknownNameError
from registry.admin import Periods
from registry.usage import Usage
from registry.usage.borrowed_times import begin_to_borrow, end_to_borrow
from tests.integration.usage.site import (
    DAY,
    START,
    Site,
    add_ended_vm,
    all_events,
    as_time,
    midnight,
    stored,
    sums_of,
    us,
)
from tests.raw_sql import RawSql
from tests.register import (
    ACTOR,
    a_cluster,
    add_group,
    add_request,
    add_tenant,
    place,
    remove_vm,
    run_vm,
    take_lease,
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
def test_usage_is_what_the_events_say(register: Registry, raw: RawSql, seed: int) -> None:
    site = Site(register, raw, seed)
    site.live_for(40)
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
    names = {resource for _, resource in site.expected(events, START, site.end, "type")}
    assert {"vcpus", "borrowed:vcpus"} <= names
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


@pytest.fixture
def ended(register: Registry, raw: RawSql) -> Registry:
    """A VM of tenant a that was there from the 2nd of March until noon on the 4th."""
    add_ended_vm(register, raw, START + DAY, START + 3.5 * DAY)
    raw.run("UPDATE rounds SET created_at = ?", stored(START + DAY))
    return register


def test_each_time_in_which_a_vm_is_borrowed_has_its_own_sums_and_price(
    ended: Registry, raw: RawSql
) -> None:
    raw.run("UPDATE assignments SET activated_at = ?", stored(START + 1.5 * DAY))
    vm = ended.vms.list(include_deleted=True).items[0].id
    # From 1.25 to 1.5, and from 1.75 on.
    for at, change in enumerate((begin_to_borrow, end_to_borrow, begin_to_borrow), 5):
        with ended._database.write() as connection:
            change(connection, [vm], START + at / 4 * DAY)
    ended.prices.set_currency("EUR", actor=ACTOR)
    for resource, price in (("vms", 100), ("borrowed:vms", 1)):
        ended.prices.set(resource, Decimal(price), since=START.date(), actor=ACTOR)

    def found() -> dict[str, tuple[float, float, float | None]]:
        items = ended.usage.read(since=START, until=START + 9 * DAY).items
        return {
            each.resource: (
                float(each.held) / 86_400,
                float(each.charged) / 86_400,
                None if each.cost is None else float(each.cost),
            )
            for each in items
            if each.resource in ("vms", "borrowed:vms", "borrowed:vcpus")
        }

    expected = {
        "vms": (0.5, 0.25, 600),
        "borrowed:vms": (2.0, 1.75, 42),
        "borrowed:vcpus": (2.0, 1.75, None),
    }
    assert found() == expected
    assert ended.usage.add_ended() == 1
    assert found() == expected
    line = ended.closed_months.close(START.date(), actor=ACTOR)
    assert found() == expected
    assert line.kind == "month"


def vm_days(usage: Usage) -> dict[str | None, float]:
    return {each.name: int(each.charged) / 86_400 for each in usage.items if each.resource == "vms"}


def test_a_purge_keeps_whole_days_and_says_what_it_took(ended: Registry, raw: RawSql) -> None:
    # Borrowed when it was gone already, so that this changes no usage.
    raw.run(
        "INSERT INTO borrowed_times (id, vm_id, since) SELECT id, id, ? FROM vms",
        stored(START + 4 * DAY),
    )
    purge_all(ended, Periods(inputs_days=1, rounds_days=1))
    assert raw.value("SELECT count(*) FROM borrowed_times") == 0

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
    request = add_request(register, tenant="c")
    (key,) = place(register, request, host).assignment_ids
    run_vm(register, key)
    register.requests.delete(request.id, actor=ACTOR)
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
