"""Settings of the cloud environment monitor."""

from __future__ import annotations

from pydantic import Field, PositiveFloat, PositiveInt

from service.settings import SharedSettings


class MonitorSettings(SharedSettings):
    """Read from `FUGA_*` and the file that `FUGA_CONFIG` names."""

    poll_interval_s: PositiveFloat = Field(
        10, description="Maximum age of the report of a host that answers."
    )
    poll_deadline_s: PositiveFloat = Field(
        8, description="Time after which a poll counts as missed and its child process is killed."
    )
    unreachable_after: PositiveInt = Field(
        3,
        description="Missed polls in a row that make a host unreachable; several monitors' polls"
        " at the "
        "same time count once.",
    )
    down_after: PositiveInt = Field(10, description="Missed polls in a row that make a host down.")
