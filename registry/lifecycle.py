"""State machines of requests, VMs, volumes, hosts and others: one table each, and no SQL.

Two events may cross (a VM is deleted while it is being created); the table has a row for each
crossing. A transition without a row is illegal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeVar

from registry.errors import IllegalTransitionError

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


class RequestState(StrEnum):
    """How much of a request holds a place."""

    PENDING = "pending"
    PARTLY_PLACED = "partly_placed"
    PLACED = "placed"
    RELEASED = "released"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class RequestEvent(StrEnum):
    """An event of a request, which follows from the states of its VMs."""

    NONE_PLACED = "none_placed"
    PART_PLACED = "part_placed"
    ALL_PLACED = "all_placed"
    ALL_GONE = "all_gone"  #: every VM deleted and proven absent
    CANCELLED = "cancelled"  #: every VM deleted before one was ever placed
    EXPIRED = "expired"


class VmDesired(StrEnum):
    """The state that a VM's tenant wants."""

    RUNNING = "running"
    STOPPED = "stopped"
    DELETED = "deleted"


class VmDesiredEvent(StrEnum):
    """A tenant's call that changes the desired state of a VM."""

    START = "start"
    STOP = "stop"
    REBOOT = "reboot"
    DELETE = "delete"


class PowerState(StrEnum):
    """The progress of a pending stop, start or reboot of a VM on its host."""

    IDLE = "idle"  #: nothing is pending, so there is no row
    STOPPING = "stopping"
    SHUTTING_DOWN = "shutting_down"  #: its guest was signalled to shut down, or is about to be
    STARTING = "starting"
    REBOOTING = "rebooting"
    RESTARTING = "restarting"  #: as shutting down, to be started again


class PowerEvent(StrEnum):
    """An event of a power change: a tenant's call, or what a worker did or observed."""

    STOP = "stop"
    START = "start"
    REBOOT = "reboot"
    SIGNALLED = (
        "signalled"  #: recorded before the signal is sent, so the guest may have received it
    )
    SEEN_OFF = "seen_off"
    SEEN_ON = "seen_on"
    RESET = "reset"
    FAILED = "failed"  #: its host refused again and again
    DROPPED = "dropped"  #: the VM is deleted, or lost its place


class VmObserved(StrEnum):
    """The state of a VM's domain as it was last observed."""

    ABSENT = "absent"
    RUNNING = "running"
    STOPPED = "stopped"
    LOST = "lost"


class VmState(StrEnum):
    """The known state of a VM: the observed one, or unknown while its host does not answer."""

    ABSENT = "absent"
    RUNNING = "running"
    STOPPED = "stopped"
    LOST = "lost"
    UNKNOWN = "unknown"  #: it ran or was stopped on a host that does not answer any more


class VmObservedEvent(StrEnum):
    """An observation of a VM's domain by a worker or the monitor."""

    SEEN_RUNNING = "seen_running"
    SEEN_STOPPED = "seen_stopped"
    SEEN_PAUSED = "seen_paused"
    MISSING = "missing"  #: its host answered that it knows no such domain
    PROVEN_ABSENT = "proven_absent"


class AssignmentState(StrEnum):
    """The state of one attempt to run one VM on one host. All but `RELEASED` hold capacity.

    A VM has at most one assignment that holds capacity and is neither `ARRIVING` nor `LEAVING`:
    its place.
    """

    RESERVED = "reserved"
    CREATING = "creating"
    ACTIVE = "active"
    RELEASING = "releasing"
    RELEASED = "released"
    QUARANTINED = "quarantined"
    ARRIVING = "arriving"  #: its VM is moving there, and is still on the source
    LEAVING = "leaving"  #: its VM has moved away, and its remains are removed


class AssignmentEvent(StrEnum):
    """An event that changes the state of an assignment."""

    CLAIMED = "claimed"
    RECLAIMED = "reclaimed"  #: another worker takes over after the lease ran out
    STARTED = "started"  #: its domain exists, paused: it may be resumed from now on
    FAILED = "failed"
    DELETE_REQUESTED = "delete_requested"
    WITHDRAWN = "withdrawn"  #: its host went down before a worker claimed it
    PROVEN_ABSENT = "proven_absent"
    MISSING = "missing"  #: its host is up and has no such domain: it is to be rebuilt
    FENCED = "fenced"  #: its host is proven to be off: whatever it had there does not run
    ARRIVED = "arrived"  #: the guest was seen there, or the VM that is off is whole there
    LEFT = "left"  #: the VM was seen at its destination; this is the assignment on the source
    NOT_ARRIVED = "not_arrived"  #: the move is over, and the VM is not there


