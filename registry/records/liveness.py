"""Liveness of control centres, workers and monitors: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from registry.records.rounds import Lease, SlotLoopStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardProcess:
    """A registered process, with its last heartbeat and its trouble."""

    kind: str  #: control, monitor or worker
    name: str
    started_at: datetime
    heartbeat_at: datetime
    trouble: str | None
    release: str | None  #: version and commit; None: a process of before these were noted


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """The settings of a live process."""

    kind: str  #: control, monitor or worker
    name: str
    settings: Mapping[str, str | None]  #: in words, by name; of a secret only that it is set


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsHeard:
    """Numbers of active hosts and of those that are up, with the oldest of their last polls."""

    active: int
    up: int
    longest_silent_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStep:
    """A step of the database's clock: when it was detected, and its minimum size."""

    at: datetime  #: on the clock as it is since
    back_s: float = 0.0
    ahead_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """The liveness of control centres, workers and monitors at one time."""

    now: datetime
    lease: Lease | None
    slot_loop: SlotLoopStatus
    last_round: int | None
    last_round_at: datetime | None  #: start of its slot
    processes: tuple[HeardProcess, ...]
    hosts: HostsHeard
    oldest_reserved_at: datetime | None  #: of what is placed and no worker began to build
    clock_ahead_s: float  #: of the newest heartbeat or poll: how far it lies ahead of now
    clock_step: ClockStep | None  #: the last one, if it was noticed within a day
