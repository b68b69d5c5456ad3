"""State machines of request, vm, its power, assignment and host: one table each, and no SQL.

Two events may cross (a VM is deleted while it is being created): each crossing
has a row. What has no row does not happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeVar

from registry.errors import IllegalTransitionError


class RequestState(StrEnum):
    """How much of a request holds a place."""

    PENDING = "pending"
    PARTLY_PLACED = "partly_placed"
    PLACED = "placed"
    RELEASED = "released"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class RequestEvent(StrEnum):
    """What a look at a request's VMs finds."""

    NONE_PLACED = "none_placed"
    PART_PLACED = "part_placed"
    ALL_PLACED = "all_placed"
    ALL_GONE = "all_gone"  #: every VM deleted and proven absent
    CANCELLED = "cancelled"  #: every VM deleted before one was ever placed
    EXPIRED = "expired"


class VmDesired(StrEnum):
    """What its tenant wants of a VM."""

    RUNNING = "running"
    STOPPED = "stopped"
    DELETED = "deleted"


class VmDesiredEvent(StrEnum):
    """What a tenant asks for."""

    START = "start"
    STOP = "stop"
    REBOOT = "reboot"
    DELETE = "delete"


class PowerState(StrEnum):
    """How far a tenant's wish to stop, start or reboot a VM has come on its host."""

    IDLE = "idle"  #: nothing is asked: no row
    STOPPING = "stopping"
    SHUTTING_DOWN = "shutting_down"  #: its guest was told to shut down, or is about to be
    STARTING = "starting"
    REBOOTING = "rebooting"
    RESTARTING = "restarting"  #: as shutting down, to be started again


class PowerEvent(StrEnum):
    """What a tenant asks, and what a worker did or saw."""

    STOP = "stop"
    START = "start"
    REBOOT = "reboot"
    SIGNALLED = "signalled"  #: written before the guest is told: it may have been told
    SEEN_OFF = "seen_off"
    SEEN_ON = "seen_on"
    RESET = "reset"
    FAILED = "failed"  #: its host refused again and again
    DROPPED = "dropped"  #: the VM is deleted, or lost its place


class VmObserved(StrEnum):
    """What is known of a VM's domain."""

    ABSENT = "absent"
    RUNNING = "running"
    STOPPED = "stopped"
    LOST = "lost"


class VmState(StrEnum):
    """What a VM does as far as anybody knows: what was observed, while its host answers."""

    ABSENT = "absent"
    RUNNING = "running"
    STOPPED = "stopped"
    LOST = "lost"
    UNKNOWN = "unknown"  #: it ran or was stopped on a host that does not answer any more


class VmObservedEvent(StrEnum):
    """What a worker or the monitor saw."""

    SEEN_RUNNING = "seen_running"
    SEEN_STOPPED = "seen_stopped"
    SEEN_PAUSED = "seen_paused"
    MISSING = "missing"  #: its host was asked, and knows no such domain
    PROVEN_ABSENT = "proven_absent"


class AssignmentState(StrEnum):
    """One attempt of one VM on one host. All but `RELEASED` hold capacity.

    Of the others all but `ARRIVING` and `LEAVING` are the place of the VM: it has one at most.
    """

    RESERVED = "reserved"
    CREATING = "creating"
    ACTIVE = "active"
    RELEASING = "releasing"
    RELEASED = "released"
    QUARANTINED = "quarantined"
    ARRIVING = "arriving"  #: its VM moves there, and is still at its place
    LEAVING = "leaving"  #: its VM is elsewhere: what it left there goes


