"""A made-up history of capacity: whole days of the site that grow, with a day that is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from registry.capacity.packed_days import HOURS, Hour, pack_day
from tests.raw_sql import RawSql

#: The amount in service, and the committed amount of a day that is so many days ago.
Growth = Mapping[str, tuple[int, Callable[[int], int]]]
SITE = 0
#: Slow growth of vCPUs with a wave of a week; memory that comes and goes.
GROWTH: Growth = {
    "vcpus": (1_600, lambda ago: 1_020 - 14 * ago + (9, 4, -3, -8, -5, 0, 3)[ago % 7]),
    "memory_mib": (4_000_000, lambda ago: 2_000_000 + 300_000 * (ago % 3)),
    "disk_gib": (40_000, lambda _: 21_000),
}


def record_days(
    raw: RawSql,
    now: datetime,
    *,
    days: int = 30,
    growth: Growth = GROWTH,
    without: frozenset[int] = frozenset({20}),
    class_id: int = SITE,
) -> None:
    """Record whole days before today, without some."""
    for ago in range(1, days + 1):
        if ago in without:
            continue
        levels: dict[tuple[str, str], tuple[int, int]] = {}
        for resource, (offered, committed) in growth.items():
            amount = committed(ago)
            levels |= {(resource, each): (offered, offered) for each in ("capacity", "in_service")}
            levels[resource, "committed"] = (amount, amount + 8)
            levels[resource, "waiting"] = (0, 16)
        levels["vcpus", "used"] = (levels["vcpus", "committed"][0] // 4,) * 2
        day = pack_day({hour: Hour(60, levels) for hour in range(HOURS)})
        raw.run(
            "INSERT INTO capacity_days (day, class_id, hours) VALUES (?, ?, ?)",
            (now - timedelta(days=ago)).date().isoformat(),
            class_id,
            day,
        )
