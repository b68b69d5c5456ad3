"""Costs are usage times prices, each line rounded once, whatever happens when."""

from __future__ import annotations

import threading
from collections import defaultdict
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from registry import ConflictError, InvalidError, NotFoundError, Registry, UnknownNameError
from registry.audit import Event
from registry.usage import Price
from registry.usage.costs import line_cost
from tests.integration.usage.site import DAY, START, Site, all_events, midnight, name_by, stored, us
from tests.raw_sql import RawSql
from tests.register import ACTOR, a_cluster, add_request, add_vm_type, place, run_vm

MARCH = date(2020, 3, 1)


@pytest.fixture
def priced(register: Registry) -> Registry:
    """A site with a currency and no prices."""
    register.prices.set_currency("EUR", actor=ACTOR)
    return register


def set_price(
    registry: Registry, resource: str, price: str | None, since: date, vm_type: str | None = None
) -> Price:
    number = None if price is None else Decimal(price)
    return registry.prices.set(resource, number, since=since, vm_type=vm_type, actor=ACTOR)


# ---- against the events --------------------------------------------------------------------------


def price_on(day: date, resource: str, vm_type: str, versions: list[Price]) -> Price | None:
    """Return the version of a day: of the type if it has one, else of all types.

    Borrowed VMs have the price of ordinary ones if they have none of their own.
    """
    for name in (resource, resource.removeprefix("borrowed:")):
        for of_type in (vm_type, None):
            of_subject = [
                each
                for each in versions
                if (each.resource, each.vm_type) == (name, of_type) and each.since <= day
            ]
            last = max(of_subject, key=lambda each: each.since, default=None)
            if last is not None and last.price is not None:
                return last
    return None


def half_even(exact: Fraction) -> int:
    whole, rest = divmod(exact.numerator, exact.denominator)
    twice = 2 * rest
    up = twice > exact.denominator or (twice == exact.denominator and whole % 2 == 1)
    return whole + up


def expected_cents(
    site: Site, events: list[Event], since: datetime, until: datetime, by: str, prices: list[Price]
) -> dict[tuple[str | None, str], int]:
    """Add up day by day what each VM costs; round each line, then add lines."""
    lines: defaultdict[object, Fraction] = defaultdict(Fraction)
    for span in site.spans(events, since, until):
        at = span.begin
        while span.charged and at < span.end:
            end = min(midnight(at) + DAY, span.end)
            for resource, amount in span.amounts().items():
                version = price_on(at.date(), resource, span.vm.vm_type, prices)
                if version is not None and version.price is not None:
                    line = (
                        name_by(span.vm, by),
                        span.vm.tenant,
                        span.vm.vm_type,
                        resource,
                        (at.year, at.month),
                        version.since,
                        version.vm_type,
                        version.resource,
                    )
                    lines[line] += Fraction(amount * us(end - at), us(timedelta(hours=1))) * (
                        Fraction(version.price)
                    )
            at = end
    cents: defaultdict[tuple[str | None, str], int] = defaultdict(int)
    for line, exact in lines.items():
        name, resource = line[0], line[3]  # type: ignore[index]  # as above
        cents[name, resource] += half_even(100 * exact)
    return dict(cents)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
def test_costs_are_what_the_events_and_prices_say(
    register: Registry, raw: RawSql, seed: int
) -> None:
    site = Site(register, raw, seed)
    site.live_for(25)
    events = all_events(register)
    register.prices.set_currency("EUR", actor=ACTOR)
    prices = []
    for resource in ("vcpus", "memory_mib", "vms", "borrowed:vcpus", "borrowed:vms"):
        for vm_type in (None, "large"):
            days = {site.draw.randint(0, 80) for _ in range(site.draw.randint(0, 3))}
            for day in sorted(days):
                drawn = site.draw.choice(("0.02", "0.000000000000001", "1234.5", "0", None))
                since = MARCH + timedelta(days=day)
                prices.append(set_price(register, resource, drawn, since, vm_type))

    def check() -> None:
        for _ in range(4):
            span = us(site.end - START)
            times = [START + timedelta(microseconds=site.draw.randint(0, span)) for _ in "fu"]
            since, until = min(times), max(times) + timedelta(microseconds=1)
            totals = set()
            for by in ("tenant", "group", "type", "label:team"):
                usage = register.usage.read(since=since, until=until, by=by)
                found = {
                    (each.name, each.resource): int(each.cost * 100)
                    for each in usage.items
                    if each.cost is not None
                }
                assert found == expected_cents(site, events, since, until, by, prices), by
                assert sum(found.values()) == int((usage.cost or 0) * 100)
                if by != "label:team":
                    totals.add(usage.cost)
            assert len(totals) == 1

    check()
    while register.usage.add_ended():
        pass
    check()