class MoveState(StrEnum):
    """The progress of a VM's move to another host."""

    PENDING = "pending"
    MOVING = "moving"  #: a worker carries it out, or died while it did
    MOVED = "moved"
    FAILED = "failed"  #: the VM is still on the source
    CANCELLED = "cancelled"


class MoveEvent(StrEnum):
    """An event that changes the state of a VM's move."""

    CLAIMED = "claimed"
    RECLAIMED = "reclaimed"  #: another worker finds out how far it came
    ARRIVED = "arrived"
    FAILED = "failed"
    CANCELLED = "cancelled"  #: by an operator, or because its VM was deleted


class PlanState(StrEnum):
    """The progress of a plan of moves."""

    PENDING = "pending"
    PROPOSED = "proposed"
    APPROVED = "approved"  #: its moves are carried out, wave by wave
    DONE = "done"  #: every move of it is over, however it ended
    CANCELLED = "cancelled"
    FAILED = "failed"  #: it could not be decided


class PlanEvent(StrEnum):
    """An event that changes the state of a plan of moves."""

    PROPOSED = "proposed"
    APPROVED = "approved"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class RollState(StrEnum):
    """The progress of a roll over hosts."""

    RUNNING = "running"  #: a `fuga roll` drives it, or its last driver is gone
    STOPPED = "stopped"  #: at a failure, or by its driver; it can be resumed
    DONE = "done"
    CANCELLED = "cancelled"


class RollEvent(StrEnum):
    """An event that changes the state of a roll over hosts."""

    STOPPED = "stopped"
    RESUMED = "resumed"
    DONE = "done"
    CANCELLED = "cancelled"


class RollPhase(StrEnum):
    """The phase of a host in a roll. A host that fails in a phase later resumes in it."""

    WAITING = "waiting"  #: the host waits for its turn
    EMPTYING = "emptying"  #: in maintenance, its VMs move away
    EMPTY = "empty"
    RUNNING = "running"  #: the command runs, or ran when its driver went away
    RETURNING = "returning"  #: the command ended; the host is to report as up
    DONE = "done"
    SKIPPED = "skipped"  #: by the operator who resumed the roll


class WhatIfState(StrEnum):
    """The progress of a what-if."""

    WAITING = "waiting"  #: another what-if runs, or this one is about to begin
    RUNNING = "running"
    FINISHED = "finished"  #: it has a report
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"  #: the API process that ran it, or would have, is gone


class WhatIfEvent(StrEnum):
    """An event that changes the state of a what-if."""

    BEGUN = "begun"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class SpotState(StrEnum):
    """Whether the end of a spot VM is announced."""

    STAYS = "stays"  #: no end is announced, so there is no row
    ENDING = "ending"  #: its end was announced to its tenant
    GONE = "gone"  #: it is deleted, and so is the row


class SpotEvent(StrEnum):
    """An event of a spot VM's announced end."""

    ANNOUNCED = "announced"  #: a round needs its room
    WITHDRAWN = (
        "withdrawn"  #: the request that needed the room waits no more, or the VM lost its place
    )
    DUE = "due"  #: its time is over
    DELETED = "deleted"  #: by its tenant, or with its request


class ReservationState(StrEnum):
    """The progress of a reservation."""

    PENDING = "pending"  #: the control centre has to decide it
    ACCEPTED = "accepted"
    REFUSED = "refused"
    IN_FORCE = "in_force"  #: from its beginning to its end
    ENDED = "ended"
    CANCELLED = "cancelled"


class ReservationEvent(StrEnum):
    """An event that changes the state of a reservation."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    BEGAN = "began"
    ENDED = "ended"  #: its time is over
    CANCELLED = "cancelled"


class HostAdmin(StrEnum):
    """The administrative state of a host, which operators set."""

    ACTIVE = "active"
    DRAINING = "draining"
    MAINTENANCE = "maintenance"
    RETIRED = "retired"


class HostAdminEvent(StrEnum):
    """An operator's call that changes the administrative state of a host."""

    ACTIVATE = "activate"
    DRAIN = "drain"
    MAINTAIN = "maintain"
    RETIRE = "retire"


