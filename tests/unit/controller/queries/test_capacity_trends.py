"""How fast committed amounts grow: a rate with its interval, or none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from controller.cli.vms.capacity_trend import sparkline
from controller.queries.capacity_trends import MIN_SAMPLES, CapacityTrend, capacity_trends, growth
from registry.capacity import CapacityPoint

TODAY = datetime(2020, 3, 31, tzinfo=UTC)
IN_SERVICE = 1000


def a_day(ago: int, committed: int, samples: int = 1440) -> CapacityPoint:
    return CapacityPoint(
        at=TODAY - timedelta(days=ago),
        resource="vcpus",
        samples=samples,
        capacity_mean=IN_SERVICE,
        capacity_max=IN_SERVICE,
        in_service_mean=IN_SERVICE,
        in_service_max=IN_SERVICE,
        committed_mean=committed,
        committed_max=committed,
        used_mean=None,
        used_max=None,
        waiting_mean=0,
        waiting_max=0,
    )


def trend_of(amounts: Sequence[int]) -> CapacityTrend:
    """Return the trend of the last days, the oldest first."""
    days = [a_day(len(amounts) - place, amount) for place, amount in enumerate(amounts)]
    (found,) = capacity_trends(days, TODAY)
    return found


@pytest.mark.parametrize(
    ("amounts", "text"),
    [
        pytest.param(
            [500] * 13, "the history is too short for a trend (13 of 14 days)", id="too short"
        ),
        pytest.param([500] * 14, "committed does not change", id="constant"),
        pytest.param(
            range(500, 640, 10),
            "committed grows by 10 a day (95 %: 10 to 10); at this rate the site is not full"
            " within 28 days",
            id="later than twice the days",
        ),
        pytest.param(
            range(500, 800, 10),
            "committed grows by 10 a day (95 %: 10 to 10); at this rate the site is full in"
            " 21 days (21 to 21)",
            id="grows",
        ),
        pytest.param(
            range(1100, 800, -10), "committed shrinks by 10 a day (95 %: 10 to 10)", id="shrinks"
        ),
        pytest.param(
            range(860, 1160, 10),
            "committed grows by 10 a day (95 %: 10 to 10); the site is full",
            id="full",
        ),
    ],
)
def test_a_trend_is_a_sentence(amounts: Sequence[int], text: str) -> None:
    assert trend_of(amounts).text == text


def test_a_wave_of_a_week_is_no_trend() -> None:
    week = (0, 90, 100, 110, 90, 10, 0)

    assert trend_of([500 + week[day % 7] for day in range(28)]).outlook == "unclear"
    assert trend_of([500 + 8 * day + week[day % 7] for day in range(28)]).outlook == "grows"


def test_days_with_few_samples_and_today_do_not_count() -> None:
    days = [a_day(ago, 500) for ago in range(20, 0, -1)]
    days[3] = a_day(17, 5, MIN_SAMPLES - 1)

    (found,) = capacity_trends([*days, a_day(0, 10)], TODAY)

    assert (found.days, found.per_day) == (19, 0)


def correlated(draw: np.random.Generator, days: int, memory: float) -> Sequence[float]:
    """Return noise of which each day keeps a part of the day before."""
    found = [draw.normal()]
    for _ in range(days - 1):
        found.append(memory * found[-1] + math.sqrt(1 - memory**2) * draw.normal())
    return found


@pytest.mark.parametrize(("memory", "covered"), [(0.0, 0.93), (0.5, 0.88)])
def test_the_interval_mostly_has_the_rate(memory: float, covered: float) -> None:
    """Days that resemble the day before make the interval wider, so that it still holds."""
    draw, days = np.random.default_rng(7), 60
    hits = 0
    for _ in range(300):
        noise = np.array(correlated(draw, days, memory))
        rate, half = growth(np.arange(days, dtype=np.float64), 100 + 2.0 * np.arange(days) + noise)
        hits += abs(rate - 2.0) <= half
    assert hits / 300 >= covered


def test_a_line_has_dots_for_gaps_and_is_at_most_30_wide() -> None:
    times = [TODAY - timedelta(days=ago) for ago in range(4, 0, -1)]
    point: Callable[[int, int], dict[str, object]] = lambda place, amount: {  # noqa: E731
        "at": times[place].isoformat(),
        "committed_mean": amount,
        "in_service_mean": 80,
    }
    points = [point(0, 0), point(1, 40), point(3, 80)]

    assert sparkline(points, times) == "▁▅·█"
    assert len(sparkline(points, [TODAY - timedelta(days=ago) for ago in range(731, 0, -1)])) == 30
