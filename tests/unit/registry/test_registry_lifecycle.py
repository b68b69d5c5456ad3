"""Every (state, event) pair of every machine, against grids written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pytest

from registry import lifecycle
from registry.errors import IllegalTransitionError
from registry.lifecycle import next_state
from tests.chaos.tables import MACHINES as CHECKED

# A row for each state, a column for each event, '-' where nothing leads on.
GRIDS = {
    "REQUEST": """
                   none_placed  part_placed    all_placed  all_gone  cancelled  expired
    pending        pending      partly_placed  placed      released  cancelled  expired
    partly_placed  pending      partly_placed  placed      released  -          expired
    placed         pending      partly_placed  placed      released  -          expired
    released       -            -              -           -         -          -
    cancelled      -            -              -           -         -          -
    expired        -            -              -           -         -          -
    """,
    "VM_DESIRED": """
             start    stop     reboot   delete
    running  running  stopped  running  deleted
    stopped  running  stopped  -        deleted
    deleted  -        -        -        deleted
    """,
    "POWER": """
                  stop     start      reboot     signalled     seen_off seen_on reset failed dropped
    idle          stopping starting   rebooting  -             -        -       -     -      -
    stopping      stopping starting   -          shutting_down idle     -       -     -      idle
    shutting_down shutting_down restarting -     shutting_down idle     -       -     -      idle
    starting      stopping starting   rebooting  -             -        idle    -     idle   idle
    rebooting     stopping rebooting  rebooting  restarting    starting -       idle  idle   idle
    restarting    shutting_down restarting restarting restarting starting -     idle  idle   idle
    """,
    "VM_OBSERVED": """
             seen_running  seen_stopped  seen_paused  missing  proven_absent
    absent   running       stopped       absent       lost     absent
    running  running       stopped       running      lost     absent
    stopped  running       stopped       stopped      lost     absent
    lost     running       stopped       absent       lost     absent
    """,
    "ASSIGNMENT": """
            claimed reclaimed started failed delete_requested withdrawn proven_absent fenced \
            missing arrived left not_arrived
    reserved creating - - - released released - released - - - -
    creating - creating active quarantined releasing - - released - - - -
    active - active - quarantined releasing - - released quarantined - leaving -
    releasing - - releasing releasing releasing - released released - - - -
    released - - - - - - - - - - - -
    quarantined - - - quarantined releasing - released released - - - -
    arriving - - - - arriving released - released - active - leaving
    leaving - - - - leaving - released released - - - -
    """,
    "MOVE": """
               claimed  reclaimed  arrived  failed  cancelled
    pending    moving   -          -        failed  cancelled
    moving     -        moving     moved    failed  cancelled
    moved      -        -          -        -       -
    failed     -        -          -        -       -
    cancelled  -        -          -        -       -
    """,
    "HOST_ADMIN": """
                 activate  drain     maintain     retire
    active       active    draining  maintenance  retired
    draining     active    draining  maintenance  retired
    maintenance  active    draining  maintenance  retired
    retired      -         -         -            -
    """,
    "HOST_HEALTH": """
                 answered  unanswered   given_up   returned
    enrolling    up        enrolling    enrolling  -
    up           up        unreachable  down       -
    unreachable  up        unreachable  down       -
    down         up        down         down       down
    """,
    "FENCE": """
             requested  claimed  reclaimed  succeeded  failed  confirmed  returned
    idle     pending  -        -          -          -       fenced     -
    pending  -      running  -          -          failed  fenced     idle
    running  -      -        running    fenced     failed  fenced     idle
    failed   pending  -        -          -          -       fenced     idle
    fenced   -      -        -          -          -       fenced     idle
    """,
    "IMAGE": """
               imported  failed  removed
    importing  ready     failed  removed
    ready      -         -       removed
    failed     -         -       removed
    removed    -         -       -
    """,
    "PLAN": """
               proposed  approved  done  cancelled  failed
    pending    proposed  -         -     cancelled  failed
    proposed   -         approved  done  cancelled  -
    approved   -         -         done  cancelled  -
    done       -         -         -     -          -
    cancelled  -         -         -     -          -
    failed     -         -         -     -          -
    """,
    "ROLL": """
               stopped  resumed  done  cancelled
    running    stopped  running  done  cancelled
    stopped    -        running  -     cancelled
    done       -        -        -     -
    cancelled  -        -        -     -
    """,
    "CONSOLE": """
              attached  lost     ended
    waiting   attached  waiting  ended
    attached  -         waiting  ended
    ended     -         -        -
    """,
    "COPY": """
              claimed   reclaimed uploaded interrupted refused wanted missing image_removed
    absent    uploading -         -        -           -       -      -       removing
    uploading -         uploading present  absent      failed  -      -       removing
    present   -         -         -        -           -       -      absent  removing
    failed    -         -         -        -           -       absent -       removing
    removing  -         -         -        -           -       -      -       removing
    """,
    "VOLUME": """
                attach_requested created   attached attach_failed detach_requested detached  unanswered withdrawn vm_gone     remove_requested absent  disk_gone lost     not_built
    unplaced    creating         -         -        -             -                -         -          -         -           removed          -       -         -        -
    creating    -                attaching -        withdrawing   withdrawing      -         -          -         withdrawing -                -       -         -        unplaced
    attaching   -                -         attached detaching     detaching        -         -          -         available   -                -       -         -        -
    attached    -                -         -        -             detaching        -         -          -         available   -                -       attaching -        -
    detaching   -                -         -        -             detaching        available attaching  -         available   -                -       -         -        -
    available   attaching        -         -        -             -                -         -          -         -           removing         -       -         removed  -
    withdrawing -                -         -        -             -                -         -          unplaced  -           -                -       -         unplaced -
    removing    -                -         -        -             -                -         -          -         -           -                removed -         removed  -
    removed     -                -         -        -             -                -         -          -         -           -                -       -         -        -
    """,  # noqa: E501 - a column for each event
    "SLOT_LOOP": """
             pause   resume
    running  paused  -
    paused   -       running
    """,
    "SPOT": """
         announced  withdrawn  due    deleted
    stays   ending  -          -      -
    ending  -       stays      gone   gone
    gone    -       -          -      -
    """,
    "WHAT_IF": """
                 begun    finished  failed  cancelled  interrupted
    waiting      running  -         -       cancelled  interrupted
    running      -        finished  failed  cancelled  interrupted
    finished     -        -         -       -          -
    failed       -        -         -       -          -
    cancelled    -        -         -       -          -
    interrupted  -        -         -       -          -
     """,
    "RESERVATION": """
              accepted  refused  began     ended  cancelled
    pending   accepted  refused  -         -      cancelled
    accepted  -         -        in_force  ended  cancelled
    in_force  -         -        -         ended  cancelled
    refused   -         -        -         -      -
    ended     -         -        -         -      -
    cancelled -         -        -         -      -
    """,
}
MACHINES: dict[str, tuple[type[StrEnum], type[StrEnum], StrEnum]] = {
    "REQUEST": (lifecycle.RequestState, lifecycle.RequestEvent, lifecycle.RequestState.PENDING),
    "VM_DESIRED": (lifecycle.VmDesired, lifecycle.VmDesiredEvent, lifecycle.VmDesired.RUNNING),
    "POWER": (lifecycle.PowerState, lifecycle.PowerEvent, lifecycle.PowerState.IDLE),
    "VM_OBSERVED": (lifecycle.VmObserved, lifecycle.VmObservedEvent, lifecycle.VmObserved.ABSENT),
    "ASSIGNMENT": (
        lifecycle.AssignmentState,
        lifecycle.AssignmentEvent,
        lifecycle.AssignmentState.RESERVED,
    ),
    "HOST_ADMIN": (lifecycle.HostAdmin, lifecycle.HostAdminEvent, lifecycle.HostAdmin.ACTIVE),
    "HOST_HEALTH": (
        lifecycle.HostHealth,
        lifecycle.HostHealthEvent,
        lifecycle.HostHealth.ENROLLING,
    ),
    "FENCE": (lifecycle.FenceState, lifecycle.FenceEvent, lifecycle.FenceState.IDLE),
    "IMAGE": (lifecycle.ImageState, lifecycle.ImageEvent, lifecycle.ImageState.IMPORTING),
    "MOVE": (lifecycle.MoveState, lifecycle.MoveEvent, lifecycle.MoveState.PENDING),
    "PLAN": (lifecycle.PlanState, lifecycle.PlanEvent, lifecycle.PlanState.PENDING),
    "ROLL": (lifecycle.RollState, lifecycle.RollEvent, lifecycle.RollState.RUNNING),
    "CONSOLE": (lifecycle.ConsoleState, lifecycle.ConsoleEvent, lifecycle.ConsoleState.WAITING),
    "COPY": (lifecycle.CopyState, lifecycle.CopyEvent, lifecycle.CopyState.ABSENT),
    "VOLUME": (lifecycle.VolumeState, lifecycle.VolumeEvent, lifecycle.VolumeState.UNPLACED),
    "SLOT_LOOP": (
        lifecycle.SlotLoopState,
        lifecycle.SlotLoopEvent,
        lifecycle.SlotLoopState.RUNNING,
    ),
    "RESERVATION": (
        lifecycle.ReservationState,
        lifecycle.ReservationEvent,
        lifecycle.ReservationState.PENDING,
    ),
    "SPOT": (lifecycle.SpotState, lifecycle.SpotEvent, lifecycle.SpotState.STAYS),
    "WHAT_IF": (lifecycle.WhatIfState, lifecycle.WhatIfEvent, lifecycle.WhatIfState.WAITING),
}
TERMINAL = {
    "REQUEST": {"released", "cancelled", "expired"},
    "VM_DESIRED": {"deleted"},
    "POWER": set(),
    "VM_OBSERVED": set(),
    "ASSIGNMENT": {"released"},
    "HOST_ADMIN": {"retired"},
    "HOST_HEALTH": set(),
    "FENCE": set(),
    "IMAGE": {"removed"},
    "CONSOLE": {"ended"},
    "MOVE": {"moved", "failed", "cancelled"},
    "PLAN": {"done", "cancelled", "failed"},
    "ROLL": {"done", "cancelled"},
    "COPY": {"removing"},
    "VOLUME": {"removed"},
    "SLOT_LOOP": set(),
    "RESERVATION": {"refused", "ended", "cancelled"},
    "SPOT": {"gone"},
    "WHAT_IF": {"finished", "failed", "cancelled", "interrupted"},
}


def table_of(machine: str) -> Mapping[Any, StrEnum]:
    table: Mapping[Any, StrEnum] = getattr(lifecycle, f"{machine}_TRANSITIONS")
    return table


def pairs() -> list[Any]:
    found = []
    for machine, grid in GRIDS.items():
        head, *rows = [line.split() for line in grid.strip().splitlines()]
        for state, *cells in rows:
            found += [
                pytest.param(machine, state, event, cell, id=f"{machine}-{state}-{event}")
                for event, cell in zip(head, cells, strict=True)
            ]
    return found


@pytest.mark.parametrize(("machine", "state", "event", "expected"), pairs())
def test_each_event_in_each_state_leads_where_the_grid_says(
    machine: str, state: str, event: str, expected: str
) -> None:
    states, events, _ = MACHINES[machine]

    if expected == "-":
        with pytest.raises(IllegalTransitionError, match=f"{event} is not possible in .*{state}"):
            next_state(table_of(machine), states(state), events(event))
    else:
        assert next_state(table_of(machine), states(state), events(event)) == states(expected)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_grid_has_every_state_and_every_event(machine: str) -> None:
    states, events, _ = MACHINES[machine]
    head, *rows = [line.split() for line in GRIDS[machine].strip().splitlines()]

    assert set(head) == {event.value for event in events}
    assert {row[0] for row in rows} == {state.value for state in states}


@pytest.mark.parametrize("machine", MACHINES)
def test_no_state_is_unreachable(machine: str) -> None:
    states, _, first = MACHINES[machine]

    # An assignment begins with a place in a round, or with a move.
    begins = {first, lifecycle.AssignmentState.ARRIVING} if machine == "ASSIGNMENT" else {first}
    reached, frontier = set(begins), list(begins)
    while frontier:
        state = frontier.pop()
        for (before, _event), after in table_of(machine).items():
            if before == state and after not in reached:
                reached.add(after)
                frontier.append(after)

    assert reached == set(states)


@pytest.mark.parametrize("machine", MACHINES)
def test_terminal_states_and_only_they_have_no_exit(machine: str) -> None:
    states, _, _ = MACHINES[machine]

    without_exit = {
        state.value
        for state in states
        if all(
            after == state for (before, _), after in table_of(machine).items() if before == state
        )
    }

    assert without_exit == TERMINAL[machine]


@pytest.mark.parametrize("machine", MACHINES)
def test_tables_cannot_be_changed(machine: str) -> None:
    with pytest.raises(TypeError):
        table_of(machine)["x"] = "y"  # type: ignore[index]


@pytest.mark.parametrize(
    ("checked", "machine"),
    [
        ("assignment", "ASSIGNMENT"),
        ("move", "MOVE"),
        ("plan", "PLAN"),
        ("request", "REQUEST"),
        ("observed", "VM_OBSERVED"),
        ("desired", "VM_DESIRED"),
        ("health", "HOST_HEALTH"),
        ("admin", "HOST_ADMIN"),
    ],
)
def test_the_checker_of_chaos_runs_was_told_of_every_change(checked: str, machine: str) -> None:
    # Of what changes nothing some is told (a reclaim), most is not.
    shown = {step for step in CHECKED[checked].steps if step[1] is not None and step[0] != step[2]}
    allowed = {
        (str(before), str(event), str(after))
        for (before, event), after in table_of(machine).items()
        if before != after
    }

    assert shown == allowed, "tests/chaos/tables.py says something else"
