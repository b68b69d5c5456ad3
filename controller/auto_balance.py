"""The auto-balance rule: the control centre requests and approves plans without an operator."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time
from typing import Annotated, Any, Final
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveFloat

_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


def _validate_hours(value: str) -> str:
    """Return the hours of the auto-balance rule, such as 01:00-05:00, if they are valid."""
    found = _HOURS.fullmatch(value)
    if found is None or found.group(1, 2) == found.group(3, 4):
        raise ValueError("two different times such as 01:00-05:00")
    return value


def _validate_time_zone(value: str) -> str:
    if value not in available_timezones():
        raise ValueError("UTC, or a time zone that this machine knows such as Europe/Berlin")
    return value


class BalanceRule(BaseModel):
    """When the control centre requests balance plans by itself, and which of them it approves."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    every_s: float = Field(ge=60, allow_inf_nan=False)  #: interval between two plans
    least_gain: PositiveFloat = Field(allow_inf_nan=False)  #: of a plan that is approved
    most_gib: PositiveFloat = Field(allow_inf_nan=False)  #: that one plan moves
    #: Hours of the day in which plans are created and waves begin; None: at any time.
    hours: Annotated[str, AfterValidator(_validate_hours)] | None = None
    zone: Annotated[str, AfterValidator(_validate_time_zone)] = "UTC"  #: of the hours

    def is_open(self, now: datetime) -> bool:
        """Return whether a time is within the hours of the rule; they may span midnight."""
        if self.hours is None:
            return True
        zone = UTC if self.zone == "UTC" else ZoneInfo(self.zone)
        first, last = (time.fromisoformat(each) for each in self.hours.split("-"))
        clock = now.astimezone(zone).time()
        if first < last:
            return first <= clock < last
        return clock >= first or clock < last

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of each balance plan that the rule requests."""
        return {"most_gib": self.most_gib}

    def objection(self, gain: float, moves: int) -> str | None:
        """Return the reason why the rule declines a decided plan, or None if it approves it."""
        if not moves:
            return "no useful move"
        if gain < self.least_gain:
            return f"it gains {gain:.6f}, less than least_gain, {self.least_gain:g}"
        return None