class HostHealth(StrEnum):
    """The health of a host, as the monitor found it."""

    ENROLLING = "enrolling"
    UP = "up"
    UNREACHABLE = "unreachable"
    DOWN = "down"


class HostHealthEvent(StrEnum):
    """The result of the monitor's last poll."""

    ANSWERED = "answered"
    UNANSWERED = "unanswered"  #: enough polls in a row failed for it to be unreachable
    GIVEN_UP = "given_up"  #: enough polls in a row failed for it to be down
    RETURNED = "returned"  #: it answers again, and is clear of leftovers


class FenceState(StrEnum):
    """The progress of fencing, which proves that a host that is down is off."""

    IDLE = "idle"  #: nothing is pending, so there is no row
    PENDING = "pending"
    RUNNING = "running"  #: a worker runs the command, or died while it did
    FAILED = "failed"  #: the command failed, and is tried again later
    FENCED = "fenced"


class FenceEvent(StrEnum):
    """An event that changes the state of a host's fencing."""

    REQUESTED = "requested"
    CLAIMED = "claimed"
    RECLAIMED = "reclaimed"  #: another worker runs the command after the lease ran out
    SUCCEEDED = "succeeded"
    FAILED = "failed"  #: the command failed or took too long, so nothing is proven
    CONFIRMED = "confirmed"  #: an operator confirmed that the host is off
    RETURNED = "returned"  #: the host answers and is clear of what was placed elsewhere


class ImageState(StrEnum):
    """Whether an image's content is in the store."""

    IMPORTING = "importing"
    READY = "ready"
    FAILED = "failed"
    REMOVED = "removed"


class ImageEvent(StrEnum):
    """An event that changes the state of an image."""

    IMPORTED = "imported"  #: its content is in the store, whole and checked
    FAILED = "failed"
    REMOVED = "removed"


class ConsoleState(StrEnum):
    """Whether a console session is attached to its VM."""

    WAITING = "waiting"  #: the session waits for a worker
    ATTACHED = "attached"
    ENDED = "ended"


class ConsoleEvent(StrEnum):
    """An event that changes the state of a console session."""

    ATTACHED = "attached"  #: a worker holds the console
    LOST = "lost"  #: the worker died, or its connection to the host
    ENDED = "ended"


class CopyState(StrEnum):
    """The state of an image's copy on one host; a removed copy has no row."""

    ABSENT = "absent"  #: requested, and no worker has claimed it
    UPLOADING = "uploading"
    PRESENT = "present"
    FAILED = "failed"
    REMOVING = "removing"


class CopyEvent(StrEnum):
    """An event that changes the state of an image's copy on a host."""

    CLAIMED = "claimed"
    RECLAIMED = "reclaimed"  #: another worker starts over after the lease ran out
    UPLOADED = "uploaded"
    INTERRUPTED = "interrupted"  #: it failed for a passing reason, and is tried again
    REFUSED = "refused"
    WANTED = "wanted"  #: a later round placed VMs here again
    MISSING = "missing"  #: its host answered that it has no such volume
    IMAGE_REMOVED = "image_removed"


class VolumeState(StrEnum):
    """Where a volume is: its file on a host, and its disk in a guest."""

    UNPLACED = "unplaced"  #: no host has its file; its first attachment makes it
    CREATING = "creating"
    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"
    AVAILABLE = "available"  #: its file is on a host, and no VM has it
    WITHDRAWING = "withdrawing"  #: its file, which no guest ever had, is deleted
    REMOVING = "removing"
    REMOVED = "removed"


class VolumeEvent(StrEnum):
    """An event that changes the state of a volume."""

    ATTACH_REQUESTED = "attach_requested"
    CREATED = "created"
    ATTACHED = "attached"
    ATTACH_FAILED = "attach_failed"  #: the host refused too often
    DETACH_REQUESTED = "detach_requested"
    DETACHED = "detached"
    UNANSWERED = "unanswered"  #: the guest did not release the disk in time, so it keeps it
    WITHDRAWN = "withdrawn"
    VM_GONE = "vm_gone"  #: no domain of the VM's assignment exists any more
    NOT_BUILT = "not_built"  #: the VM's assignment ended before any worker made the file
    DISK_GONE = "disk_gone"  #: a poll showed the VM without the disk
    LOST = "lost"  #: an operator said that the files of its host are lost
    REMOVE_REQUESTED = "remove_requested"
    ABSENT = "absent"


