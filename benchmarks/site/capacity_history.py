"""Print what the history of capacity takes: its size in two years, and the time of a sample.

    python -m benchmarks.site.capacity_history [--hosts 12500] [--running 100000] [--classes 20]

PostgreSQL is a server of its own. Hosts have labels of that many classes, and reports of eight
domains each. The days are made up: commitment and use walk at random, so that every number
differs from the hour before; classes have four resources, two of them measured. The size is that
of the table with its index.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from benchmarks.kit import by_clock, parser, unless
from benchmarks.registered import ask, connected, load, run_what_was_placed, tidy
from registry import Registry, upgrade
from registry.capacity.packed_days import HOURS, Hour, pack_day
from tests.register import take_lease
from tests.servers.postgres import DURABLE, postgres_server, why_not

DAYS: Final = 731
#: What a class offers, and whether its use is measured.
OFFERED: Final = {
    "vcpus": (20_000, True),
    "memory_mib": (8_000_000, True),
    "disk_gib": (100_000, False),
    "gpus": (64, False),
}
WAITING: Final = 5_000
REPEATS: Final = 5
_LABELS: Final = """
    UPDATE hosts SET labels = jsonb_build_array('class=' || numbered.n %% %(classes)s)
    FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM hosts) numbered
    WHERE numbered.id = hosts.id
"""
_DOMAINS: Final = """
    UPDATE host_reports SET report = jsonb_set(report, '{domains}', (
        SELECT jsonb_agg(jsonb_build_object(
            'uuid', gen_random_uuid(), 'name', 'fuga-' || gen_random_uuid(), 'state', 'running',
            'vcpus', 2, 'memory_mib', 4096, 'assignment_id', gen_random_uuid(), 'generation', 1,
            'cpu_time_ns', 123456789012345, 'memory_used_mib', 3071, 'disk_gib', 20))
        FROM generate_series(1, 8)))
"""


@unless(why_not)
def main(argv: Sequence[str] | None = None) -> None:
    given = parser(__doc__, hosts=12_500, running=100_000, classes=20).parse_args(argv)
    with postgres_server(DURABLE, on_disk=True) as server, server.database() as url:
        upgrade(url)
        loaded = load(url, hosts=given.hosts, running=given.running)
        run_what_was_placed(loaded)
        ask(loaded, WAITING)
        with connected(url) as connection:
            connection.execute(_LABELS, {"classes": given.classes})
            connection.execute(_DOMAINS)
        fill(url, given.classes)
        tidy(url)
        with connected(url) as connection:
            query = "SELECT pg_total_relation_size('capacity_days'), count(*) FROM capacity_days"
            ((size, rows),) = connection.execute(query).fetchall()
        print(
            f"{given.classes} classes, {len(OFFERED)} resources, {DAYS} days: {rows} rows,", end=""
        )
        print(f" {size / 1e6:.1f} MB")
        time_calls(url)


def fill(url: str, classes: int) -> None:
    """Record the days before today of each class, and of the site."""
    today = Registry.connect(url).now().date()
    with connected(url) as connection:
        for class_id in range(classes + 1):
            rows = [
                (today - timedelta(days=DAYS - place), class_id, packed)
                for place, packed in enumerate(packed_days(random.Random(class_id)))
            ]
            with connection.cursor() as cursor:
                cursor.executemany("INSERT INTO capacity_days VALUES (%s, %s, %s)", rows)


def packed_days(draw: random.Random) -> Iterator[bytes]:
    """Yield days whose amounts walk at random, with a wave of a day."""
    part = {(name, what): 0.6 for name in OFFERED for what in ("committed", "used")}
    for _ in range(DAYS):
        day = {}
        for number in range(HOURS):
            levels = {}
            for name, (offered, is_measured) in OFFERED.items():
                levels |= {(name, what): (offered, offered) for what in ("capacity", "in_service")}
                for what in ("committed", "used") if is_measured else ("committed",):
                    step = part[name, what] + draw.gauss(0, 0.005)
                    part[name, what] = min(max(step, 0.1), 0.9)
                    wave = 1 + 0.05 * math.sin(number * math.tau / HOURS)
                    mean = round(offered * part[name, what] * wave)
                    levels[name, what] = (mean, round(mean * (1 + abs(draw.gauss(0, 0.01)))))
            day[number] = Hour(60, levels)
        yield pack_day(day)


def time_calls(url: str) -> None:
    """Print the shortest times of a sample and of reads."""
    registry = Registry.connect(url)
    history, lease, now = registry.capacity_history, take_lease(registry), registry.now()
    steps = iter(range(REPEATS))

    def sample() -> None:
        # Samples that are closer together than 30 seconds count once.
        history.sample(lease, by=now - timedelta(minutes=REPEATS - next(steps)))

    month, years = now - timedelta(days=30), now - timedelta(days=730)
    for name, call in (
        ("a sample", sample),
        ("a month of the site by hour", lambda: history.read(since=month)),
        ("two years of the site by day", lambda: history.read(since=years, by_day=True)),
    ):
        taken = min(by_clock(call)[1] for _ in range(REPEATS))
        print(f"{name:<32}{1000 * taken:>8.0f} ms", flush=True)
    registry.close()


if __name__ == "__main__":
    main()
