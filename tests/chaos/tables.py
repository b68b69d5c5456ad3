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
""") | _any("reserved creating active quarantined releasing", "fenced", "released")

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

MACHINES: Mapping[str, Machine] = {
    "assignment": Machine(
        frozenset({"assignment_state"}),
        "SELECT id, state FROM assignments",
        frozenset(_ASSIGNMENT),
    ),
    "request": Machine(
        frozenset({"request_created", "request_state"}),
        "SELECT id, state FROM requests",
        frozenset(_REQUEST),
    ),
    "observed": Machine(
        frozenset({"vm_observed", "vm_missing"}),
        "SELECT id, observed FROM vms",
        frozenset(_OBSERVED),
    ),
    "desired": Machine(
        frozenset({"vm_desired"}), "SELECT id, desired FROM vms", frozenset(_DESIRED)
    ),
    "health": Machine(
        frozenset({"host_health"}), "SELECT id, health FROM hosts", frozenset(_HEALTH)
    ),
    "admin": Machine(
        frozenset({"host_added", "host_admin"}), "SELECT id, admin FROM hosts", frozenset(_ADMIN)
    ),
}

#: Of a subject of which no event tells yet.
FIRST: Mapping[str, str | None] = {
    "assignment": None,
    "request": None,
    "observed": "absent",
    "desired": "running",
    "health": "enrolling",
    "admin": None,
}