class SlotLoopState(StrEnum):
    """Whether slots are decided, or the slot loop is paused."""

    RUNNING = "running"
    PAUSED = "paused"


class SlotLoopEvent(StrEnum):
    """An operator's call that pauses or resumes the slot loop."""

    PAUSE = "pause"
    RESUME = "resume"


def _transition_table(
    states: type[S],
    events: type[E],
    rows: Callable[[type[S], type[E]], Mapping[S | tuple[S, ...], Mapping[E, S]]],
) -> Mapping[tuple[S, E], S]:
    """Return a state machine's next state by state and event, from rows of one or more states."""
    found: dict[tuple[S, E], S] = {}
    for key, after in rows(states, events).items():
        for state in key if isinstance(key, tuple) else (key,):
            found |= {(state, event): next_ for event, next_ in after.items()}
    return MappingProxyType(found)


REQUEST_TRANSITIONS: Final = _transition_table(
    RequestState,
    RequestEvent,
    lambda s, e: {
        # Places come by rounds and go with failed builds, so these three lead anywhere among
        # themselves. VMs of an expired request may take a while to go.
        (s.PENDING, s.PARTLY_PLACED, s.PLACED): {
            e.ALL_GONE: s.RELEASED,  # deleted and gone; a failed build may have made it pending
            e.NONE_PLACED: s.PENDING,
            e.PART_PLACED: s.PARTLY_PLACED,
            e.ALL_PLACED: s.PLACED,
            e.EXPIRED: s.EXPIRED,
        },
        s.PENDING: {e.CANCELLED: s.CANCELLED},
    },
)

VM_DESIRED_TRANSITIONS: Final = _transition_table(
    VmDesired,
    VmDesiredEvent,
    lambda s, e: {
        (s.RUNNING, s.STOPPED): {e.START: s.RUNNING, e.STOP: s.STOPPED, e.DELETE: s.DELETED},
        s.RUNNING: {e.REBOOT: s.RUNNING},
        s.DELETED: {e.DELETE: s.DELETED},  # requested twice, deleted once
    },
)

POWER_TRANSITIONS: Final = _transition_table(
    PowerState,
    PowerEvent,
    lambda s, e: {
        s.IDLE: {e.STOP: s.STOPPING, e.START: s.STARTING, e.REBOOT: s.REBOOTING},
        # Until the guest is signalled, a start cancels a stop. Afterwards it goes down and is then
        # started.
        s.STOPPING: {e.STOP: s.STOPPING, e.START: s.STARTING, e.SIGNALLED: s.SHUTTING_DOWN},
        s.SHUTTING_DOWN: {
            e.STOP: s.SHUTTING_DOWN,
            e.START: s.RESTARTING,
            e.SIGNALLED: s.SHUTTING_DOWN,
        },
        s.STARTING: {
            e.STOP: s.STOPPING,
            e.START: s.STARTING,
            e.REBOOT: s.REBOOTING,
            e.SEEN_ON: s.IDLE,
            e.FAILED: s.IDLE,
            e.DROPPED: s.IDLE,
        },
        s.REBOOTING: {e.STOP: s.STOPPING, e.START: s.REBOOTING, e.REBOOT: s.REBOOTING},
        s.RESTARTING: {e.STOP: s.SHUTTING_DOWN, e.START: s.RESTARTING, e.REBOOT: s.RESTARTING},
        (s.REBOOTING, s.RESTARTING): {
            e.SIGNALLED: s.RESTARTING,
            e.SEEN_OFF: s.STARTING,
            e.RESET: s.IDLE,
            e.FAILED: s.IDLE,
            e.DROPPED: s.IDLE,
        },
        # A stop is never given up.
        (s.STOPPING, s.SHUTTING_DOWN): {e.SEEN_OFF: s.IDLE, e.DROPPED: s.IDLE},
    },
)

SPOT_TRANSITIONS: Final = _transition_table(
    SpotState,
    SpotEvent,
    lambda s, e: {
        s.STAYS: {e.ANNOUNCED: s.ENDING},
        # Its tenant may delete it before the end.
        s.ENDING: {e.WITHDRAWN: s.STAYS, e.DUE: s.GONE, e.DELETED: s.GONE},
    },
)

