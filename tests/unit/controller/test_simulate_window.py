"""Times of the register center as they are typed for `fuga simulate --from-registry`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from controller.cli.errors import BadInputError
from controller.cli.recording import Window

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)


def window(since: str | None = None, until: str | None = None) -> tuple[datetime, datetime]:
    return Window(since=since, until=until, anonymous=False).times(NOW)


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (None, None, (datetime(2026, 11, 10, 12, tzinfo=UTC), NOW)),
        ("12h", "2h", (NOW.replace(hour=0), NOW.replace(hour=10))),
        ("2026-11-10T00:00Z", None, (datetime(2026, 11, 10, tzinfo=UTC), NOW)),
        ("2026-11-10", "2027-01-01", (datetime(2026, 11, 10, tzinfo=UTC), NOW)),
        ("2026-11-10T02:00+02:00", None, (datetime(2026, 11, 10, tzinfo=UTC), NOW)),
    ],
)
def test_times_are_so_long_ago_or_of_a_calendar(since, until, expected):
    assert window(since, until) == expected


@pytest.mark.parametrize(
    ("since", "until", "says"),
    [
        ("yesterday", None, "--since: found 'yesterday', wanted so long ago, as 7d"),
        (None, "7x", "--until: found '7x'"),
        ("1h", "2h", "--since is 2026-11-17T11:00:00.00:00, which is not before"),
    ],
)
def test_other_times_are_refused(since, until, says):
    with pytest.raises(BadInputError, match=says):
        window(since, until)
