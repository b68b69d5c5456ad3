"""Print what the measuring of budgets takes, as a ratio to one pass over what it reads.

    python -m benchmarks.site.budgets [--sizes 2500,5000,10000] [--prices 3]

PostgreSQL is a server of its own. Each tenant has a budget, in turns of costs and of vCPU hours,
ten VMs run for each, and a group has a budget for all tenants. The time is the last hour of a month
of which each tenant has sums of each day for two types; the prices change on so many days of that
month. "pass" is SQL that reads each row once and adds it up: amounts of assignments and sums of days
by tenant and resource. "measure" is a minute's work of the control centre: its processor time is
without PostgreSQL's. "first" is that of a process that has just started.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import psycopg

from benchmarks.kit import a_register, by_clock, parser, unless
from benchmarks.registered import connected, load, run_what_was_placed, tidy
from registry import Registry
from tests.register import ACTOR, add_group
from tests.servers.postgres import why_not

VMS_PER_TENANT: Final = 10
VMS_PER_HOST: Final = 50
REPEATS: Final = 3
PRICES: Final = {"vcpus": "0.02", "memory_mib": "0.0000048828125", "disk_gib": "0.0001"}
_BEGIN: Final = "UPDATE assignments SET created_at = %(at)s, activated_at = %(at)s"
_DAYS: Final = """
    INSERT INTO daily_usage SELECT tenants.id, days.day::date, types.id, resources.name,
        (1000 * random())::int, 0, (1000 * random())::int, 0
    FROM tenants, generate_series(%(since)s::date, %(until)s::date - 1, interval '1 day') days (day),
        (SELECT id FROM vm_types ORDER BY name LIMIT 2) types,
        (VALUES ('vms'), ('vcpus'), ('memory_mib'), ('disk_gib')) resources (name)
    WHERE NOT tenants.is_group
"""
_BUDGETS: Final = """
    INSERT INTO budgets (tenant_id, resource, amount, warn_at)
    SELECT id, CASE WHEN row_number() OVER (ORDER BY name) % 2 = 0 THEN 'cost' ELSE 'vcpus' END,
        100000, 80 FROM tenants
"""
_PASS: Final = """
    SELECT tenant_id, resource, sum(amount) FROM assignments
    JOIN assignment_resources ON assignment_id = id WHERE state <> 'released' GROUP BY 1, 2
    UNION ALL
    SELECT tenant_id, resource, sum(charged_s) FROM daily_usage WHERE day >= %(since)s GROUP BY 1, 2
"""


def fill(url: str, tenants: int, prices: int, at: datetime) -> None:
    """Fill a database with a site whose month ends an hour after a time."""
    loaded = load(
        url,
        hosts=max(50, VMS_PER_TENANT * tenants // VMS_PER_HOST),
        running=VMS_PER_TENANT * tenants,
        larger=2 * VMS_PER_HOST // 8,
        tenants=tenants,
    )
    run_what_was_placed(loaded)
    registry = Registry.connect(url)
    add_group(registry, "everything")
    registry.prices.set_currency("EUR", actor=ACTOR)
    month = at.date().replace(day=1)
    for change in range(prices):
        day = month + timedelta(days=change * 28 // prices)
        for resource, price in PRICES.items():
            amount = Decimal(price) * (change + 1)
            registry.prices.set(resource, amount, since=day, actor=ACTOR)
    registry.close()
    with connected(url) as connection:
        connection.execute(_BEGIN, {"at": at - timedelta(days=1)})
        group = "UPDATE tenants SET parent_id = (SELECT id FROM tenants WHERE is_group)"
        connection.execute(group + " WHERE NOT is_group")
        connection.execute(_DAYS, {"since": month, "until": at.date()})
        connection.execute(_BUDGETS)
    tidy(url)


def read_once(connection: psycopg.Connection[Any], month: date) -> None:
    """Read each row once and add up, as SQL does it best."""
    connection.execute(_PASS, {"since": month}).fetchall()


@unless(why_not)
def main(argv: Sequence[str] | None = None) -> None:
    given = parser(__doc__, sizes=[2_500, 5_000, 10_000], prices=3).parse_args(argv)
    print(
        f"{'budgets':>8}{'VMs':>9}{'pass s':>8}{'first s':>9}{'measure s':>11}{'ratio':>7}"
        f"{'processor s':>13}"
    )
    for tenants in given.sizes:
        with a_register() as (_, url):
            registry = Registry.connect(url)
            month = registry.now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
            at = month - timedelta(hours=1)
            fill(url, tenants, given.prices, at)
            with connected(url) as connection:
                once = lambda: read_once(connection, at.date().replace(day=1))  # noqa: E731
                _, pass_s = by_clock(once, repeats=REPEATS)
            _, first_s = by_clock(lambda: registry.budgets.measure(by=at))
            minutes = iter(range(1, REPEATS + 1))
            cpu_s = time.process_time()
            _, measure_s = by_clock(
                lambda: registry.budgets.measure(by=at + timedelta(minutes=next(minutes))),
                repeats=REPEATS,
            )
            cpu_s = (time.process_time() - cpu_s) / REPEATS
            registry.close()
        print(
            f"{tenants + 1:>8,}{VMS_PER_TENANT * tenants:>9,}{pass_s:>8.2f}{first_s:>9.2f}"
            f"{measure_s:>11.2f}{measure_s / pass_s:>7.1f}{cpu_s:>13.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