class AssignmentEvent(StrEnum):
    """What happens to an assignment."""

    CLAIMED = "claimed"
    RECLAIMED = "reclaimed"  #: another worker takes over after the lease ran out
    STARTED = "started"  #: its domain exists, paused: it may be resumed from now on
    FAILED = "failed"
    DELETE_REQUESTED = "delete_requested"
    WITHDRAWN = "withdrawn"  #: its host went down before anybody touched it
    PROVEN_ABSENT = "proven_absent"
    MISSING = "missing"  #: its host is up and has no such domain: it is to be built anew
    FENCED = "fenced"  #: its host is proven to be off: whatever it had there does not run
    ARRIVED = "arrived"  #: the guest was seen there, or the VM that is off is whole there
    LEFT = "left"  #: the same, by the place that the VM moved away from
    NOT_ARRIVED = "not_arrived"  #: the move is over, and the VM is not there


class MoveState(StrEnum):
    """How far the move of a VM to another host has come."""

    ASKED = "asked"
    MOVING = "moving"  #: a worker is at it, or died over it
    MOVED = "moved"
    FAILED = "failed"  #: the VM is where it was
    CANCELLED = "cancelled"


class MoveEvent(StrEnum):
    """What happens to a move."""

    CLAIMED = "claimed"
    RECLAIMED = "reclaimed"  #: another worker finds out what became of it
    ARRIVED = "arrived"
    FAILED = "failed"
    CANCELLED = "cancelled"  #: by an operator, or because its VM was deleted


class PlanState(StrEnum):
    """How far a plan of moves has come."""

    ASKED = "asked"
    PROPOSED = "proposed"
    APPROVED = "approved"  #: it is carried out, wave by wave
    DONE = "done"  #: every move of it is over, however it ended
    CANCELLED = "cancelled"
    FAILED = "failed"  #: it could not be decided


class PlanEvent(StrEnum):
    """What happens to a plan of moves."""

    PROPOSED = "proposed"
    APPROVED = "approved"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class RollState(StrEnum):
    """How far a roll over hosts has come."""

    GOING = "going"  #: some fuga drives it, or its last driver is gone
    STOPPED = "stopped"  #: at a failure, or by its driver; it can be resumed
    DONE = "done"
    CANCELLED = "cancelled"


class RollEvent(StrEnum):
    """What happens to a roll over hosts."""

    STOPPED = "stopped"
    RESUMED = "resumed"
    DONE = "done"
    CANCELLED = "cancelled"


class RollPhase(StrEnum):
    """Where a host of a roll is. They follow each other; it fails in one, and goes on there."""

    WAITING = "waiting"  #: for its turn
    EMPTYING = "emptying"  #: in maintenance, its VMs move away
    EMPTY = "empty"
    AT_WORK = "at_work"  #: the command runs, or ran when its driver went away
    RETURNING = "returning"  #: the command is over; the host is to be seen up
    DONE = "done"
    LEFT_OUT = "left_out"  #: by whoever resumed the roll


class WhatIfState(StrEnum):
    """How far a what-if has come."""

    WAITING = "waiting"  #: another one runs, or it is about to begin
    RUNNING = "running"
    FINISHED = "finished"  #: it has a report
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"  #: the API process that ran it, or would have, is gone


class WhatIfEvent(StrEnum):
    """What happens to a what-if."""

    BEGUN = "begun"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class SpotState(StrEnum):
    """Whether a spot VM stays."""

    STAYS = "stays"  #: nothing is told: no row
    ENDING = "ending"  #: its tenant was told when it ends
    GONE = "gone"  #: it is deleted: no row any more


class SpotEvent(StrEnum):
    """What happens to a spot VM's stay."""

    TOLD = "told"  #: a round needs its room
    WITHDRAWN = "withdrawn"  #: whom it was to end for waits no more, or it lost its place
    DUE = "due"  #: its time is over
    DELETED = "deleted"  #: by its tenant, or with its request


class ReservationState(StrEnum):
    """How far a reservation is."""

    ASKED = "asked"  #: the control centre decides it
    ACCEPTED = "accepted"
    REFUSED = "refused"
    IN_FORCE = "in_force"  #: from its beginning to its end
    ENDED = "ended"
    CANCELLED = "cancelled"