# ---- one VM --------------------------------------------------------------------------------------


@pytest.fixture
def running(priced: Registry, raw: RawSql) -> Registry:
    """A VM of tenant a with one vCPU that runs since the first of February 2020."""
    (host,) = a_cluster(priced)
    (key,) = place(priced, add_request(priced), host).assignment_ids
    run_vm(priced, key)
    at = stored(datetime.combine(date(2020, 2, 1), datetime.min.time()))
    raw.run("UPDATE assignments SET created_at = ?, activated_at = ?", at, at)
    return priced


def cost(registry: Registry, since: datetime, until: datetime) -> Decimal | None:
    return registry.usage.read(since=since, until=until).cost


def test_a_price_splits_a_period_at_its_day(running: Registry) -> None:
    set_price(running, "vcpus", "1", date(2020, 3, 2))
    set_price(running, "vcpus", "2", date(2020, 3, 4))
    set_price(running, "vcpus", None, date(2020, 3, 6))

    assert cost(running, START, START + DAY) is None
    assert cost(running, START, START + 3 * DAY) == 48
    assert cost(running, START + 2.5 * DAY, START + 3.5 * DAY) == 12 + 24
    assert cost(running, START, START + 30 * DAY) == 2 * 24 + 2 * 48


def test_a_type_has_its_own_price_and_then_that_of_all_again(running: Registry) -> None:
    set_price(running, "vcpus", "1", date(2020, 1, 1))
    set_price(running, "vcpus", "0", MARCH, "small")
    set_price(running, "vcpus", None, date(2020, 3, 3), "small")

    assert cost(running, START, START + 2 * DAY) == 0
    assert cost(running, START, START + 3 * DAY) == 24


def test_months_are_of_utc_and_february_has_its_days(running: Registry) -> None:
    set_price(running, "vms", "1", date(2020, 1, 1))

    assert cost(running, START - 29 * DAY, START) == 29 * 24
    assert cost(running, START, START + 31 * DAY) == 31 * 24  # the clocks change on the 29th


def test_lines_end_with_the_month_so_months_add_up_to_a_year(running: Registry) -> None:
    set_price(running, "vms", "0.000001", date(2020, 1, 1))
    begins = [datetime(2020, month, 1, tzinfo=START.tzinfo) for month in range(2, 13)]

    months = [cost(running, since, until) for since, until in pairwise(begins)]

    assert Decimal("0.00") in {Decimal(0), *months}
    assert sum(each or 0 for each in months) == cost(running, begins[0], begins[-1])


def test_costs_have_the_places_of_the_currency(running: Registry) -> None:
    set_price(running, "vms", "0.0125", date(2020, 1, 1))
    shown = {}
    for name, digits in (("EUR", None), ("JPY", None), ("KWD", None), ("credits", 4)):
        running.prices.set_currency(name, minor_digits=digits, actor=ACTOR)
        usage = running.usage.read(since=START, until=START + timedelta(hours=1))
        shown[usage.currency] = str(usage.cost)

    assert shown == {"EUR": "0.01", "JPY": "0", "KWD": "0.012", "credits": "0.0125"}


def test_the_revisions_of_a_type_are_one_line(priced: Registry, raw: RawSql) -> None:
    (host,) = a_cluster(priced)
    add_vm_type(priced, "larger", vcpus=2)
    for vm_type in ("small", "larger"):
        request = add_request(priced, vm_type=vm_type)
        (key,) = place(priced, request, priced.hosts.get(host.name)).assignment_ids
        run_vm(priced, key)
    raw.run("UPDATE vm_types SET name = 'small', revision = 2 WHERE name = 'larger'")
    raw.run("UPDATE assignments SET created_at = ?, activated_at = ?", *[stored(START)] * 2)
    set_price(priced, "vms", "0.005", date(2020, 1, 1), "small")

    # Two lines of half a cent would cost nothing.
    assert cost(priced, START, START + timedelta(hours=1)) == Decimal("0.01")


