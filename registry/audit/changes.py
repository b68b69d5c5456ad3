"""Changes of state machines: each gives a row its new state, and the history its event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import Connection, Row

from registry.audit.events import event_row, record_events
from registry.lifecycle import (
    ASSIGNMENT_TRANSITIONS,
    CONSOLE_TRANSITIONS,
    COPY_TRANSITIONS,
    FENCE_TRANSITIONS,
    HOST_ADMIN_TRANSITIONS,
    HOST_HEALTH_TRANSITIONS,
    IMAGE_TRANSITIONS,
    MOVE_TRANSITIONS,
    PLAN_TRANSITIONS,
    POWER_TRANSITIONS,
    REQUEST_TRANSITIONS,
    RESERVATION_TRANSITIONS,
    ROLL_TRANSITIONS,
    SLOT_LOOP_TRANSITIONS,
    SPOT_TRANSITIONS,
    VM_DESIRED_TRANSITIONS,
    VM_OBSERVED_TRANSITIONS,
    VOLUME_TRANSITIONS,
    WHAT_IF_TRANSITIONS,
    AssignmentEvent,
    AssignmentState,
    ConsoleEvent,
    ConsoleState,
    CopyEvent,
    CopyState,
    FenceEvent,
    FenceState,
    HostAdmin,
    HostAdminEvent,
    HostHealth,
    HostHealthEvent,
    ImageEvent,
    ImageState,
    MoveEvent,
    MoveState,
    PlanEvent,
    PlanState,
    PowerEvent,
    PowerState,
    RequestEvent,
    RequestState,
    ReservationEvent,
    ReservationState,
    RollEvent,
    RollState,
    SlotLoopEvent,
    SlotLoopState,
    SpotEvent,
    SpotState,
    VmDesired,
    VmDesiredEvent,
    VmObserved,
    VmObservedEvent,
    VolumeEvent,
    VolumeState,
    WhatIfEvent,
    WhatIfState,
    next_state,
)

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[S]):
    """A step of a state machine, with the state before and after."""

    kind: str
    subject_type: str
    before: S
    after: S
    event: StrEnum

    @property
    def moved(self) -> bool:
        """Whether the change leads to another state."""
        return self.after != self.before

    def row(
        self,
        now: datetime,
        actor: str,
        subject_id: object,
        *,
        kind: str | None = None,
        **details: Any,
    ) -> dict[str, Any]:
        """Return the event row of this change; ``details`` are further arguments of `event_row`.

        ``kind`` replaces the machine's event kind.
        """
        change = (self.before, self.after)
        return event_row(
            now,
            actor,
            kind or self.kind,
            self.subject_type,
            subject_id,
            change=change,
            event=self.event,
            **details,
        )

    def record_event(
        self, connection: Connection, now: datetime, actor: str, subject_id: object, **details: Any
    ) -> None:
        """Append the event of this change of state to the history."""
        record_events(connection, [self.row(now, actor, subject_id, **details)])


class StateMachine(Generic[S, E]):
    """A state machine of `registry.lifecycle` that makes events of its steps."""

    def __init__(
        self, kind: str, subject_type: str, states: type[S], table: Mapping[tuple[S, E], S]
    ) -> None:
        self.kind = kind
        self.subject_type = subject_type
        self.states = states
        self.table = table

    def step(self, state: str, event: E) -> Change[S]:
        """Return the change from a stored state by an event, or raise `IllegalTransitionError`."""
        before = self.states(state)
        after = next_state(self.table, before, event)
        return Change(
            kind=self.kind, subject_type=self.subject_type, before=before, after=after, event=event
        )


def assignment_event_row(
    step: Change[AssignmentState],
    row: Row[Any],
    now: datetime,
    actor: str,
    *,
    reason: str | None = None,
) -> dict[str, Any]:
    """Return the event row of an assignment's change; ``row`` names its VM, tenant and host."""
    data = {"vm": str(row.vm_id), "host": row.host_name}
    return step.row(now, actor, row.id, tenant=row.tenant, reason=reason, data=data)


