"""How fast committed amounts grow, and when capacity is full at that rate."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

import numpy as np

from placement.model.arrays import FloatArray
from registry.capacity import CapacityPoint

#: Two whole weeks: within fewer days the days of the week look like a trend.
MIN_DAYS: Final = 14
#: A day counts if it has this many samples: half of its minutes.
MIN_SAMPLES: Final = 720
#: A rate is continued for at most this many times as long as it was measured.
REACH: Final = 2
_CONFIDENCE: Final = 0.95
#: Residuals are rounding errors if their squares are at most this part of those of the amounts.
_ROUNDING: Final = 1e-20

Outlook = Literal["too_short", "unclear", "shrinks", "grows", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityTrend:
    """The trend of the committed amount of a resource, from the means of whole days (UTC)."""

    resource: str
    outlook: Outlook
    days: int  #: whole days of the period that have at least half of their samples
    days_needed: int
    committed: int | None  #: mean of the last of these days; None without one
    in_service: int | None
    per_day: float | None  #: growth; None if there are too few days
    #: the interval that has it with a probability of 95 %; None if the days say too little
    per_day_low: float | None
    per_day_high: float | None
    full_in_days: float | None  #: after the last day; None if it does not grow, or later
    full_in_days_low: float | None
    full_in_days_high: float | None  #: None if it may be later than `reach_days`
    reach_days: int  #: how far ahead the rate is continued
    text: str = ""  #: the trend as a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityTrends:
    """Trends of a class of hosts, or of the site."""

    host_class: str | None
    classes: tuple[str, ...]  #: all classes with a history
    trends: tuple[CapacityTrend, ...]


def capacity_trends(
    points: Sequence[CapacityPoint], today: datetime, *, what: str = "the site"
) -> tuple[CapacityTrend, ...]:
    """Return the trend of each resource from its days before today; sentences say ``what``."""
    days: defaultdict[str, list[CapacityPoint]] = defaultdict(list)
    for point in points:
        of_resource = days[point.resource]
        if point.samples >= MIN_SAMPLES and point.at.date() < today.date():
            of_resource.append(point)
    trends = (_trend(resource, of_resource) for resource, of_resource in days.items())
    return tuple(replace(trend, text=trend_text(trend, what)) for trend in trends)


def _trend(resource: str, days: Sequence[CapacityPoint]) -> CapacityTrend:
    last = days[-1] if days else None
    span = (days[-1].at - days[0].at).days + 1 if days else 0
    low = rate = high = None
    if len(days) >= MIN_DAYS:
        at = np.array([(day.at - days[0].at).days for day in days], dtype=np.float64)
        amounts = np.array([day.committed_mean for day in days], dtype=np.float64)
        rate, half = growth(at, amounts)
        if math.isfinite(half):
            low, high = rate - half, rate + half
    outlook = _outlook(last, rate, low, high)
    room = last.in_service_mean - last.committed_mean if last is not None else 0
    grows = outlook == "grows"
    return CapacityTrend(
        resource=resource,
        outlook=outlook,
        days=len(days),
        days_needed=MIN_DAYS,
        committed=None if last is None else last.committed_mean,
        in_service=None if last is None else last.in_service_mean,
        per_day=rate,
        per_day_low=low,
        per_day_high=high,
        full_in_days=_days_until(room, rate, REACH * span) if grows else None,
        full_in_days_low=_days_until(room, high, REACH * span) if grows else None,
        full_in_days_high=_days_until(room, low, REACH * span) if grows else None,
        reach_days=REACH * span,
    )


def _outlook(
    last: CapacityPoint | None, rate: float | None, low: float | None, high: float | None
) -> Outlook:
    if last is None or rate is None:
        return "too_short"
    if low is None or high is None or low <= 0 <= high:
        return "unclear"
    if high < 0:
        return "shrinks"
    return "grows" if last.committed_mean < last.in_service_mean else "full"


def _days_until(room: int, rate: float | None, reach: int) -> float | None:
    """Return in how many days a growing amount fills the room; None: later than ``reach``."""
    found = math.inf if rate is None else room / rate
    return found if found <= reach else None


def growth(at: FloatArray, amounts: FloatArray) -> tuple[float, float]:
    """Return the growth per day, and half of its 95 % interval.

    Parameters
    ----------
    at, amounts : ndarray of float64, shape (D,)
        Days, counted from any day, and amounts on these days; D is at least 3.

    Notes
    -----
    A least-squares line. What was committed one day is mostly committed on the next, so the
    residuals of the days are not independent. Their correlation r reduces the number of days that
    count to D (1 - r) / (1 + r) (Santer et al., J. Geophys. Res. 105, 2000).
    """
    from scipy.special import stdtrit  # noqa: PLC0415 - this query alone needs it

    days, rest = at - at.mean(), amounts - amounts.mean()
    spread = float(days @ days)
    rate = float(days @ rest) / spread
    residuals = rest - rate * days
    squares = float(residuals @ residuals)
    if squares <= _ROUNDING * float(amounts @ amounts):
        return rate, 0.0
    correlation = min(max(float(residuals[1:] @ residuals[:-1]) / squares, 0.0), 0.99)
    independent = len(at) * (1 - correlation) / (1 + correlation)
    if independent <= 3:
        return rate, math.inf
    error = math.sqrt(squares / (independent - 2) / spread)
    return rate, float(stdtrit(independent - 2, (1 + _CONFIDENCE) / 2)) * error


def trend_text(trend: CapacityTrend, what: str) -> str:
    """Return the trend of a resource as a sentence."""
    rate, low, high = trend.per_day, trend.per_day_low, trend.per_day_high
    if rate is None:
        return f"the history is too short for a trend ({trend.days} of {MIN_DAYS} days)"
    if low is None or high is None:
        return "no clear trend"
    match trend.outlook:
        case "unclear" if low == high:
            return "committed does not change"
        case "unclear":
            return f"no clear trend ({_interval(low, high)} a day)"
        case "shrinks":
            return f"committed shrinks by {_number(-rate)} a day ({_interval(-high, -low)})"
    grows = f"committed grows by {_number(rate)} a day ({_interval(low, high)})"
    return f"{grows}; {_end_text(trend, what)}"


def _end_text(trend: CapacityTrend, what: str) -> str:
    """Return when a growing amount fills what is in service."""
    if trend.outlook == "full":
        return f"{what} is full"
    if trend.full_in_days is None or trend.full_in_days_low is None:
        return f"at this rate {what} is not full within {trend.reach_days} days"
    last = trend.full_in_days_high
    until = f"more than {trend.reach_days}" if last is None else f"{last:.0f}"
    days = f"{trend.full_in_days:.0f} days ({trend.full_in_days_low:.0f} to {until})"
    return f"at this rate {what} is full in {days}"


def _interval(low: float, high: float) -> str:
    return f"95 %: {_number(low)} to {_number(high)}"


def _number(amount: float) -> str:
    """Return an amount with thousands separated, and two digits if it is small."""
    return f"{amount:,.0f}" if abs(amount) >= 10 else f"{amount:.2g}"
