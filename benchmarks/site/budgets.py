"""Print what the measuring of budgets takes, as a ratio to one pass over what it reads.

    python -m benchmarks.site.budgets [--sizes 2500,5000,10000] [--prices 1]

PostgreSQL is a server of its own. Each tenant has a budget, in turns of costs and of vCPU hours,
ten VMs run for each, and a group has a budget for all tenants. It is the last hour of a month, of
which each tenant has sums of each day for two types; prices hold from so many days of that month.
"pass" is SQL that reads each row once and adds it up: amounts of assignments and sums of days by
tenant and resource. "measure" is a minute's work of the control centre, "first" that of a process
that has just started; "here" is the processor time of "measure" without PostgreSQL's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

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
    FROM tenants,
        generate_series(%(since)s::date, %(until)s::date - 1, interval '1 day') days (day),
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


def time_site(url: str, tenants: int, prices: int) -> tuple[float, ...]:
    """Fill a database; return the times of a pass, of the first and of other measurements."""
    with closing(Registry.connect(url)) as registry:
        month = registry.now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        at = month - timedelta(hours=1)
        fill(url, tenants, prices, at)
        since = at.date().replace(day=1)
        with connected(url) as connection:
            _, pass_s = by_clock(
                lambda: connection.execute(_PASS, {"since": since}).fetchall(), repeats=REPEATS
            )
        minutes = iter(range(REPEATS + 1))

        def measure() -> int:
            return registry.budgets.measure(by=at + timedelta(minutes=next(minutes)))

        _, first_s = by_clock(measure)
        here_s = time.process_time()
        _, measure_s = by_clock(measure, repeats=REPEATS)
        here_s = (time.process_time() - here_s) / REPEATS
    return pass_s, first_s, measure_s, here_s


@unless(why_not)
def main(argv: Sequence[str] | None = None) -> None:
    given = parser(__doc__, sizes=[2_500, 5_000, 10_000], prices=1).parse_args(argv)
    print(
        f"{'budgets':>8}{'VMs':>9}{'pass s':>8}{'first s':>9}{'measure s':>11}{'ratio':>7}"
        f"{'here s':>8}"
    )
    for tenants in given.sizes:
        with a_register() as (_, url):
            pass_s, first_s, measure_s, here_s = time_site(url, tenants, given.prices)
        print(
            f"{tenants + 1:>8,}{VMS_PER_TENANT * tenants:>9,}{pass_s:>8.2f}{first_s:>9.2f}"
            f"{measure_s:>11.2f}{measure_s / pass_s:>7.1f}{here_s:>8.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
