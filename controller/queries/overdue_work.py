"""Overdue work: no process decides, builds, or polls hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Final, Literal

from pydantic import Field

from registry import SlotLoopState
from registry.admin import LATE_S, Liveness, ProcessHeartbeat, is_late

Work = Literal["decide", "build", "poll"]
#: The work of each kind of process.
_WORK_OF_PROCESSES: Final[tuple[tuple[str, Work], ...]] = (
    ("control", "decide"),
    ("worker", "build"),
    ("monitor", "poll"),
)
_PROCESS_NAMES: Final = {"control": "control centre", "worker": "worker", "monitor": "monitor"}
#: Beginning of a sentence about the database's disk (see `service.disks`).
_DATABASES_DISK: Final = "the disk of the database "
_FULL: Final = f"{_DATABASES_DISK}is full"  #: a write was refused
_LATE: Final = timedelta(seconds=LATE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueWork:
    """Work of a site that is overdue: since when, and what is wrong."""

    work: Work
    unattended: Annotated[
        bool, Field(description="No process does it; else one process of several is late.")
    ]
    since: Annotated[datetime | None, Field(description="Null: always, or no known time.")]
    message: str  #: for operators, with names of processes


def overdue_work(liveness: Liveness, disks: Sequence[str] = ()) -> tuple[OverdueWork, ...]:
    """Return overdue work of processes, by their heartbeats and the last slot.

    All times are on the database's clock.

    ``disks`` are sentences about disks without room. If the database's disk is full, or has little
    room and all processes are silent, live processes may be unable to write heartbeats: then the
    messages name the disk, too.
    """
    full = next((each for each in disks if each.startswith(_FULL)), None)
    if full is None and all(is_late(each, liveness.now) for each in liveness.processes):
        full = next((each for each in disks if each.startswith(_DATABASES_DISK)), None)
    found: list[OverdueWork] = []
    for kind, what in _WORK_OF_PROCESSES:
        found += _overdue_processes(liveness, kind, what)
        if what == "decide" and not any(each.unattended for each in found):
            found += _overdue_slots(liveness)
    if full is None:
        return tuple(found)
    return tuple(
        each
        if each.since is None
        else replace(each, message=f"{each.message}; perhaps it cannot write: {full}")
        for each in found
    )


def unattended_work(late: tuple[OverdueWork, ...], what: Work) -> OverdueWork | None:
    """Return the overdue work of a kind if no process does that work, or None."""
    return next((each for each in late if each.work == what and each.unattended), None)


def _overdue_processes(liveness: Liveness, kind: str, what: Work) -> Iterator[OverdueWork]:
    """Yield the processes of a kind that are silent or report trouble."""
    now, called = liveness.now, _PROCESS_NAMES[kind]
    known = [each for each in liveness.processes if each.kind == kind]
    silent = [each for each in known if is_late(each, now)]
    if kind == "control" and not known:
        return  # judged by its lease: a control centre of an earlier release writes no heartbeats
    if len(silent) == len(known):
        last = max((each.heartbeat_at for each in known), default=None)
        named = f": {', '.join(each.name for each in known)}" if known else ""
        yield OverdueWork(
            work=what, unattended=True, since=last, message=f"no {called} responds{named}"
        )
        return
    for each in silent:
        yield OverdueWork(
            work=what,
            unattended=False,
            since=each.heartbeat_at,
            message=f"{called} {each.name} does not respond",
        )
    for each in _processes_with_trouble(known, silent):
        yield OverdueWork(
            work=what, unattended=False, since=None, message=f"{called} {each.name}: {each.trouble}"
        )


def _processes_with_trouble(
    known: list[ProcessHeartbeat], silent: list[ProcessHeartbeat]
) -> list[ProcessHeartbeat]:
    return [each for each in known if each.trouble is not None and each not in silent]


def _overdue_slots(liveness: Liveness) -> Iterator[OverdueWork]:
    """Yield why no slot is decided: no control centre leads, or the leader decides none."""
    lease, loop, now = liveness.lease, liveness.slot_loop, liveness.now
    if lease is None:
        yield OverdueWork(
            work="decide", unattended=True, since=None, message="no control centre leads yet"
        )
    elif lease.expires_at <= now:
        yield OverdueWork(
            work="decide",
            unattended=True,
            since=lease.expires_at,
            message=f"no control centre leads: {lease.holder} was the last",
        )
    elif loop.state is not SlotLoopState.PAUSED:
        yield from _overdue_leader(liveness)


def _overdue_leader(liveness: Liveness) -> Iterator[OverdueWork]:
    """Yield a leader that decides no slots, because it hangs or restarts repeatedly."""
    lease, loop = liveness.lease, liveness.slot_loop
    assert lease is not None  # noqa: S101 - called only then
    resumed_at = loop.changed_at
    length = timedelta(seconds=loop.slot_length_s or 0.0)
    began = [each for each in (loop.last_slot_at, resumed_at) if each is not None]
    if loop.last_slot_at is None and lease.epoch == 1 and lease.held_since is not None:
        began.append(lease.held_since)  # the first leader ever, before its first slot
        length = timedelta(seconds=60)
    since = max(began, default=None)
    known = any(each.kind == "control" for each in liveness.processes)
    if since is None and not known:
        return  # an earlier release, which did not record its slots
    if since is None or liveness.now - since > 2 * length + _LATE:
        yield OverdueWork(
            work="decide",
            unattended=True,
            since=loop.last_slot_at,
            message=f"no slot was decided although {lease.holder} leads",
        )
