"""Rolls over hosts: frozen values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from registry.lifecycle import HostAdmin, HostHealth, RollPhase, RollState


@dataclass(frozen=True, slots=True, kw_only=True)
class RollLimits:
    """How long a host of a roll may take, each in seconds."""

    empty_within_s: int = 14_400  #: limit for moving its VMs away
    run_within_s: int = 3600  #: limit for the command; the driver enforces it
    up_within_s: int = 900  #: limit until the host is up again


@dataclass(frozen=True, slots=True, kw_only=True)
class RollTarget:
    """A host that a roll may include."""

    id: UUID
    name: str
    admin: HostAdmin
    health: HostHealth


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRoll:
    """A roll to begin."""

    turns: Sequence[Sequence[UUID]]  #: hosts of one turn go at once
    at_once: int
    command: str  #: as it was typed; shown, and never run from here
    driver: str  #: the fuga that runs the command
    checked: int  #: number of turns that were planned in the dry run
    limits: RollLimits = RollLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Roll:
    """An operator's command that goes over hosts, some at once."""

    id: UUID
    state: RollState
    at_once: int
    checked: int  #: number of turns that were planned in the dry run
    command: str
    empty_within_s: int
    run_within_s: int
    up_within_s: int
    began_by: str
    began_at: datetime
    ended_at: datetime | None
    cancelled_by: str | None
    last_error: str | None
    driver: str
    driver_lease_until: datetime | None  #: no other process may drive it before; None: any may
    hosts: int
    done: int
    skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RollHost:
    """One host of a roll, and its phase."""

    turn: int
    host: str
    phase: RollPhase
    since: datetime
    #: administrative state before its turn, which is restored; None: not its turn yet
    admin_before: HostAdmin | None
    plan_id: UUID | None  #: plan of the moves away from the host
    error: str | None  #: why the host failed in its phase


@dataclass(frozen=True, slots=True, kw_only=True)
class RollStep:
    """A roll, and the hosts whose turn it is."""

    roll: Roll
    hosts: tuple[RollHost, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RollLease:
    """A roll and its driver's token."""

    roll: Roll
    token: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnd:
    """How the command ended on a host; without an error it succeeded."""

    host: str
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """The report of a roll's driver with each step."""

    begun: tuple[str, ...] = ()  #: hosts for which the driver now begins the command
    ended: tuple[CommandEnd, ...] = ()
    stop: str | None = None  #: why no further host begins
    leave: bool = False  #: whether the driver ends without waiting for running commands
