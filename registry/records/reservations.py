"""Reservations of room for a period: frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from registry.lifecycle import ReservationState

#: Why a reservation was refused.
RefusedFor = Literal["quota", "no_room", "no_host", "too_late", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationDecision:
    """The decision on a reservation, and its grounds."""

    message: str
    reason: RefusedFor | None = None  #: why it was refused; None if accepted
    fits: int | None = None  #: VMs that would have been accepted
    samples: int = 0  #: number of sampled futures of the running VMs; 0: none was assumed to end
    carried: int = 0  #: number of these samples that have room for all VMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Room for ``count`` VMs of one type that a tenant has from ``starts_at`` to ``ends_at``."""

    id: UUID
    name: str
    tenant: str
    vm_type: str
    count: int
    requires: tuple[str, ...]
    state: ReservationState
    holds_from: datetime  #: rounds keep its room from then on
    starts_at: datetime
    ends_at: datetime
    used: int  #: VMs of drawing requests that were placed
    waiting: int  #: VMs of such requests that were not placed yet
    left: int  #: VMs that requests may still draw
    held: int  #: VMs for which room is kept now
    missing: int  #: VMs for which the latest round found no room
    decision: ReservationDecision | None
    created_at: datetime
    decided_at: datetime | None
