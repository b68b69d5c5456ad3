"""Settings of an infrastructure manager."""

from __future__ import annotations

from pydantic import Field, PositiveFloat, PositiveInt

from registry.settings import SharedSettings


class WorkerSettings(SharedSettings):
    """Read from `FUGA_*` and the file that `FUGA_CONFIG` names."""

    concurrency: PositiveInt = Field(4, description="Threads, each doing one build or removal.")
    lanes_per_host: PositiveInt = Field(2, description="Threads that one host may occupy.")
    console_threads: PositiveInt = Field(
        8, description="Consoles that callers may type on through one worker at a time."
    )
    call_deadline_s: PositiveFloat = Field(
        60, description="After it the child process that talks to the host is killed."
    )
    look_deadline_s: PositiveFloat = Field(
        10, description="The same for the first look at a host, so that a hung one costs little."
    )
    upload_threads: PositiveInt | None = Field(
        None, description="Threads that may bring images to hosts; half of them by default."
    )
    upload_deadline_s: PositiveFloat = Field(
        3600, description="After it an upload is given up and tried again later."
    )
    upload_piece_deadline_s: PositiveFloat = Field(
        20, description="For each MiB of it, so that a hung host is told from a slow one."
    )
    lane_wait_s: PositiveFloat = Field(
        2, description="How long a thread waits for a lane of its host before it moves on."
    )
    stop_grace_s: PositiveFloat = Field(
        10, description="How long a worker told to end waits for a host that hangs."
    )
    silent_host_pause_s: PositiveFloat = Field(
        15, description="How long a host that did not answer gets no thread."
    )
