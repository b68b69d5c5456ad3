"""Times as people type and read them: without a zone they are of the reader's clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from controller.cli.simulations.recording import RecordingWindow
from controller.cli.simulations.study_run import parse_calendar_time
from controller.terminal.errors import BadInputError
from controller.terminal.times import clock, parse_moment, parse_start, parse_time, typed_zone

NOW = datetime(2026, 11, 10, 12, tzinfo=UTC)
Zone = Callable[[str], None]


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Zone]:
    def choose(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield choose
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("name", "given", "utc"),
    [
        ("America/New_York", "2026-11-27T08:00", "2026-11-27T13:00"),
        ("America/New_York", "2026-11-27 08:00", "2026-11-27T13:00"),
        ("America/New_York", "2026-07-27T08:00", "2026-07-27T12:00"),
        ("America/New_York", "2026-11-27", "2026-11-27T05:00"),
        ("America/New_York", "2026-11-27T08:00Z", "2026-11-27T08:00"),
        ("America/New_York", "2026-11-27T08:00+01:00", "2026-11-27T07:00"),
        # Beside the hours that are left out or repeated nothing is in doubt.
        ("America/New_York", "2026-03-08T01:59", "2026-03-08T06:59"),
        ("America/New_York", "2026-03-08T03:00", "2026-03-08T07:00"),
        ("America/New_York", "2026-11-01T00:59", "2026-11-01T04:59"),
        ("America/New_York", "2026-11-01T02:00", "2026-11-01T07:00"),
        ("Asia/Kathmandu", "2026-11-27T08:00", "2026-11-27T02:15"),
        ("EST5EDT,M3.2.0,M11.1.0", "2026-11-27T08:00", "2026-11-27T13:00"),
        ("UTC", "2026-11-27T08:00", "2026-11-27T08:00"),
    ],
)
def test_every_option_reads_a_time_without_a_zone_on_the_readers_clock(
    zone: Zone, name: str, given: str, utc: str
) -> None:
    zone(name)
    at = datetime.fromisoformat(f"{utc}+00:00")

    assert parse_start(given, "--from", NOW) == at
    assert parse_moment(given, "--since", NOW) == at
    assert parse_calendar_time(given, "--began-at") == at.timestamp()
    later = datetime(2027, 1, 1, tzinfo=UTC)
    assert RecordingWindow(since=given, until=None, anonymous=False).times(later) == (at, later)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        (
            "America/New_York",
            "2026-03-08T02:30",
            "does not exist in the local time of this machine, because clocks change then; type"
            " 2026-03-08T01:30-05:00 or 2026-03-08T03:30-04:00",
        ),
        (
            "America/New_York",
            "2026-11-01T01:30",
            "comes twice in the local time of this machine, because clocks change then; type"
            " 2026-11-01T01:30-04:00 or 2026-11-01T01:30-05:00",
        ),
        ("Europe/London", "2026-10-25T01:00", "2026-10-25T01:00+01:00 or 2026-10-25T01:00Z"),
        ("Australia/Lord_Howe", "2026-10-04T02:15", " or 2026-10-04T02:45+11:00"),
        ("Pacific/Apia", "2011-12-30", "does not exist"),  # a day that was left out
        ("Africa/Cairo", "2026-04-24", "2026-04-23T23:00+02:00 or 2026-04-24T01:00+03:00"),
    ],
)
def test_a_time_that_the_clock_shows_never_or_twice_is_refused_with_both_readings(
    zone: Zone, name: str, given: str, said: str
) -> None:
    zone(name)

    with pytest.raises(BadInputError) as refused:
        parse_time(given, "--from")
    assert f"--from: {given} " in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["Amerika/New_York", ":Mars/Olympus", "nowhere"])
def test_an_unknown_zone_is_not_taken_for_utc(zone: Zone, name: str) -> None:
    zone(name)

    with pytest.raises(BadInputError, match="does not know; name the zone, such as 2026"):
        parse_time("2026-11-27T08:00", "--from")
    assert parse_time("2026-11-27T08:00Z", "--from") == datetime(2026, 11, 27, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("America/New_York", "2020-11-27 03:00:00-05:00"),
        ("Asia/Kolkata", "2020-11-27 13:30:00+05:30"),
        ("UTC", "2020-11-27 08:00:00Z"),
    ],
)
def test_a_printed_time_carries_its_zone_and_can_be_typed_again(
    zone: Zone, name: str, shown: str
) -> None:
    zone(name)

    assert clock("2020-11-27T08:00:00+00:00") == shown
    assert parse_time(shown, "--from") == datetime(2020, 11, 27, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("2020-11-27T03:00-05:00", "2020-11-27 03:00:00-05:00"),
        ("2020-11-27T08:00Z", "2020-11-27 08:00:00Z"),
        ("2020-11-27T13:30", "2020-11-27 13:30:00+05:30"),
        ("2h", "2020-11-27 13:30:00+05:30"),
        (None, "2020-11-27 13:30:00+05:30"),
    ],
)
def test_a_time_is_repeated_in_the_zone_that_was_typed(
    zone: Zone, typed: str | None, shown: str
) -> None:
    zone("Asia/Kolkata")

    assert clock("2020-11-27T08:00:00+00:00", typed_zone(typed)) == shown


def test_an_empty_window_is_refused_in_the_zones_that_were_typed(zone: Zone) -> None:
    zone("UTC")
    window = RecordingWindow(
        since="2020-11-27T08:00+01:00", until="2020-11-27T08:00+02:00", anonymous=False
    )

    with pytest.raises(BadInputError, match=r"08:00:00\+01:00 is not .* 08:00:00\+02:00"):
        window.times(NOW)


def test_a_time_of_today_stands_without_its_date_and_with_its_zone(zone: Zone) -> None:
    zone("America/New_York")

    today = datetime.now(UTC).astimezone()
    assert clock(today.isoformat()) == today.timetz().isoformat(timespec="seconds")
    assert clock(None) == "-"
