"""When a reservation begins and how long it is, as people write it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from controller.terminal.errors import BadInputError
from controller.terminal.times import parse_start, parse_ttl

NOW = datetime(2026, 11, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "begins"),
    [
        ("now", NOW),
        ("2h", NOW + timedelta(hours=2)),
        ("+2h", NOW + timedelta(hours=2)),
        ("2026-11-10T13:00Z", NOW + timedelta(hours=1)),
        ("2026-11-10T13:00+01:00", NOW),
        # An hour that a summer time leaves out is one of its offset.
        ("2026-03-29T02:30+01:00", datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),
    ],
)
def test_a_beginning_is_now_a_span_or_a_time(given: str, begins: datetime) -> None:
    assert parse_start(given, "--from", NOW) == begins


@pytest.mark.parametrize(
    "given",
    [
        *("", " ", "Now", "yesterday", "2", "h", "-2h", "++2h", "1.5h", "2h30m", "nan", "1e400s"),
        *("\u0662h", "\uff12h", "999999999d", "9999-12-31T23:59:59-14:00", "2026-13-01"),
        *("0001-01-01T00:00+14:00", "2026-11-10T25:00Z", "2026-11-10T08:00+24:00", "2h\n"),
    ],
)
def test_no_other_beginning_is_taken_and_what_is_wanted_is_told(given: str) -> None:
    with pytest.raises(BadInputError) as refused:
        parse_start(given, "--from", NOW)

    shown = str(refused.value)
    assert shown.startswith(f"--from: found {given!r}, wanted now, a span from now such as 2h")


@pytest.mark.parametrize(
    "given",
    ["", "2", "-2h", "+2h", "1.5h", "nan", "1e400", "inf", "\u0662h", "2h30m", "0x2h", "2 h"],
)
def test_no_other_length_is_taken(given: str) -> None:
    with pytest.raises(BadInputError) as refused:
        parse_ttl(given, "--for")

    assert str(refused.value).startswith(
        f"--for: found {given!r}, wanted a number and s, m, h or d"
    )