class ReservationEvent(StrEnum):
    """What happens to a reservation."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    BEGAN = "began"
    ENDED = "ended"  #: its time is over
    CANCELLED = "cancelled"


class HostAdmin(StrEnum):
    """What the operator wants of a host."""

    ACTIVE = "active"
    DRAINING = "draining"
    MAINTENANCE = "maintenance"
    RETIRED = "retired"


class HostAdminEvent(StrEnum):
    """What an operator asks for."""

    ACTIVATE = "activate"
    DRAIN = "drain"
    MAINTAIN = "maintain"
    RETIRE = "retire"


class HostHealth(StrEnum):
    """What the monitor found."""

    ENROLLING = "enrolling"
    UP = "up"
    UNREACHABLE = "unreachable"
    DOWN = "down"


class HostHealthEvent(StrEnum):
    """What the monitor's last poll came to."""

    ANSWERED = "answered"
    UNANSWERED = "unanswered"  #: so many polls in a row that it is unreachable
    GIVEN_UP = "given_up"  #: so many that it is down
    RETURNED = "returned"  #: it answers again, but not before it is clear it is up


class FenceState(StrEnum):
    """How far it has come that a host which is down is proven to be off."""

    IDLE = "idle"  #: nothing is asked: no row
    ASKED = "asked"
    RUNNING = "running"  #: a worker runs the command, or died over it
    FAILED = "failed"  #: tried again later
    FENCED = "fenced"


class FenceEvent(StrEnum):
    """What happens to the fencing of a host."""

    ASKED = "asked"
    CLAIMED = "claimed"
    RECLAIMED = "reclaimed"  #: another worker runs the command after the lease ran out
    SUCCEEDED = "succeeded"
    FAILED = "failed"  #: or took too long: nothing is proven
    CONFIRMED = "confirmed"  #: an operator has seen to it that the host is off
    RETURNED = "returned"  #: the host answers and is clear of what was placed elsewhere


class ImageState(StrEnum):
    """Whether an image's content is in the store."""

    IMPORTING = "importing"
    READY = "ready"
    FAILED = "failed"
    REMOVED = "removed"


class ImageEvent(StrEnum):
    """What happens to an image."""

    IMPORTED = "imported"  #: its content is in the store, whole and checked
    FAILED = "failed"
    REMOVED = "removed"


class ConsoleState(StrEnum):
    """Whether what a caller types reaches a VM."""

    WAITING = "waiting"  #: for a worker
    ATTACHED = "attached"
    ENDED = "ended"


class ConsoleEvent(StrEnum):
    """What becomes of somebody's hold on a console."""

    ATTACHED = "attached"  #: a worker holds the console
    LOST = "lost"  #: the worker died, or its connection to the host
    ENDED = "ended"


class CopyState(StrEnum):
    """What is known of an image's copy on one host. A row that is gone was removed."""

    ABSENT = "absent"  #: wanted, and nobody is at it
    UPLOADING = "uploading"
    PRESENT = "present"
    FAILED = "failed"
    REMOVING = "removing"


class CopyEvent(StrEnum):
    """What happens to an image's copy on a host."""

    CLAIMED = "claimed"
    RECLAIMED = "reclaimed"  #: another worker begins anew after the lease ran out
    UPLOADED = "uploaded"
    INTERRUPTED = "interrupted"  #: for a passing reason: it is tried again
    REFUSED = "refused"
    WANTED = "wanted"  #: a later round placed VMs here again
    MISSING = "missing"  #: its host was asked, and has no such volume
    IMAGE_REMOVED = "image_removed"


class SlotLoopState(StrEnum):
    """Whether slots are decided."""

    RUNNING = "running"
    PAUSED = "paused"


class SlotLoopEvent(StrEnum):
    """What an operator asks for."""

    PAUSE = "pause"
    RESUME = "resume"