@given(
    charged=st.integers(0, 10**24),
    price=st.decimals(0, 10**9, places=15),
    minor_digits=st.integers(0, 6),
)
@example(charged=3_600_000_000, price=Decimal("0.005"), minor_digits=2)
@example(charged=3_600_000_000, price=Decimal("0.015"), minor_digits=2)
def test_a_line_is_rounded_half_to_even(charged: int, price: Decimal, minor_digits: int) -> None:
    exact = Fraction(price) * charged * 10**minor_digits / 3_600_000_000

    assert line_cost(charged, price, minor_digits) == half_even(exact)


# ---- the list ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "price",
    [
        *("NaN", "sNaN", "Infinity", "-1", "-0.1", "1e999", "1e-999", "1000000001", "0e999999"),
        "1." + 16 * "1",
        "1." + 40 * "0" + "1",
    ],
)
def test_absurd_prices_are_refused(priced: Registry, price: str) -> None:
    with pytest.raises(InvalidError, match="price: found"):
        set_price(priced, "vcpus", price, MARCH)
    assert priced.prices.list().items == []


@pytest.mark.parametrize(
    "price", ["0", "1000000000", "0.000000000000001", "999999999.123456789012345"]
)
def test_prices_are_kept_to_the_last_digit(priced: Registry, price: str) -> None:
    set_price(priced, "vcpus", price + ("0" if "." in price else ".00"), MARCH)

    assert [format(each.price, "f") for each in priced.prices.list().items] == [price]


def test_what_is_not_known_has_no_price(priced: Registry) -> None:
    a_cluster(priced)
    with pytest.raises(UnknownNameError, match="resource 'gpu' not found"):
        set_price(priced, "gpu", "1", MARCH)
    with pytest.raises(UnknownNameError, match="VM type 'huge' not found"):
        set_price(priced, "vcpus", "1", MARCH, "huge")
    for day in (date(1999, 12, 31), date(2100, 1, 1)):
        with pytest.raises(InvalidError, match="since"):
            set_price(priced, "vcpus", "1", day)
    with pytest.raises(InvalidError, match="name"):
        priced.prices.set_currency("1 €", actor=ACTOR)


def test_prices_need_a_currency(register: Registry) -> None:
    with pytest.raises(ConflictError, match="fuga price currency"):
        set_price(register, "vcpus", "1", MARCH)


def test_a_day_has_one_version_which_can_be_removed(priced: Registry) -> None:
    set_price(priced, "vcpus", "1", MARCH)
    with pytest.raises(ConflictError, match="already"):
        set_price(priced, "vcpus", "2", MARCH)

    priced.prices.remove("vcpus", MARCH, actor=ACTOR)
    with pytest.raises(NotFoundError):
        priced.prices.remove("vcpus", MARCH, actor=ACTOR)
    set_price(priced, "vcpus", "2", MARCH)

    kinds = [(each.kind, each.data.get("price")) for each in all_events(priced)]
    assert kinds[-3:] == [("price_set", "1"), ("price_removed", "1"), ("price_set", "2")]


def test_a_price_without_a_day_holds_from_today(priced: Registry) -> None:
    made = priced.prices.set("vcpus", Decimal(1), actor=ACTOR)

    assert made.since == priced.now().date()


def test_of_two_operators_at_once_one_sets_the_price(priced: Registry) -> None:
    outcomes: list[str] = []
    both = threading.Barrier(2)

    def set_one(price: str) -> None:
        both.wait(10)
        try:
            set_price(priced, "vcpus", price, MARCH)
            outcomes.append("set")
        except ConflictError:
            outcomes.append("refused")

    threads = [threading.Thread(target=set_one, args=(price,)) for price in "12"]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)

    assert sorted(outcomes) == ["refused", "set"]
    assert len(priced.prices.list().items) == 1
