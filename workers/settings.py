"""Settings of an infrastructure manager."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt, field_validator
from pydantic_settings import NoDecode

from registry.work import WorkQueue
from service.settings import SharedSettings


class WorkerSettings(SharedSettings):
    """Read from `FUGA_*` and the file that `FUGA_CONFIG` names."""

    concurrency: PositiveInt = Field(
        4,
        description="Threads for builds; as many more each for removals, for fences, and for"
        " power and consoles, so that none of these waits for another.",
    )
    queues: Annotated[frozenset[WorkQueue], NoDecode] = Field(
        frozenset(WorkQueue),
        description="What it works on: fence, urgent, remove, build, images; names with commas,"
        " all by default.",
    )
    lanes_per_host: PositiveInt = Field(
        2, description="Threads that one host may occupy; one more where its storage is not needed."
    )
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

    @field_validator("queues", mode="before")
    @classmethod
    def _names_with_commas(cls, names: object) -> object:
        found = names.split(",") if isinstance(names, str) else names
        if not isinstance(found, list):
            return found
        found = [each.strip() if isinstance(each, str) else each for each in found]
        known = list(WorkQueue)
        unknown = [each for each in found if each not in known]
        if unknown or not found:
            raise ValueError(f"{', '.join(known)} are known, one of them at least")
        return found

    @property
    def threads(self) -> dict[WorkQueue, int]:
        """Return how many threads each of its queues may occupy, the most urgent first."""
        uploads = self.upload_threads or max(1, self.concurrency // 2)
        return {
            queue: uploads if queue is WorkQueue.IMAGES else self.concurrency
            for queue in WorkQueue
            if queue in self.queues
        }