def _requests() -> Mapping[tuple[RequestState, RequestEvent], RequestState]:
    s, e = RequestState, RequestEvent
    table = {
        # Deleted and gone. A build that failed may have brought it back to pending.
        (s.PENDING, e.ALL_GONE): s.RELEASED,
        (s.PARTLY_PLACED, e.ALL_GONE): s.RELEASED,
        (s.PLACED, e.ALL_GONE): s.RELEASED,
        (s.PENDING, e.CANCELLED): s.CANCELLED,
    }
    # Places come by rounds and go with failed builds, so these three lead anywhere
    # among themselves.
    for state in (s.PENDING, s.PARTLY_PLACED, s.PLACED):
        table[state, e.NONE_PLACED] = s.PENDING
        table[state, e.PART_PLACED] = s.PARTLY_PLACED
        table[state, e.ALL_PLACED] = s.PLACED
        table[state, e.EXPIRED] = s.EXPIRED  # its VMs may take a while to go
    return MappingProxyType(table)


REQUEST_TRANSITIONS: Final = _requests()

VM_DESIRED_TRANSITIONS: Final[Mapping[tuple[VmDesired, VmDesiredEvent], VmDesired]] = (
    MappingProxyType(
        {
            (VmDesired.RUNNING, VmDesiredEvent.START): VmDesired.RUNNING,
            (VmDesired.RUNNING, VmDesiredEvent.STOP): VmDesired.STOPPED,
            (VmDesired.RUNNING, VmDesiredEvent.REBOOT): VmDesired.RUNNING,
            (VmDesired.RUNNING, VmDesiredEvent.DELETE): VmDesired.DELETED,
            (VmDesired.STOPPED, VmDesiredEvent.START): VmDesired.RUNNING,
            (VmDesired.STOPPED, VmDesiredEvent.STOP): VmDesired.STOPPED,
            (VmDesired.STOPPED, VmDesiredEvent.DELETE): VmDesired.DELETED,
            # Asked twice, deleted once.
            (VmDesired.DELETED, VmDesiredEvent.DELETE): VmDesired.DELETED,
        }
    )
)


def _power() -> Mapping[tuple[PowerState, PowerEvent], PowerState]:
    s, e = PowerState, PowerEvent
    table = {
        (s.IDLE, e.STOP): s.STOPPING,
        (s.IDLE, e.START): s.STARTING,
        (s.IDLE, e.REBOOT): s.REBOOTING,
        (s.STOPPING, e.STOP): s.STOPPING,
        (s.STOPPING, e.START): s.STARTING,  # nobody told the guest yet, and nobody will
        (s.STOPPING, e.SIGNALLED): s.SHUTTING_DOWN,
        (s.STOPPING, e.SEEN_OFF): s.IDLE,
        (s.SHUTTING_DOWN, e.STOP): s.SHUTTING_DOWN,
        # What was told cannot be taken back: it goes down, and is then started.
        (s.SHUTTING_DOWN, e.START): s.RESTARTING,
        (s.SHUTTING_DOWN, e.SIGNALLED): s.SHUTTING_DOWN,
        (s.SHUTTING_DOWN, e.SEEN_OFF): s.IDLE,
        (s.STARTING, e.STOP): s.STOPPING,
        (s.STARTING, e.START): s.STARTING,
        (s.STARTING, e.REBOOT): s.REBOOTING,
        (s.STARTING, e.SEEN_ON): s.IDLE,
        (s.REBOOTING, e.SIGNALLED): s.RESTARTING,
        (s.RESTARTING, e.SIGNALLED): s.RESTARTING,
        (s.REBOOTING, e.STOP): s.STOPPING,
        (s.RESTARTING, e.STOP): s.SHUTTING_DOWN,
    }
    for state in (s.REBOOTING, s.RESTARTING):
        table[state, e.START] = state
        table[state, e.REBOOT] = state
        table[state, e.SEEN_OFF] = s.STARTING
        table[state, e.RESET] = s.IDLE
    for state in (s.STARTING, s.REBOOTING, s.RESTARTING):
        table[state, e.FAILED] = s.IDLE  # a stop is never given up
    for state in s:
        if state != s.IDLE:
            table[state, e.DROPPED] = s.IDLE
    return MappingProxyType(table)


POWER_TRANSITIONS: Final = _power()


