"""What may follow what, stated here once more, apart from the product's own tables.

Each machine is the events of some kinds about one type of subject: from what
state by which event to what. None is before the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Step = tuple[str | None, str | None, str]


@dataclass(frozen=True)
class Machine:
    """Kinds of events that tell of one state, where the state is stored, and its steps."""

    kinds: frozenset[str]
    stored: str | None  #: a query: id and state of every subject
    steps: frozenset[Step]


def _any(states: str, event: str, to: str) -> set[Step]:
    return {(state, event, to) for state in states.split() if state != to}


def _steps(text: str) -> set[Step]:
    found: set[Step] = set()
    for line in text.strip().splitlines():
        before, event, after = line.split()
        found.add((None if before == "-" else before, None if event == "-" else event, after))
    return found


_ASSIGNMENT = _steps("""
    -            -                 reserved
    reserved     claimed           creating
    reserved     delete_requested  released
    reserved     withdrawn         released
    creating     reclaimed         creating
    creating     started           active
    creating     failed            quarantined
    creating     delete_requested  releasing
    active       reclaimed         active
    active       failed            quarantined
    active       missing           quarantined
    active       delete_requested  releasing
    quarantined  delete_requested  releasing
    quarantined  proven_absent     released
    releasing    proven_absent     released
    -            -                 arriving
    arriving     arrived           active
    arriving     not_arrived       leaving
    arriving     withdrawn         released
    active       left              leaving
    leaving      proven_absent     released
""") | _any("reserved creating active quarantined releasing arriving leaving", "fenced", "released")

_COPY = _steps("""
    -          wanted       absent
    absent     claimed      uploading
    uploading  reclaimed    uploading
    uploading  uploaded     present
    uploading  interrupted  absent
    uploading  refused      failed
    failed     wanted       absent
    present    missing      absent
""")

_MOVE = _steps("""
    -       -          pending
    pending   claimed    moving
    pending   failed     failed
    pending   cancelled  cancelled
    moving  reclaimed  moving
    moving  arrived    moved
    moving  failed     failed
    moving  cancelled  cancelled
""")

_PLAN = _steps("""
    pending     proposed   proposed
    pending     failed     failed
    pending     cancelled  cancelled
    proposed  approved   approved
    proposed  done       done
    proposed  cancelled  cancelled
    approved  done       done
    approved  cancelled  cancelled
""")

_ROLL = _steps("""
    running    stopped    stopped
    running    resumed    running
    running    done       done
    running    cancelled  cancelled
    stopped  resumed    running
    stopped  cancelled  cancelled
""")

_REQUEST = (
    _steps("""
    -            -            pending
    pending      cancelled    cancelled
""")
    | _any("pending partly_placed placed", "none_placed", "pending")
    | _any("pending partly_placed placed", "part_placed", "partly_placed")
    | _any("pending partly_placed placed", "all_placed", "placed")
    | _any("pending partly_placed placed", "all_gone", "released")
    | _any("pending partly_placed placed", "expired", "expired")
)

_OBSERVED = (
    _any("absent running stopped lost", "seen_running", "running")
    | _any("absent running stopped lost", "seen_stopped", "stopped")
    | _any("absent running stopped lost", "missing", "lost")
    | _any("absent running stopped lost", "proven_absent", "absent")
    | _steps("lost seen_paused absent")
)

_DESIRED = _steps("""
    running  stop    stopped
    running  reboot  running
    running  delete  deleted
    stopped  start   running
    stopped  delete  deleted
""")

_POWER = _steps("""
    idle           stop       stopping
    idle           start      starting
    idle           reboot     rebooting
    stopping       stop       stopping
    stopping       start      starting
    stopping       signalled  shutting_down
    stopping       seen_off   idle
    shutting_down  stop       shutting_down
    shutting_down  start      restarting
    shutting_down  signalled  shutting_down
    shutting_down  seen_off   idle
    starting       stop       stopping
    starting       start      starting
    starting       reboot     rebooting
    starting       seen_on    idle
    rebooting      start      rebooting
    rebooting      stop       stopping
    rebooting      reboot     rebooting
    rebooting      signalled  restarting
    rebooting      seen_off   starting
    rebooting      reset      idle
    restarting     start      restarting
    restarting     stop       shutting_down
    restarting     reboot     restarting
    restarting     signalled  restarting
    restarting     seen_off   starting
    restarting     reset      idle
""") | _any("starting rebooting restarting", "failed", "idle")
_POWER |= _any("stopping shutting_down starting rebooting restarting", "dropped", "idle")

_FENCE = (
    _steps("""
    idle     requested  pending
    failed   requested  pending
    pending    claimed    running
    pending    failed     failed
    running  reclaimed  running
    running  succeeded  fenced
    running  failed     failed
