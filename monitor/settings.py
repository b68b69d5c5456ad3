"""Settings of the cloud environment monitor."""

from __future__ import annotations

from pydantic import Field, PositiveFloat, PositiveInt

from service.settings import SharedSettings


class MonitorSettings(SharedSettings):
    """Read from `FUGA_*` and the file that `FUGA_CONFIG` names."""

    poll_interval_s: PositiveFloat = Field(
        10, description="No report of a host that answers gets older than this."
    )
    poll_deadline_s: PositiveFloat = Field(
        8, description="After it a look counts as missed and its child process is killed."
    )
    unreachable_after: PositiveInt = Field(
        3,
        description="Misses in a row that make a host unreachable; several monitors' looks at the "
        "same time are one.",
    )
    down_after: PositiveInt = Field(10, description="Misses in a row that make a host down.")