SPOT_TRANSITIONS: Final[Mapping[tuple[SpotState, SpotEvent], SpotState]] = MappingProxyType(
    {
        (SpotState.STAYS, SpotEvent.TOLD): SpotState.ENDING,
        (SpotState.ENDING, SpotEvent.WITHDRAWN): SpotState.STAYS,
        (SpotState.ENDING, SpotEvent.DUE): SpotState.GONE,
        # Its tenant did not wait for the end.
        (SpotState.ENDING, SpotEvent.DELETED): SpotState.GONE,
    }
)


RESERVATION_TRANSITIONS: Final[
    Mapping[tuple[ReservationState, ReservationEvent], ReservationState]
] = MappingProxyType(
    {
        (ReservationState.ASKED, ReservationEvent.ACCEPTED): ReservationState.ACCEPTED,
        (ReservationState.ASKED, ReservationEvent.REFUSED): ReservationState.REFUSED,
        (ReservationState.ASKED, ReservationEvent.CANCELLED): ReservationState.CANCELLED,
        (ReservationState.ACCEPTED, ReservationEvent.BEGAN): ReservationState.IN_FORCE,
        # Nobody swept between its beginning and its end.
        (ReservationState.ACCEPTED, ReservationEvent.ENDED): ReservationState.ENDED,
        (ReservationState.ACCEPTED, ReservationEvent.CANCELLED): ReservationState.CANCELLED,
        (ReservationState.IN_FORCE, ReservationEvent.ENDED): ReservationState.ENDED,
        (ReservationState.IN_FORCE, ReservationEvent.CANCELLED): ReservationState.CANCELLED,
    }
)
#: Reservations that are not over.
OPEN_RESERVATIONS: Final = (
    ReservationState.ASKED,
    ReservationState.ACCEPTED,
    ReservationState.IN_FORCE,
)
#: Reservations that hold, or will hold, room.
STANDING: Final = (ReservationState.ACCEPTED, ReservationState.IN_FORCE)


def _vm_observed() -> Mapping[tuple[VmObserved, VmObservedEvent], VmObserved]:
    s, e = VmObserved, VmObservedEvent
    table = {}
    for state in s:
        # A look at the host is believed whatever was known before.
        table[state, e.SEEN_RUNNING] = s.RUNNING
        table[state, e.SEEN_STOPPED] = s.STOPPED
        table[state, e.MISSING] = s.LOST
        table[state, e.PROVEN_ABSENT] = s.ABSENT
        # Paused is what a VM is between its start and its resume: nothing new.
        table[state, e.SEEN_PAUSED] = state
    # It is back, and somebody has to resume it: as if it had just been started.
    table[s.LOST, e.SEEN_PAUSED] = s.ABSENT
    return MappingProxyType(table)


VM_OBSERVED_TRANSITIONS: Final = _vm_observed()

