"""Times and spans as people type and read them.

One rule for every option and every table: a time without a zone is a time of the reader's
clock, the local time of this machine or of ``TZ``; a printed time carries its zone. What is
printed with its date can be typed again. A command repeats a time in the zone that was typed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Final, Literal

from controller.terminal.errors import BadInputError

#: What `--help` says of every time.
RULE: Final = (
    "Times without a zone, such as 2026-11-10T08:00, are in the local time of this machine (TZ);"
    " end a time with Z or an offset such as -05:00 to name its zone. Printed times carry their"
    " zone."
)
_SPAN: Final = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS: Final[Mapping[str, int]] = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
#: The offset of a zone in ``TZ`` itself, as in ``EST5EDT``: the C library needs no file for it.
_POSIX_ZONE: Final = re.compile(r"(<[A-Za-z0-9+-]+>|[A-Za-z]{3,})[+-]?[0-9]{1,3}(:[0-9]{2})*.*")


def parse_ttl(given: str, option: str = "--ttl") -> int:
    """Parse a typed span of time, such as ``2h``, into seconds."""
    found = _SPAN.fullmatch(given)
    if found is None:
        raise BadInputError(
            f"{option}: found {given!r}, wanted a number and s, m, h or d, such as 2h"
        )
    return int(found[1]) * _SECONDS[found[2]]


def parse_end(given: str, option: str = "--expires") -> int | Literal["never"]:
    """Parse a typed end: a span such as ``90d`` into seconds, or ``never``."""
    return "never" if given == "never" else parse_ttl(given, option)


def parse_moment(given: str, option: str, now: datetime) -> datetime:
    """Parse a typed moment in the past: a span before now, or a time."""
    if (at := parse_time(given, option)) is not None:
        return at
    try:
        return now - timedelta(seconds=parse_ttl(given, option))
    except (BadInputError, OverflowError):
        raise BadInputError(
            f"{option}: found {given!r}, wanted a span before now such as 7d or 12h, or a time"
            " such as 2026-11-10T08:00 (local time) or 2026-11-10T00:00Z"
        ) from None


def parse_start(given: str, option: str, now: datetime) -> datetime:
    """Parse a typed beginning: ``now``, a span from now, or a time."""
    if given == "now":
        return now
    if (at := parse_time(given, option)) is not None:
        return at
    try:
        return now + timedelta(seconds=parse_ttl(given.removeprefix("+"), option))
    except (BadInputError, OverflowError):
        raise BadInputError(
            f"{option}: found {given!r}, wanted now, a span from now such as 2h, or a time such as"
            " 2026-11-10T08:00 (local time) or 2026-11-10T08:00Z"
        ) from None


def parse_time(given: str, option: str) -> datetime | None:
    """Parse an ISO 8601 time into UTC; return None if it is invalid or out of range.

    Raises
    ------
    BadInputError
        If it has no zone and the local clock shows it never or twice, or is unknown.
    """
    try:
        at = datetime.fromisoformat(given)
        if at.tzinfo is not None:
            return at.astimezone(UTC)
        readings = sorted({at.replace(fold=fold).astimezone().astimezone(UTC) for fold in (0, 1)})
    except (ValueError, OverflowError, OSError):  # the last two at the ends of the calendar
        return None
    if (unknown := _unknown_zone()) is not None:
        raise BadInputError(
            f"{option}: {given} has no zone, and TZ is {unknown!r}, a time zone that this machine"
            f" does not know; name the zone, such as {at.isoformat(timespec='minutes')}Z"
        )
    if len(readings) == 1:
        return readings[0]
    first, second = (each.astimezone() for each in readings)
    is_shown = first.replace(tzinfo=None) == at
    raise BadInputError(
        f"{option}: {given} {'comes twice' if is_shown else 'does not exist'} in the local time of"
        f" this machine, because clocks change then; type {_typed_form(first)} or"
        f" {_typed_form(second)}"
    )


def typed_zone(given: str | None) -> tzinfo | None:
    """Return the zone of a typed time; None, which is that of the local clock, if it names none."""
    try:
        return datetime.fromisoformat(given).tzinfo if given else None
    except ValueError:  # a span
        return None


def clock(value: object, zone: tzinfo | None = None) -> str:
    """Return an API time with its zone, to the second; today without the date.

    It is in ``zone``, or else on the local clock. The zone is shown as its offset, as
    abbreviations such as CST or IST mean several.
    """
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        return "-"
    at = value.astimezone(zone)
    if at.date() == datetime.now(UTC).astimezone(zone).date():
        return _abbreviate_utc(at.timetz().isoformat(timespec="seconds"))
    return _abbreviate_utc(at.isoformat(sep=" ", timespec="seconds"))


def time_since(value: object) -> str:
    """Return how long ago an API time was, as text."""
    if not isinstance(value, str):
        return "-"
    return duration_text(
        max(0.0, (datetime.now(UTC) - datetime.fromisoformat(value)).total_seconds())
    )


def time_until(value: object) -> str:
    """Return how long it is until an API time, as text."""
    if not isinstance(value, str):
        return "-"
    seconds = (datetime.fromisoformat(value) - datetime.now(UTC)).total_seconds()
    return duration_text(max(0.0, seconds))


def duration_text(seconds: float) -> str:
    """Return a duration as text, in the largest unit of which it has at least two."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _typed_form(at: datetime) -> str:
    return _abbreviate_utc(at.isoformat(timespec="seconds" if at.second else "minutes"))


def _abbreviate_utc(text: str) -> str:
    return f"{text.removesuffix('+00:00')}Z" if text.endswith("+00:00") else text


def _unknown_zone() -> str | None:
    """Return the zone in ``TZ`` if the C library does not know it and uses UTC instead."""
    zone = os.environ.get("TZ", "").removeprefix(":")
    if not zone or _POSIX_ZONE.fullmatch(zone) or zone == "UTC":
        return None
    from zoneinfo import TZPATH  # noqa: PLC0415 - seldom needed

    folders = [os.environ.get("TZDIR"), *TZPATH]
    known = any(Path(folder, zone).is_file() for folder in folders if folder)
    return None if known else zone
