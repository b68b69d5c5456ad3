"""The sums by which budgets are measured are those of the lines of usage."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import Connection, select

from registry import Registry
from registry.db.engine import Database
from registry.db.schema import tenants
from registry.usage import budget_amounts
from registry.usage.budget_amounts import COST, Amounts, amounts_of_lines, read_amounts
from registry.usage.budget_use import month_of
from registry.usage.charged_parts import read_charged
from registry.usage.holding_times import SECOND, to_microseconds
from registry.usage.period_sums import Period
from registry.usage.usage import month_period
from tests.integration.usage.site import START, Site, as_time, us
from tests.integration.usage.test_costs import set_price
from tests.raw_sql import RawSql
from tests.register import ACTOR

HOUR = timedelta(hours=1)
MARCH = date(2020, 3, 1)


def without_zeros(amounts: Amounts) -> Mapping[tuple[UUID, str], int]:
    return {
        (tenant, name): number
        for tenant, mine in amounts.items()
        for name, number in mine.items()
        if number
    }


def compare(connection: Connection, at: datetime) -> set[str]:
    """Compare both forms at a time; return what there was."""
    keys = connection.scalars(select(tenants.c.id)).all()
    now = to_microseconds(at)
    since = month_period(month_of(at)).since
    periods = (Period(since, now), Period(now, now + 3600 * SECOND))

    found = read_amounts(connection, periods, keys, 2)()

    for period, amounts in zip(periods, found, strict=True):
        expected = without_zeros(amounts_of_lines(connection, period, keys, 2))
        assert without_zeros(amounts) == expected, (at, period)
    return {name for each in found for _, name in without_zeros(each)}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
def test_both_forms_have_the_same_sums_at_any_time(
    register: Registry, register_url: str, raw: RawSql, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(register_url)
    site = Site(register, raw, seed)
    site.live_for(30)
    register.prices.set_currency("EUR", actor=ACTOR)
    for resource in ("vcpus", "memory_mib", "vms", "borrowed:vcpus"):
        for vm_type in (None, "large"):
            for day in {site.draw.randint(0, 80) for _ in range(2)}:
                drawn = site.draw.choice(("0.02", "0.000000000000001", "1234.5", "0"))
                set_price(register, resource, drawn, MARCH + timedelta(days=day), vm_type)
    fast: list[int] = []
    read = read_charged
    monkeypatch.setattr(
        budget_amounts, "read_charged", lambda *given: fast.append(1) or read(*given)
    )

    def check(since: datetime) -> set[str]:
        span = us(site.end + 2 * timedelta(days=1) - since)
        times = [since + timedelta(microseconds=site.draw.randint(0, span)) for _ in range(3)]
        midnight = site.end.replace(hour=0, minute=0, second=0, microsecond=0)
        month = datetime.combine(month_of(site.end), datetime.min.time(), site.end.tzinfo)
        with database.read() as connection:
            return {
                name
                for at in (*times, midnight, midnight - HOUR / 2, month, month - HOUR / 3)
                for name in compare(connection, at)
            }

    names = check(START)
    assert {"vcpus", "vms", COST} <= names
    assert fast
    ends = raw.rows("SELECT released_at FROM assignments WHERE released_at IS NOT NULL ORDER BY 1")
    half = as_time(ends[len(ends) // 2]["released_at"])
    while register.usage.add_ended(by=half + timedelta(days=1)):
        pass
    fast.clear()
    check(half + timedelta(days=2))
    assert fast
    check(START)