ASSIGNMENT_TRANSITIONS: Final[Mapping[tuple[AssignmentState, AssignmentEvent], AssignmentState]] = (
    MappingProxyType(
        {
            (AssignmentState.RESERVED, AssignmentEvent.CLAIMED): AssignmentState.CREATING,
            # Nobody ever claimed it: proof enough that there is no domain.
            (AssignmentState.RESERVED, AssignmentEvent.DELETE_REQUESTED): AssignmentState.RELEASED,
            (AssignmentState.RESERVED, AssignmentEvent.WITHDRAWN): AssignmentState.RELEASED,
            (AssignmentState.CREATING, AssignmentEvent.RECLAIMED): AssignmentState.CREATING,
            (AssignmentState.CREATING, AssignmentEvent.STARTED): AssignmentState.ACTIVE,
            # Is its domain absent? Not proven yet, so it keeps its capacity.
            (AssignmentState.CREATING, AssignmentEvent.FAILED): AssignmentState.QUARANTINED,
            (
                AssignmentState.CREATING,
                AssignmentEvent.DELETE_REQUESTED,
            ): AssignmentState.RELEASING,
            # Its worker died before the resume: another one finishes, or fails to.
            (AssignmentState.ACTIVE, AssignmentEvent.RECLAIMED): AssignmentState.ACTIVE,
            (AssignmentState.ACTIVE, AssignmentEvent.FAILED): AssignmentState.QUARANTINED,
            (AssignmentState.ACTIVE, AssignmentEvent.MISSING): AssignmentState.QUARANTINED,
            (AssignmentState.ACTIVE, AssignmentEvent.DELETE_REQUESTED): AssignmentState.RELEASING,
            # The worker that creates learns late that the VM was deleted meanwhile.
            (AssignmentState.RELEASING, AssignmentEvent.STARTED): AssignmentState.RELEASING,
            (AssignmentState.RELEASING, AssignmentEvent.FAILED): AssignmentState.RELEASING,
            (
                AssignmentState.RELEASING,
                AssignmentEvent.DELETE_REQUESTED,
            ): AssignmentState.RELEASING,
            (AssignmentState.RELEASING, AssignmentEvent.PROVEN_ABSENT): AssignmentState.RELEASED,
            (AssignmentState.QUARANTINED, AssignmentEvent.FAILED): AssignmentState.QUARANTINED,
            (
                AssignmentState.QUARANTINED,
                AssignmentEvent.DELETE_REQUESTED,
            ): AssignmentState.RELEASING,
            (AssignmentState.QUARANTINED, AssignmentEvent.PROVEN_ABSENT): AssignmentState.RELEASED,
            # A move ends for both of its assignments at once.
            (AssignmentState.ARRIVING, AssignmentEvent.ARRIVED): AssignmentState.ACTIVE,
            (AssignmentState.ACTIVE, AssignmentEvent.LEFT): AssignmentState.LEAVING,
            (AssignmentState.ARRIVING, AssignmentEvent.NOT_ARRIVED): AssignmentState.LEAVING,
            # Nobody ever claimed the move: nothing of it is there.
            (AssignmentState.ARRIVING, AssignmentEvent.WITHDRAWN): AssignmentState.RELEASED,
            # The worker at the move ends it: it alone knows where the guest is.
            (
                AssignmentState.ARRIVING,
                AssignmentEvent.DELETE_REQUESTED,
            ): AssignmentState.ARRIVING,
            (AssignmentState.LEAVING, AssignmentEvent.DELETE_REQUESTED): AssignmentState.LEAVING,
            (AssignmentState.LEAVING, AssignmentEvent.PROVEN_ABSENT): AssignmentState.RELEASED,
            **{
                (state, AssignmentEvent.FENCED): AssignmentState.RELEASED
                for state in AssignmentState
                if state != AssignmentState.RELEASED
            },
        }
    )
)


def _moves() -> Mapping[tuple[MoveState, MoveEvent], MoveState]:
    s, e = MoveState, MoveEvent
    table = {(s.ASKED, e.CLAIMED): s.MOVING, (s.MOVING, e.RECLAIMED): s.MOVING}
    for state in (s.ASKED, s.MOVING):
        table[state, e.FAILED] = s.FAILED
        table[state, e.CANCELLED] = s.CANCELLED
    table[s.MOVING, e.ARRIVED] = s.MOVED
    return MappingProxyType(table)


MOVE_TRANSITIONS: Final = _moves()

PLAN_TRANSITIONS: Final[Mapping[tuple[PlanState, PlanEvent], PlanState]] = MappingProxyType(
    {
        (PlanState.ASKED, PlanEvent.PROPOSED): PlanState.PROPOSED,
        (PlanState.ASKED, PlanEvent.FAILED): PlanState.FAILED,
        (PlanState.ASKED, PlanEvent.CANCELLED): PlanState.CANCELLED,
        (PlanState.PROPOSED, PlanEvent.APPROVED): PlanState.APPROVED,
        (PlanState.PROPOSED, PlanEvent.DONE): PlanState.DONE,  # it has no useful move
        (PlanState.PROPOSED, PlanEvent.CANCELLED): PlanState.CANCELLED,
        (PlanState.APPROVED, PlanEvent.DONE): PlanState.DONE,
        (PlanState.APPROVED, PlanEvent.CANCELLED): PlanState.CANCELLED,
    }
)