def vm_event_row(
    step: Change[VmObserved],
    row: Row[Any],
    now: datetime,
    actor: str,
    *,
    reason: str | None = None,
    kind: str | None = None,
) -> dict[str, Any]:
    """Return the event row of a change of a VM's observed state; ``row`` is its assignment's."""
    data = {"host": row.host_name, "assignment": str(row.id)}
    return step.row(now, actor, row.vm_id, kind=kind, tenant=row.tenant, reason=reason, data=data)


ASSIGNMENT: Final[StateMachine[AssignmentState, AssignmentEvent]] = StateMachine(
    "assignment_state", "assignment", AssignmentState, ASSIGNMENT_TRANSITIONS
)
CONSOLE: Final[StateMachine[ConsoleState, ConsoleEvent]] = StateMachine(
    "console_state", "vm", ConsoleState, CONSOLE_TRANSITIONS
)
COPY: Final[StateMachine[CopyState, CopyEvent]] = StateMachine(
    "image_copy_state", "image", CopyState, COPY_TRANSITIONS
)
FENCE: Final[StateMachine[FenceState, FenceEvent]] = StateMachine(
    "host_fence", "host", FenceState, FENCE_TRANSITIONS
)
HOST_ADMIN: Final[StateMachine[HostAdmin, HostAdminEvent]] = StateMachine(
    "host_admin", "host", HostAdmin, HOST_ADMIN_TRANSITIONS
)
HOST_HEALTH: Final[StateMachine[HostHealth, HostHealthEvent]] = StateMachine(
    "host_health", "host", HostHealth, HOST_HEALTH_TRANSITIONS
)
IMAGE: Final[StateMachine[ImageState, ImageEvent]] = StateMachine(
    "image_state", "image", ImageState, IMAGE_TRANSITIONS
)
MOVE: Final[StateMachine[MoveState, MoveEvent]] = StateMachine(
    "move_state", "move", MoveState, MOVE_TRANSITIONS
)
PLAN: Final[StateMachine[PlanState, PlanEvent]] = StateMachine(
    "plan_state", "plan", PlanState, PLAN_TRANSITIONS
)
POWER: Final[StateMachine[PowerState, PowerEvent]] = StateMachine(
    "vm_power", "vm", PowerState, POWER_TRANSITIONS
)
REQUEST: Final[StateMachine[RequestState, RequestEvent]] = StateMachine(
    "request_state", "request", RequestState, REQUEST_TRANSITIONS
)
RESERVATION: Final[StateMachine[ReservationState, ReservationEvent]] = StateMachine(
    "reservation_state", "reservation", ReservationState, RESERVATION_TRANSITIONS
)
ROLL: Final[StateMachine[RollState, RollEvent]] = StateMachine(
    "roll_state", "roll", RollState, ROLL_TRANSITIONS
)
SLOT_LOOP: Final[StateMachine[SlotLoopState, SlotLoopEvent]] = StateMachine(
    "slot_loop", "slot_loop", SlotLoopState, SLOT_LOOP_TRANSITIONS
)
SPOT: Final[StateMachine[SpotState, SpotEvent]] = StateMachine(
    "spot_ending", "vm", SpotState, SPOT_TRANSITIONS
)
VM_DESIRED: Final[StateMachine[VmDesired, VmDesiredEvent]] = StateMachine(
    "vm_desired", "vm", VmDesired, VM_DESIRED_TRANSITIONS
)
VM_OBSERVED: Final[StateMachine[VmObserved, VmObservedEvent]] = StateMachine(
    "vm_observed", "vm", VmObserved, VM_OBSERVED_TRANSITIONS
)
VOLUME: Final[StateMachine[VolumeState, VolumeEvent]] = StateMachine(
    "volume_state", "volume", VolumeState, VOLUME_TRANSITIONS
)
WHAT_IF: Final[StateMachine[WhatIfState, WhatIfEvent]] = StateMachine(
    "what_if_state", "what_if", WhatIfState, WHAT_IF_TRANSITIONS
)
MACHINES: Final = (
    ASSIGNMENT,
    CONSOLE,
    COPY,
    FENCE,
    HOST_ADMIN,
    HOST_HEALTH,
    IMAGE,
    MOVE,
    PLAN,
    POWER,
    REQUEST,
    RESERVATION,
    ROLL,
    SLOT_LOOP,
    SPOT,
    VM_DESIRED,
    VM_OBSERVED,
    VOLUME,
    WHAT_IF,
)
