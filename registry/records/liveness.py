"""Liveness of control centres, workers and monitors: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from registry.lifecycle import SlotLoopState


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A right to act alone until it expires, by the database's clock."""

    name: str
    holder: str
    epoch: int
    expires_at: datetime
    held_since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLoopStatus:
    """Whether the slot loop runs or is paused, and by whom."""

    state: SlotLoopState
    reason: str | None
    changed_by: str | None
    changed_at: datetime | None  #: None if it was never paused
    last_slot_at: datetime | None = None  #: start of the last slot that was decided
    slot_length_s: float | None = None  #: length of that slot


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessHeartbeat:
    """A registered process, with its last heartbeat and its trouble."""

    kind: str  #: control, monitor or worker
    name: str
    started_at: datetime
    heartbeat_at: datetime
    trouble: str | None
    release: str | None  #: version and commit of its code; None for processes of old releases


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """The settings of a live process."""

    kind: str  #: control, monitor or worker
    name: str
    #: settings by name, as text; of a secret only whether it is set
    settings: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPollSummary:
    """Numbers of active hosts and of those that are up, with the oldest of their last polls."""

    active: int
    up: int
    longest_silent_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStep:
    """A step of the database's clock: when it was detected, and its minimum size."""

    at: datetime  #: time of the detection, by the present clock
    back_s: float = 0.0
    ahead_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """The liveness of control centres, workers and monitors at one time."""

    now: datetime
    lease: Lease | None
    slot_loop: SlotLoopStatus
    last_round: int | None
    last_round_at: datetime | None  #: start of the last round's slot
    processes: tuple[ProcessHeartbeat, ...]
    hosts: HostPollSummary
    #: age of the oldest placement that no worker has begun to build
    oldest_reserved_at: datetime | None
    clock_ahead_s: float  #: how far the newest heartbeat or poll lies ahead of now
    clock_step: ClockStep | None  #: the last one, if it was noticed within a day
