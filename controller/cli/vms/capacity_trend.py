"""`fuga capacity --trend`: capacity over time, and when it is full at the present growth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from controller.session.session import Session
from controller.terminal.columns import Column, field
from controller.terminal.output import echo, print_json, print_table

#: Periods up to this long are shown by the hour.
HOURLY_DAYS: Final = 2
SPARK_WIDTH: Final = 30
_BAR_WIDTH: Final = 12
_LEVELS: Final = "▁▂▃▄▅▆▇█"
_GAP: Final = "·"


def show_trend(
    session: Session, *, days: int, host_class: str | None, resource: str | None, now: datetime
) -> None:
    """Print the last days of each resource as a line, or of one as a table, and its trend."""
    step = "hour" if days <= HOURLY_DAYS else "day"
    since = (now.astimezone(UTC) - timedelta(days=days)).replace(minute=0, second=0, microsecond=0)
    if step == "day":
        since = since.replace(hour=0)
    chosen: Mapping[str, Any] = {"host_class": host_class, "resource": resource}
    trends = session.api.get("capacity/trends", days=days, **chosen)
    found = session.api.items("capacity/history", since=since.isoformat(), step=step, **chosen)
    points = list(found)
    if session.json:
        print_json({**trends, "items": points})
        return
    by_resource: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for point in points:
        by_resource[point["resource"]].append(point)
    times = _times(since, now, step)
    if resource is not None:
        _print_points(by_resource[resource], times, step)
    else:
        _print_sparklines(by_resource, times, days)
    for trend in trends["trends"]:
        echo(f"{trend['resource']}: {trend['text']}")
    if host_class is None and trends["classes"]:
        echo(f"classes of hosts (--class): {'; '.join(trends['classes'])}")


def _times(since: datetime, now: datetime, step: str) -> Sequence[datetime]:
    length = timedelta(hours=1) if step == "hour" else timedelta(days=1)
    return [since + place * length for place in range((now - since) // length + 1)]


def _print_points(
    points: Iterable[Mapping[str, Any]], times: Sequence[datetime], step: str
) -> None:
    """Print a line for each hour or day; those without samples have none."""
    found = {datetime.fromisoformat(point["at"]): point for point in points}
    form = "%Y-%m-%d %H:%M" if step == "hour" else "%Y-%m-%d"
    rows = [{"time": at.strftime(form), **found.get(at, {})} for at in times] if found else []
    columns = (
        field("time", f"{step} (UTC)"),
        _amount("in_service_mean", "in service"),
        _amount("committed_mean", "committed"),
        _amount("committed_max", "at most", spare=1),
        Column("", _bar),
        _amount("used_mean", "used", spare=2),
        _amount("waiting_mean", "waiting", spare=3),
    )
    print_table(columns, rows, empty="no history yet.")


def _amount(name: str, heading: str, *, spare: int = 0) -> Column:
    def value(row: Mapping[str, Any]) -> str | None:
        return None if row.get(name) is None else f"{row[name]:,}"

    return Column(heading, value, right=True, spare=spare)


def _bar(row: Mapping[str, Any]) -> str:
    """Return the committed part of what is in service as a bar; "-" without samples."""
    if not row.get("in_service_mean"):
        return "-"
    part = row["committed_mean"] / row["in_service_mean"]
    eighths = min(round(8 * _BAR_WIDTH * part), 8 * _BAR_WIDTH)
    bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
    return f"{bar:<{_BAR_WIDTH}} {100 * part:3.0f}%"


def _print_sparklines(
    by_resource: Mapping[str, Sequence[Mapping[str, Any]]], times: Sequence[datetime], days: int
) -> None:
    rows = [
        {"resource": name, "curve": sparkline(points, times), **points[-1]}
        for name, points in by_resource.items()
    ]
    columns = (
        field("resource"),
        field("curve", f"committed, {days} days"),
        _amount("committed_mean", "committed"),
        _amount("in_service_mean", "in service"),
    )
    print_table(columns, rows, empty="no history yet.")


def sparkline(points: Sequence[Mapping[str, Any]], times: Sequence[datetime]) -> str:
    """Return the committed amounts as a line of blocks, full at the largest amount in service.

    Times without samples are dots. Longer lines are shortened: a block is then a mean.
    """
    found = {datetime.fromisoformat(point["at"]): point["committed_mean"] for point in points}
    full = max((point["in_service_mean"] for point in points), default=0) or 1
    width = min(SPARK_WIDTH, len(times))
    line = ""
    for place in range(width):
        part = times[len(times) * place // width : len(times) * (place + 1) // width]
        amounts = [found[at] for at in part if at in found]
        mean = sum(amounts) / len(amounts) if amounts else 0.0
        level = min(int(len(_LEVELS) * mean / full), len(_LEVELS) - 1)
        line += _LEVELS[level] if amounts else _GAP
    return line
