"""Times of the register center as they are typed for `fuga simulate --from-registry`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from controller.cli.simulations.recording import RecordingWindow, deciding_settings
from controller.settings import ControllerSettings, ZonePolicy
from controller.terminal.errors import BadInputError
from registry.admin import PastDecision

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)


def window(since: str | None = None, until: str | None = None) -> tuple[datetime, datetime]:
    return RecordingWindow(since=since, until=until, anonymous=False).times(NOW)


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
        ("yesterday", None, "--since: found 'yesterday', wanted a span before now such as 7d"),
        (None, "7x", "--until: found '7x'"),
        ("1h", "2h", "--since .* is not before the end, "),
    ],
)
def test_other_times_are_refused(since, until, says):
    with pytest.raises(BadInputError, match=says):
        window(since, until)


SETTINGS = ControllerSettings(
    policy="slots",
    slot_length_s=30,
    zone_policies={"east": ZonePolicy(policy="best_fit", parameters={"overload": "none"})},
)
OF_SETTINGS = {"east": {"policy": "best_fit", "parameters": {"overload": "none"}}}


def test_without_a_round_settings_say_how_rounds_are_decided():
    shown = deciding_settings(None, SETTINGS)

    assert (shown.policy, shown.slot_length_s, shown.zone_policies) == ("slots", 30, OF_SETTINGS)
    assert shown.source == "the settings, because there is no round"


def test_where_inputs_are_purged_settings_say_who_decides_in_zones():
    newest = PastDecision(
        round=7,
        policy="fuga",
        parameters={"eta": 3},
        slot_length_s=60,
        budget_units=10,
        inputs=None,
        memory={"half_life_s": 7200, "horizon_s": 60},
    )

    shown = deciding_settings(newest, SETTINGS)

    assert (shown.policy, shown.parameters, shown.slot_length_s) == ("fuga", {"eta": 3}, 60)
    assert shown.fairness_memory_s == 7200
    assert shown.zone_policies == OF_SETTINGS
    assert shown.source == "round 7, zones from the settings because its inputs are purged"