RESERVATION_TRANSITIONS: Final = _transition_table(
    ReservationState,
    ReservationEvent,
    lambda s, e: {
        s.PENDING: {e.ACCEPTED: s.ACCEPTED, e.REFUSED: s.REFUSED, e.CANCELLED: s.CANCELLED},
        s.ACCEPTED: {e.BEGAN: s.IN_FORCE},
        # It may end without having begun: no sweep ran in between.
        (s.ACCEPTED, s.IN_FORCE): {e.ENDED: s.ENDED, e.CANCELLED: s.CANCELLED},
    },
)

#: Reservations that are not over.
OPEN_RESERVATIONS: Final = (
    ReservationState.PENDING,
    ReservationState.ACCEPTED,
    ReservationState.IN_FORCE,
)
#: Reservations that hold, or will hold, room.
STANDING: Final = (ReservationState.ACCEPTED, ReservationState.IN_FORCE)


VM_OBSERVED_TRANSITIONS: Final = _transition_table(
    VmObserved,
    VmObservedEvent,
    lambda s, e: {
        # A poll's observation counts whatever was known before.
        tuple(s): {
            e.SEEN_RUNNING: s.RUNNING,
            e.SEEN_STOPPED: s.STOPPED,
            e.MISSING: s.LOST,
            e.PROVEN_ABSENT: s.ABSENT,
        },
        # A VM is paused between its start and its resume, so this is no change.
        s.ABSENT: {e.SEEN_PAUSED: s.ABSENT},
        s.RUNNING: {e.SEEN_PAUSED: s.RUNNING},
        s.STOPPED: {e.SEEN_PAUSED: s.STOPPED},
        # It is back and has to be resumed, as if it had just been started.
        s.LOST: {e.SEEN_PAUSED: s.ABSENT},
    },
)

ASSIGNMENT_TRANSITIONS: Final = _transition_table(
    AssignmentState,
    AssignmentEvent,
    lambda s, e: {
        # No worker claimed it, which proves that there is no domain.
        s.RESERVED: {
            e.CLAIMED: s.CREATING,
            e.DELETE_REQUESTED: s.RELEASED,
            e.WITHDRAWN: s.RELEASED,
        },
        # After a failure its domain is not proven absent: it keeps its capacity.
        s.CREATING: {
            e.RECLAIMED: s.CREATING,
            e.STARTED: s.ACTIVE,
            e.FAILED: s.QUARANTINED,
            e.DELETE_REQUESTED: s.RELEASING,
        },
        # If its worker died before the resume, another one resumes it, or fails.
        s.ACTIVE: {
            e.RECLAIMED: s.ACTIVE,
            e.FAILED: s.QUARANTINED,
            e.MISSING: s.QUARANTINED,
            e.DELETE_REQUESTED: s.RELEASING,
            e.LEFT: s.LEAVING,  # a move ends for both of its assignments at once
        },
        # The worker that creates may learn late that the VM has been deleted.
        s.RELEASING: {
            e.STARTED: s.RELEASING,
            e.FAILED: s.RELEASING,
            e.DELETE_REQUESTED: s.RELEASING,
            e.PROVEN_ABSENT: s.RELEASED,
        },
        s.QUARANTINED: {
            e.FAILED: s.QUARANTINED,
            e.DELETE_REQUESTED: s.RELEASING,
            e.PROVEN_ABSENT: s.RELEASED,
        },
        # An unclaimed move has left nothing anywhere. One that is under way is ended by its
        # worker, which alone knows where the guest is.
        s.ARRIVING: {
            e.ARRIVED: s.ACTIVE,
            e.NOT_ARRIVED: s.LEAVING,
            e.WITHDRAWN: s.RELEASED,
            e.DELETE_REQUESTED: s.ARRIVING,
        },
        s.LEAVING: {e.DELETE_REQUESTED: s.LEAVING, e.PROVEN_ABSENT: s.RELEASED},
        tuple(state for state in s if state != s.RELEASED): {e.FENCED: s.RELEASED},
    },
)

MOVE_TRANSITIONS: Final = _transition_table(
    MoveState,
    MoveEvent,
    lambda s, e: {
        s.PENDING: {e.CLAIMED: s.MOVING},
        s.MOVING: {e.RECLAIMED: s.MOVING, e.ARRIVED: s.MOVED},
        (s.PENDING, s.MOVING): {e.FAILED: s.FAILED, e.CANCELLED: s.CANCELLED},
    },
)

