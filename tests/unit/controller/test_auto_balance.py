"""The setting FUGA_BALANCE: what is refused at the start, and when it is within the hours."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from controller.auto_balance import BalanceRule
from controller.settings import ControllerSettings

GIVEN: dict[str, Any] = {"every_s": 3600, "least_gain": 0.01, "most_gib": 64}


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-07-01T{clock}:00+00:00").astimezone(UTC)


@pytest.mark.parametrize(
    ("hours", "zone", "open_at", "closed_at"),
    [
        (None, "UTC", ["00:00", "12:00"], []),
        ("01:00-05:00", "UTC", ["01:00", "04:59"], ["00:59", "05:00", "13:00"]),
        ("22:00-04:00", "UTC", ["22:00", "23:59", "00:00", "03:59"], ["04:00", "21:59"]),
        ("01:00-05:00", "Europe/Berlin", ["23:00", "02:59"], ["03:00", "22:59"]),
    ],
)
def test_hours_are_of_their_zone_and_may_span_midnight(
    hours: str | None, zone: str, open_at: list[str], closed_at: list[str]
) -> None:
    rule = BalanceRule(**GIVEN, hours=hours, zone=zone)

    assert [clock for clock in open_at if not rule.is_open(at(clock))] == []
    assert [clock for clock in closed_at if rule.is_open(at(clock))] == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"every_s": 5}, "every_s"),
        ({"least_gain": 0}, "least_gain"),
        ({"most_gib": -1}, "most_gib"),
        ({"hours": "1-5"}, "two different times such as 01:00-05:00"),
        ({"hours": "25:00-05:00"}, "two different times"),
        ({"hours": "05:00-05:00"}, "two different times"),
        ({"zone": "Mars/Olympus"}, "UTC, or a time zone that this machine knows"),
        ({"at": "night"}, "at"),
    ],
)
def test_what_is_no_rule_is_refused_at_the_start(
    wrong: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUGA_BALANCE", json.dumps(GIVEN | wrong))

    with pytest.raises(ValidationError, match="balance") as refused:
        ControllerSettings()

    assert said in str(refused.value)


def test_by_default_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUGA_BALANCE", raising=False)
    assert ControllerSettings().balance is None
    monkeypatch.setenv("FUGA_BALANCE", json.dumps(GIVEN))
    assert ControllerSettings().balance == BalanceRule(**GIVEN)