""")
    | _any("pending running failed fenced", "returned", "idle")
    | _any("idle pending running failed", "confirmed", "fenced")
)

_HEALTH = _any("enrolling unreachable down", "answered", "up") | _steps("""
    up           unanswered  unreachable
    up           given_up    down
    unreachable  given_up    down
    down         returned    down
""")

_ADMIN = (
    _steps("- - active")
    | _any("active draining maintenance", "activate", "active")
    | _any("active draining maintenance", "drain", "draining")
    | _any("active draining maintenance", "maintain", "maintenance")
    | _any("active draining maintenance", "retire", "retired")
)

_SPOT = _steps("""
    stays   announced  ending
    ending  withdrawn  stays
    ending  due        gone
    ending  deleted    gone
""")

_RESERVATION = _steps("""
    pending     accepted   accepted
    pending     refused    refused
    pending     cancelled  cancelled
    accepted  began      in_force
    accepted  ended      ended
    accepted  cancelled  cancelled
    in_force  ended      ended
    in_force  cancelled  cancelled
""")

_VOLUME = _steps("""
    unplaced     attach_requested  creating
    unplaced     remove_requested  removed
    creating     created           attaching
    creating     not_built         unplaced
    creating     attach_failed     withdrawing
    creating     detach_requested  withdrawing
    creating     vm_gone           withdrawing
    withdrawing  withdrawn         unplaced
    attaching    attached          attached
    attaching    attach_failed     detaching
    attaching    detach_requested  detaching
    attached     detach_requested  detaching
    attached     disk_gone         attaching
    detaching    detached          available
    detaching    unanswered        attaching
    detaching    detach_requested  detaching
    available    attach_requested  attaching
    available    remove_requested  removing
    removing     absent            removed
""") | _any("attaching attached detaching", "vm_gone", "available")

MACHINES: Mapping[str, Machine] = {
    "assignment": Machine(
        frozenset({"assignment_state"}), "SELECT id, state FROM assignments", frozenset(_ASSIGNMENT)
    ),
    "request": Machine(
        frozenset({"request_created", "request_state"}),
        "SELECT id, state FROM requests",
        frozenset(_REQUEST),
    ),
    "image": Machine(
        frozenset({"image_added"}), "SELECT id, state FROM images", frozenset(_steps("- - ready"))
    ),
    "image copy": Machine(
        frozenset({"image_copy_state"}),
        "SELECT c.image_id || ' ' || h.name, c.state FROM image_copies c"
        " JOIN hosts h ON h.id = c.host_id",
        frozenset(_COPY),
    ),
    "move": Machine(frozenset({"move_state"}), "SELECT id, state FROM moves", frozenset(_MOVE)),
    "plan": Machine(frozenset({"plan_state"}), "SELECT id, state FROM plans", frozenset(_PLAN)),
    "roll": Machine(frozenset({"roll_state"}), "SELECT id, state FROM rolls", frozenset(_ROLL)),
    "observed": Machine(
        frozenset({"vm_observed", "vm_missing"}),
        "SELECT id, observed FROM vms",
        frozenset(_OBSERVED),
    ),
    "desired": Machine(
        frozenset({"vm_desired"}), "SELECT id, desired FROM vms", frozenset(_DESIRED)
    ),
    "power": Machine(
        frozenset({"vm_power"}),
        "SELECT v.id, coalesce(p.state, 'idle') FROM vms v"
        " LEFT JOIN power_actions p ON p.vm_id = v.id",
        frozenset(_POWER),
    ),
    "fence": Machine(
        frozenset({"host_fence"}),
        "SELECT h.id, coalesce(f.state, 'idle') FROM hosts h"
        " LEFT JOIN host_fences f ON f.host_id = h.id",
        frozenset(_FENCE),
    ),
    "health": Machine(
        frozenset({"host_health"}), "SELECT id, health FROM hosts", frozenset(_HEALTH)
    ),
    "spot": Machine(
        frozenset({"spot_ending"}), "SELECT vm_id, 'ending' FROM spot_preemptions", frozenset(_SPOT)
    ),
    "reservation": Machine(
        frozenset({"reservation_state"}),
        "SELECT id, state FROM reservations",
        frozenset(_RESERVATION),
    ),
    "volume": Machine(
        frozenset({"volume_state"}), "SELECT id, state FROM volumes", frozenset(_VOLUME)
    ),
    "admin": Machine(
        frozenset({"host_added", "host_admin"}), "SELECT id, admin FROM hosts", frozenset(_ADMIN)
    ),
}

#: Of a subject of which no event tells yet.
FIRST: Mapping[str, str | None] = {
    "assignment": None,
    "request": None,
    "image": None,
    "image copy": None,
    "move": None,
    "plan": "pending",
    "roll": "running",
    "observed": "absent",
    "desired": "running",
    "power": "idle",
    "fence": "idle",
    "health": "enrolling",
    "spot": "stays",
    "reservation": "pending",
    "volume": "unplaced",
    "admin": None,
}