PLAN_TRANSITIONS: Final = _transition_table(
    PlanState,
    PlanEvent,
    lambda s, e: {
        s.PENDING: {e.PROPOSED: s.PROPOSED, e.FAILED: s.FAILED, e.CANCELLED: s.CANCELLED},
        # A plan without a useful move is done once it is proposed.
        s.PROPOSED: {e.APPROVED: s.APPROVED, e.DONE: s.DONE, e.CANCELLED: s.CANCELLED},
        s.APPROVED: {e.DONE: s.DONE, e.CANCELLED: s.CANCELLED},
    },
)

ROLL_TRANSITIONS: Final = _transition_table(
    RollState,
    RollEvent,
    lambda s, e: {
        s.RUNNING: {e.STOPPED: s.STOPPED, e.DONE: s.DONE},
        # A roll that goes is resumed where its last driver is gone.
        (s.RUNNING, s.STOPPED): {e.RESUMED: s.RUNNING, e.CANCELLED: s.CANCELLED},
    },
)

WHAT_IF_TRANSITIONS: Final = _transition_table(
    WhatIfState,
    WhatIfEvent,
    lambda s, e: {
        s.WAITING: {e.BEGUN: s.RUNNING},
        s.RUNNING: {e.FINISHED: s.FINISHED, e.FAILED: s.FAILED},
        (s.WAITING, s.RUNNING): {e.CANCELLED: s.CANCELLED, e.INTERRUPTED: s.INTERRUPTED},
    },
)

HOST_ADMIN_TRANSITIONS: Final = _transition_table(
    HostAdmin,
    HostAdminEvent,
    lambda s, e: {
        (s.ACTIVE, s.DRAINING, s.MAINTENANCE): {
            e.ACTIVATE: s.ACTIVE,
            e.DRAIN: s.DRAINING,
            e.MAINTAIN: s.MAINTENANCE,
            e.RETIRE: s.RETIRED,
        }
    },
)

HOST_HEALTH_TRANSITIONS: Final = _transition_table(
    HostHealth,
    HostHealthEvent,
    lambda s, e: {
        tuple(s): {e.ANSWERED: s.UP},
        (s.UP, s.UNREACHABLE): {e.UNANSWERED: s.UNREACHABLE, e.GIVEN_UP: s.DOWN},
        # It never answered, so nothing is lost.
        s.ENROLLING: {e.UNANSWERED: s.ENROLLING, e.GIVEN_UP: s.ENROLLING},
        # Once it returns, it may still run VMs that were replaced elsewhere: they are removed
        # first.
        s.DOWN: {e.UNANSWERED: s.DOWN, e.GIVEN_UP: s.DOWN, e.RETURNED: s.DOWN},
    },
)

FENCE_TRANSITIONS: Final = _transition_table(
    FenceState,
    FenceEvent,
    lambda s, e: {
        (s.IDLE, s.FAILED): {e.REQUESTED: s.PENDING},
        # It fails at once if nothing says how to fence it.
        s.PENDING: {e.CLAIMED: s.RUNNING, e.FAILED: s.FAILED},
        s.RUNNING: {e.RECLAIMED: s.RUNNING, e.SUCCEEDED: s.FENCED, e.FAILED: s.FAILED},
        tuple(s): {e.CONFIRMED: s.FENCED},
        tuple(state for state in s if state != s.IDLE): {e.RETURNED: s.IDLE},
    },
)

IMAGE_TRANSITIONS: Final = _transition_table(
    ImageState,
    ImageEvent,
    lambda s, e: {
        s.IMPORTING: {e.IMPORTED: s.READY, e.FAILED: s.FAILED},
        # Its importer may learn late that the image is not wanted any more.
        (s.IMPORTING, s.READY, s.FAILED): {e.REMOVED: s.REMOVED},
    },
)

COPY_TRANSITIONS: Final = _transition_table(
    CopyState,
    CopyEvent,
    lambda s, e: {
        s.ABSENT: {e.CLAIMED: s.UPLOADING},
        s.UPLOADING: {
            e.RECLAIMED: s.UPLOADING,
            e.UPLOADED: s.PRESENT,
            e.INTERRUPTED: s.ABSENT,
            e.REFUSED: s.FAILED,
        },
        s.FAILED: {e.WANTED: s.ABSENT},
        s.PRESENT: {e.MISSING: s.ABSENT},
        tuple(s): {e.IMAGE_REMOVED: s.REMOVING},
    },
)