ROLL_TRANSITIONS: Final[Mapping[tuple[RollState, RollEvent], RollState]] = MappingProxyType(
    {
        (RollState.GOING, RollEvent.STOPPED): RollState.STOPPED,
        (RollState.GOING, RollEvent.RESUMED): RollState.GOING,  # its last driver is gone
        (RollState.GOING, RollEvent.DONE): RollState.DONE,
        (RollState.GOING, RollEvent.CANCELLED): RollState.CANCELLED,
        (RollState.STOPPED, RollEvent.RESUMED): RollState.GOING,
        (RollState.STOPPED, RollEvent.CANCELLED): RollState.CANCELLED,
    }
)


WHAT_IF_TRANSITIONS: Final[Mapping[tuple[WhatIfState, WhatIfEvent], WhatIfState]] = (
    MappingProxyType(
        {
            (WhatIfState.WAITING, WhatIfEvent.BEGUN): WhatIfState.RUNNING,
            (WhatIfState.WAITING, WhatIfEvent.CANCELLED): WhatIfState.CANCELLED,
            (WhatIfState.WAITING, WhatIfEvent.INTERRUPTED): WhatIfState.INTERRUPTED,
            (WhatIfState.RUNNING, WhatIfEvent.FINISHED): WhatIfState.FINISHED,
            (WhatIfState.RUNNING, WhatIfEvent.FAILED): WhatIfState.FAILED,
            (WhatIfState.RUNNING, WhatIfEvent.CANCELLED): WhatIfState.CANCELLED,
            (WhatIfState.RUNNING, WhatIfEvent.INTERRUPTED): WhatIfState.INTERRUPTED,
        }
    )
)


def _host_admin() -> Mapping[tuple[HostAdmin, HostAdminEvent], HostAdmin]:
    s, e = HostAdmin, HostAdminEvent
    table = {}
    for state in (s.ACTIVE, s.DRAINING, s.MAINTENANCE):
        table[state, e.ACTIVATE] = s.ACTIVE
        table[state, e.DRAIN] = s.DRAINING
        table[state, e.MAINTAIN] = s.MAINTENANCE
        table[state, e.RETIRE] = s.RETIRED
    return MappingProxyType(table)


HOST_ADMIN_TRANSITIONS: Final = _host_admin()


def _host_health() -> Mapping[tuple[HostHealth, HostHealthEvent], HostHealth]:
    s, e = HostHealth, HostHealthEvent
    table = {(state, e.ANSWERED): s.UP for state in s}
    for state in (s.UP, s.UNREACHABLE):
        table[state, e.UNANSWERED] = s.UNREACHABLE
        table[state, e.GIVEN_UP] = s.DOWN
    for event in (e.UNANSWERED, e.GIVEN_UP):
        table[s.ENROLLING, event] = s.ENROLLING  # it never was there: nothing to mourn
        table[s.DOWN, event] = s.DOWN
    # It may still have what was placed elsewhere meanwhile: that goes first.
    table[s.DOWN, e.RETURNED] = s.DOWN
    return MappingProxyType(table)


HOST_HEALTH_TRANSITIONS: Final = _host_health()


def _fences() -> Mapping[tuple[FenceState, FenceEvent], FenceState]:
    s, e = FenceState, FenceEvent
    table = {
        (s.IDLE, e.ASKED): s.ASKED,
        (s.FAILED, e.ASKED): s.ASKED,
        (s.ASKED, e.CLAIMED): s.RUNNING,
        (s.ASKED, e.FAILED): s.FAILED,  # nothing says how to fence it
        (s.RUNNING, e.RECLAIMED): s.RUNNING,
        (s.RUNNING, e.SUCCEEDED): s.FENCED,
        (s.RUNNING, e.FAILED): s.FAILED,
    }
    for state in s:
        table[state, e.CONFIRMED] = s.FENCED
        if state != s.IDLE:
            table[state, e.RETURNED] = s.IDLE
    return MappingProxyType(table)


FENCE_TRANSITIONS: Final = _fences()

IMAGE_TRANSITIONS: Final[Mapping[tuple[ImageState, ImageEvent], ImageState]] = MappingProxyType(
    {
        (ImageState.IMPORTING, ImageEvent.IMPORTED): ImageState.READY,
        (ImageState.IMPORTING, ImageEvent.FAILED): ImageState.FAILED,
        # Whoever imports it learns late that nobody wants it any more.
        (ImageState.IMPORTING, ImageEvent.REMOVED): ImageState.REMOVED,
        (ImageState.READY, ImageEvent.REMOVED): ImageState.REMOVED,
        (ImageState.FAILED, ImageEvent.REMOVED): ImageState.REMOVED,
    }
)


def _copies() -> Mapping[tuple[CopyState, CopyEvent], CopyState]:
    s, e = CopyState, CopyEvent
    table = {
        (s.ABSENT, e.CLAIMED): s.UPLOADING,
        (s.UPLOADING, e.RECLAIMED): s.UPLOADING,
        (s.UPLOADING, e.UPLOADED): s.PRESENT,
        (s.UPLOADING, e.INTERRUPTED): s.ABSENT,
        (s.UPLOADING, e.REFUSED): s.FAILED,
        (s.FAILED, e.WANTED): s.ABSENT,
        (s.PRESENT, e.MISSING): s.ABSENT,
    }
    for state in s:
        table[state, e.IMAGE_REMOVED] = s.REMOVING
    return MappingProxyType(table)


COPY_TRANSITIONS: Final = _copies()

CONSOLE_TRANSITIONS: Final[Mapping[tuple[ConsoleState, ConsoleEvent], ConsoleState]] = (
    MappingProxyType(
        {
            (ConsoleState.WAITING, ConsoleEvent.ATTACHED): ConsoleState.ATTACHED,
            (ConsoleState.WAITING, ConsoleEvent.LOST): ConsoleState.WAITING,
            (ConsoleState.WAITING, ConsoleEvent.ENDED): ConsoleState.ENDED,
            (ConsoleState.ATTACHED, ConsoleEvent.LOST): ConsoleState.WAITING,
            (ConsoleState.ATTACHED, ConsoleEvent.ENDED): ConsoleState.ENDED,
        }
    )
)

SLOT_LOOP_TRANSITIONS: Final[Mapping[tuple[SlotLoopState, SlotLoopEvent], SlotLoopState]] = (
    MappingProxyType(
        {
            (SlotLoopState.RUNNING, SlotLoopEvent.PAUSE): SlotLoopState.PAUSED,
            (SlotLoopState.PAUSED, SlotLoopEvent.RESUME): SlotLoopState.RUNNING,
        }
    )
)

#: Assignments in these states have, or may have, a domain on their host.
UNRELEASED: Final = tuple(state for state in AssignmentState if state != AssignmentState.RELEASED)
#: Moves in these states go on.
OPEN_MOVES: Final = (MoveState.ASKED, MoveState.MOVING)
#: Requests in these states are over; their name is free again.
#: Requests of which VMs may wait for a place.
OPEN_REQUESTS: Final = (RequestState.PENDING, RequestState.PARTLY_PLACED)
FINISHED: Final = (RequestState.RELEASED, RequestState.CANCELLED, RequestState.EXPIRED)

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


def next_state(table: Mapping[tuple[S, E], S], state: S, event: E) -> S:
    """Return the state after ``event``; `IllegalTransitionError` where the table has no row."""
    try:
        return table[state, event]
    except KeyError:
        raise IllegalTransitionError(state, event) from None


#: Work on such a host would only wait for its deadline: it is done when the host is back.
OUT_OF_REACH = (HostHealth.UNREACHABLE.value, HostHealth.DOWN.value)