VOLUME_TRANSITIONS: Final = _transition_table(
    VolumeState,
    VolumeEvent,
    lambda s, e: {
        s.UNPLACED: {e.ATTACH_REQUESTED: s.CREATING, e.REMOVE_REQUESTED: s.REMOVED},
        # No guest had the file: without an attachment it is of no use on this host.
        s.CREATING: {
            e.CREATED: s.ATTACHING,
            e.ATTACH_FAILED: s.WITHDRAWING,
            e.DETACH_REQUESTED: s.WITHDRAWING,
            e.VM_GONE: s.WITHDRAWING,
            e.NOT_BUILT: s.UNPLACED,
        },
        # The guest may have the disk already, so it is detached like another.
        s.ATTACHING: {
            e.ATTACHED: s.ATTACHED,
            e.ATTACH_FAILED: s.DETACHING,
            e.DETACH_REQUESTED: s.DETACHING,
            e.VM_GONE: s.AVAILABLE,
        },
        # A guest may answer late, after its disk was left to it.
        s.ATTACHED: {
            e.DETACH_REQUESTED: s.DETACHING,
            e.DISK_GONE: s.ATTACHING,
            e.VM_GONE: s.AVAILABLE,
        },
        # The definition has lost the disk by then: attaching it again completes it.
        s.DETACHING: {
            e.DETACHED: s.AVAILABLE,
            e.UNANSWERED: s.ATTACHING,
            e.DETACH_REQUESTED: s.DETACHING,
            e.VM_GONE: s.AVAILABLE,
        },
        s.AVAILABLE: {
            e.ATTACH_REQUESTED: s.ATTACHING,
            e.REMOVE_REQUESTED: s.REMOVING,
            e.LOST: s.REMOVED,
        },
        s.WITHDRAWING: {e.WITHDRAWN: s.UNPLACED, e.LOST: s.UNPLACED},
        s.REMOVING: {e.ABSENT: s.REMOVED, e.LOST: s.REMOVED},
    },
)

CONSOLE_TRANSITIONS: Final = _transition_table(
    ConsoleState,
    ConsoleEvent,
    lambda s, e: {
        s.WAITING: {e.ATTACHED: s.ATTACHED},
        (s.WAITING, s.ATTACHED): {e.LOST: s.WAITING, e.ENDED: s.ENDED},
    },
)

SLOT_LOOP_TRANSITIONS: Final = _transition_table(
    SlotLoopState,
    SlotLoopEvent,
    lambda s, e: {s.RUNNING: {e.PAUSE: s.PAUSED}, s.PAUSED: {e.RESUME: s.RUNNING}},
)

#: Observed states of VMs with a domain: an absent one is built or has no place, a lost one is gone.
WITH_DOMAIN: Final = (VmObserved.RUNNING.value, VmObserved.STOPPED.value)
#: States of volumes that a VM has, or is about to have or to lose.
WITH_VM: Final = (
    VolumeState.CREATING,
    VolumeState.ATTACHING,
    VolumeState.ATTACHED,
    VolumeState.DETACHING,
)
#: States of volumes in which a worker has something to do.
CHANGING_VOLUMES: Final = (
    VolumeState.CREATING,
    VolumeState.ATTACHING,
    VolumeState.DETACHING,
    VolumeState.WITHDRAWING,
    VolumeState.REMOVING,
)
#: States of volumes without a file on any host.
WITHOUT_FILE: Final = (VolumeState.UNPLACED, VolumeState.REMOVED)
#: States of moves that are not over.
OPEN_MOVES: Final = (MoveState.PENDING, MoveState.MOVING)
#: States of requests whose VMs may wait for a place.
OPEN_REQUESTS: Final = (RequestState.PENDING, RequestState.PARTLY_PLACED)
#: States of requests that are over; their names are free again.
FINISHED: Final = (RequestState.RELEASED, RequestState.CANCELLED, RequestState.EXPIRED)


def next_state(table: Mapping[tuple[S, E], S], state: S, event: E) -> S:
    """Return the state after an event by a state machine's table, or raise an error."""
    try:
        return table[state, event]
    except KeyError:
        raise IllegalTransitionError(state, event) from None


#: Health of hosts on which no work begins, as it would only run into its deadline.
OUT_OF_REACH = (HostHealth.UNREACHABLE.value, HostHealth.DOWN.value)
