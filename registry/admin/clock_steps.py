"""Stored times that lie ahead of now: the database's clock stepped back after they were written.

Two kinds of times keep things from happening. A time at which something happened is never ahead
of now. A lease, a pause or a hold ends at most its length later than now. What
lies further ahead is brought back to that limit, so that nothing waits until the clock has
caught up. Times that a caller chose (the end of a request, a reservation, a token) stay as they
are, and so do the events and the audit log: what happened before the step has the times of then.
`registry.admin.moved_ends` moves ends that a wrong clock wrote, once the clock is set right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Table, func, select, true, update

from registry.admin.moved_ends import (
    SAME_SIZE,
    STEPPED_AHEAD,
    STEPPED_BACK,
    is_step_ahead_undone,
    move_after_step_ahead,
    move_after_step_back,
    move_notices,
    unseen_return,
)
from registry.admin.what_ifs import LEASE_S
from registry.audit.events import record_event
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.locks import take_advisory_lock
from registry.db.schema import (
    assignments,
    borrowed_times,
    build_failures,
    console_sessions,
    events,
    host_fences,
    host_reports,
    hosts,
    idempotency_keys,
    image_copies,
    images,
    leases,
    leftovers,
    login_codes,
    monitors,
    moves,
    plans,
    power_actions,
    processes,
    roll_hosts,
    rolls,
    slot_loop,
    spot_preemptions,
    spot_room_holds,
    tokens,
    unreleased,
    vms,
    volumes,
    what_ifs,
)
from registry.ledger.host_backoff import BUILD_AVOID_S
from registry.ledger.power import MAX_TIMEOUT_S
from registry.moves.rolls import LEASE_S as ROLL_LEASE_S
from registry.records.liveness import ClockStep
from registry.records.volumes import DETACH_TIMEOUT_S
from registry.rounds.leases import CONTROL_LEASE
from registry.tasks.assignments import HOLD_BACK_S, MAX_HOLD_BACK_S
from registry.tasks.fencing import MAX_RETRY_DELAY_S, RETRY_DELAY_S
from registry.tasks.volume_steps import LONGEST_PAUSE_S
from registry.tenancy.logins import LINK_TTL_S

#: Times at most this far ahead are left alone: clocks are adjusted by fractions of a second.
TOLERANCE: Final = timedelta(seconds=5)
#: How long a step is reported to operators.
REPORTED: Final = timedelta(days=1)
#: How long after a step ahead nothing expires by the new time; an operator corrects the clock.
HELD: Final = timedelta(hours=1)
#: Factor for processes whose settings allow longer leases than those of this process.
_SLACK: Final = 2
_MONITOR_LEASE_S: Final = 15.0
_CONSOLE_LEASE_S: Final = 10.0
#: The lease of an upload lasts for one piece; all other worker leases have the set length.
_PIECE_S: Final = 20.0
_DUE_S: Final = 5.0


_ALL: Final = true()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLengths:
    """The longest leases and pauses that the settings allow."""

    lease_s: float
    fence_timeout_s: float
    spot_grace_s: float
    room_hold_s: float


@dataclass(frozen=True, slots=True)
class _LimitedTimes:
    """Time columns of a table, each with its limit in seconds after now (0 for a past event)."""

    table: Table
    within_s: Mapping[str, float]
    which: ColumnElement[bool] = _ALL
    often: bool = True  #: False for tables with years of rows and no index to the newest


class ClockSteps(Repository):
    """Detects steps back of the database's clock and limits stored times that lie ahead."""

    def correct_times(self, lengths: LeaseLengths, *, thorough: bool = False) -> float:
        """Limit stored times ahead of the database's clock; return the seconds it stepped back.

        The result is a minimum; 0 means that no step was found.

        Parameters
        ----------
        thorough
            Check years of history too. After a step this is always done.
        """
        of_tables = list(_limited_times(lengths))
        with self._database.read() as connection:
            found = [
                _columns_ahead(connection, each) for each in of_tables if thorough or each.often
            ]
        ahead = max((each.happened for each in found), default=timedelta())
        if not any(each.columns for each in found):
            return 0.0
        back_s = ahead.total_seconds() if ahead > TOLERANCE else 0.0
        if back_s:
            # Noted first: should this process die here, another one finds and notes it again.
            self._record_step_back(back_s)
        for each in _limited_times(lengths, stepped=bool(back_s)):
            self._limit_times(each)
        return back_s

    def last_step_ahead(self) -> ClockStep | None:
        """Return the clock's last step ahead while expiry is suspended because of it, else None."""
        with self._database.read() as connection:
            return current_step_ahead(connection)

    def unseen_return_s(self) -> float:
        """Return by how much the clock may have returned from a step back while nobody led."""
        with self._database.read() as connection:
            query = select(leases.c.expires_at).where(leases.c.name == CONTROL_LEASE)
            led_until = connection.scalar(query)
            if led_until is None:
                return 0.0
            return unseen_return(connection, db_now(connection), led_until).total_seconds()

    @retry_on_rollback
    def record_step_ahead(self, ahead_s: float) -> None:
        """Record that the database's clock is this far ahead, and move the ends that this cuts.

        Does nothing if another process did. A further step within the hour is recorded with the
        whole that is held back.
        """
        with self._database.write() as connection:
            take_advisory_lock(connection, "clock_steps")
            now = db_now(connection)
            held = current_step_ahead(connection)
            more = timedelta(seconds=ahead_s - (held.ahead_s if held is not None else 0.0))
            if more <= SAME_SIZE:
                return
            move_notices(connection, more)
            move_after_step_ahead(connection, now, more)
            reason = f"the database's clock stepped ahead by {more.total_seconds():.0f} s"
            sizes = {"ahead_s": ahead_s, "more_s": more.total_seconds()}
            _record_clock_step(connection, now, STEPPED_AHEAD, reason, **sizes)

    @retry_on_rollback
    def _record_step_back(self, back_s: float) -> None:
        """Record that the clock stepped back, at least by this, and move the ends that this adds.

        Ends move only if the clock returns from a step ahead.
        """
        with self._database.write() as connection:
            take_advisory_lock(connection, "clock_steps")
            now = db_now(connection)
            move_after_step_back(connection, now, timedelta(seconds=back_s))
            reason = f"the database's clock stepped back by {back_s:.0f} s at least"
            _record_clock_step(connection, now, STEPPED_BACK, reason, back_s=back_s)

    @retry_on_rollback
    def _limit_times(self, times: _LimitedTimes) -> None:
        """Lower times of a table that lie too far ahead of the database's clock to their limits."""
        with self._database.write() as connection:
            for name in _columns_ahead(connection, times).columns:
                column = times.table.c[name]
                limit = db_now(connection) + timedelta(seconds=times.within_s[name])
                ahead = update(times.table).where(times.which, column > limit)
                connection.execute(ahead.values({name: limit}))
            if times.table is power_actions:
                _limit_force_times(connection)


def current_step_ahead(connection: Connection) -> ClockStep | None:
    """Return the clock's last step ahead while expiry is suspended because of it, else None."""
    step = _last_recorded_step(connection, STEPPED_AHEAD)
    # Set back since, the time at which it was noticed lies ahead.
    age = None if step is None else db_now(connection) - step.at
    is_held = age is not None and -TOLERANCE < age < HELD
    return step if is_held and not is_step_ahead_undone(connection) else None


def _record_clock_step(
    connection: Connection, now: datetime, kind: str, reason: str, **size_s: float
) -> None:
    """Record a step of the database's clock, with its size in seconds."""
    data = {name: round(seconds, 3) for name, seconds in size_s.items()}
    record_event(connection, now, "control", kind, "database", "clock", reason=reason, data=data)


def _limit_force_times(connection: Connection) -> None:
    """Limit the times at which guests are forced off by each guest's own timeout."""
    now = db_now(connection)
    query = select(power_actions.c.vm_id, power_actions.c.timeout_s)
    for row in connection.execute(query.where(power_actions.c.force_at > now)).all():
        limit = now + timedelta(seconds=row.timeout_s)
        ahead = (power_actions.c.vm_id == row.vm_id, power_actions.c.force_at > limit)
        connection.execute(update(power_actions).where(*ahead).values(force_at=limit))


@dataclass(frozen=True, slots=True)
class _ColumnsAhead:
    """The time columns of a table that lie too far ahead of the database's clock."""

    columns: Sequence[str]
    happened: timedelta  #: how far ahead the latest time of a past event lies


def _columns_ahead(connection: Connection, times: _LimitedTimes) -> _ColumnsAhead:
    """Return the time columns of a table that lie too far ahead of the database's clock."""
    columns = [func.max(times.table.c[name]).label(name) for name in times.within_s]
    last = connection.execute(select(*columns).where(times.which)).one()._mapping
    now = db_now(connection)  # after the query, so all that it read was written before
    latest: dict[str, datetime] = {name: at for name, at in last.items() if at is not None}
    happened = [
        at - now
        for name, at in latest.items()
        # Slots begin on the clock of the control centre's machine.
        if not times.within_s[name] and times.table is not slot_loop
    ]
    return _ColumnsAhead(
        [
            name
            for name, at in latest.items()
            if at > now + timedelta(seconds=times.within_s[name]) + TOLERANCE
        ],
        max(happened, default=timedelta()),
    )


def _limited_times(lengths: LeaseLengths, *, stepped: bool = False) -> Iterator[_LimitedTimes]:
    """Yield the time columns that can delay work if they lie ahead of the database's clock.

    After a step, pauses that grow with each failure begin with the shortest, as their former
    length is not known. The columns that always reveal a step come last: if the correction fails
    halfway, the step is found again.
    """
    again_s = RETRY_DELAY_S if stepped else MAX_RETRY_DELAY_S
    hold_back_s = HOLD_BACK_S if stepped else MAX_HOLD_BACK_S
    lease_s = _SLACK * lengths.lease_s
    worker = {"lease_until": lease_s, "sent_at": 0.0}
    upload = {"lease_until": lease_s + _PIECE_S, "sent_at": 0.0}
    fence = {"lease_until": lease_s + _SLACK * lengths.fence_timeout_s, "sent_at": 0.0}
    yield _LimitedTimes(leftovers, {**worker, "found_at": 0})
    yield _LimitedTimes(
        host_fences, {**fence, "requested_at": 0, "fenced_at": 0, "retry_at": again_s}
    )
    yield _LimitedTimes(images, upload)
    yield _LimitedTimes(image_copies, {**upload, "present_at": 0, "host_lost_at": 0})
    yield _LimitedTimes(
        power_actions,
        {
            **worker,
            "requested_at": 0,
            "signalled_at": 0,
            "due_at": _DUE_S,
            "force_at": MAX_TIMEOUT_S,
        },
    )
    yield _LimitedTimes(
        volumes,
        {**worker, "due_at": LONGEST_PAUSE_S, "detach_until": DETACH_TIMEOUT_S, "changed_at": 0},
    )
    console = {
        "lease_until": _CONSOLE_LEASE_S,
        "sent_at": 0.0,
        "heartbeat_at": 0.0,
        "opened_at": 0.0,
    }
    yield _LimitedTimes(console_sessions, console)
    yield _LimitedTimes(moves, worker, moves.c.state.in_(("pending", "moving")))
    yield _LimitedTimes(assignments, {**worker, "build_began_at": 0, "activated_at": 0}, unreleased)
    yield _LimitedTimes(vms, {"switched_at": 0}, vms.c.deleted_at.is_(None))
    yield _LimitedTimes(rolls, {"driver_lease_until": ROLL_LEASE_S}, rolls.c.state == "running")
    yield _LimitedTimes(roll_hosts, {"since": 0})
    yield _LimitedTimes(
        what_ifs, {"lease_until": LEASE_S}, what_ifs.c.state.in_(("waiting", "running"))
    )
    yield _LimitedTimes(build_failures, {"avoid_until": BUILD_AVOID_S})
    yield _LimitedTimes(spot_preemptions, {"ends_at": lengths.spot_grace_s})
    yield _LimitedTimes(spot_room_holds, {"until": lengths.spot_grace_s + lengths.room_hold_s})
    yield _LimitedTimes(login_codes, {"expires_at": LINK_TTL_S})
    yield _LimitedTimes(slot_loop, {"last_slot_at": 0, "changed_at": 0})
    yield _LimitedTimes(assignments, {"released_at": 0}, often=False)
    yield _LimitedTimes(borrowed_times, {"since": 0, "until": 0}, often=False)
    yield _LimitedTimes(moves, {"ended_at": 0}, often=False)
    yield _LimitedTimes(plans, {"requested_at": 0, "ended_at": 0}, often=False)
    yield _LimitedTimes(tokens, {"last_used_at": 0}, often=False)
    yield _LimitedTimes(idempotency_keys, {"started_at": 0, "first_used_at": 0}, often=False)
    yield _LimitedTimes(
        monitors, {"lease_until": _MONITOR_LEASE_S, "started_at": 0, "heartbeat_at": 0}
    )
    yield _LimitedTimes(host_reports, {"polled_at": 0})
    yield _LimitedTimes(
        hosts,
        {
            "backoff_until": hold_back_s,
            "returning_since": 0,
            "pool_silent_since": 0,
            "last_missed_at": 0,
            "last_polled_at": 0,
        },
    )
    yield _LimitedTimes(processes, {"started_at": 0, "heartbeat_at": 0})


def clock_ahead_s(connection: Connection) -> float:
    """Return by how many seconds the newest heartbeat or poll lies ahead of the clock, or 0."""
    ends: tuple[Column[Any], ...] = (
        processes.c.heartbeat_at,
        monitors.c.heartbeat_at,
        hosts.c.last_polled_at,
    )
    newest: list[datetime | None] = [connection.scalar(select(func.max(each))) for each in ends]
    now = db_now(connection)
    return max((at - now).total_seconds() for at in (*newest, now) if at is not None)


def last_clock_step(connection: Connection) -> ClockStep | None:
    """Return the last step of the database's clock, if it was noticed within a day.

    A step ahead that was undone is reported as the step back.
    """
    now = db_now(connection)
    steps = (_last_recorded_step(connection, kind) for kind in (STEPPED_BACK, STEPPED_AHEAD))
    known = [step for step in steps if step and -TOLERANCE < now - step.at <= REPORTED]
    return max(known, key=lambda step: step.at, default=None)


def _last_recorded_step(connection: Connection, kind: str) -> ClockStep | None:
    """Return the newest recorded step of the database's clock of one kind, or None."""
    query = select(events.c.at, events.c.data).where(events.c.kind == kind)
    row = connection.execute(query.order_by(events.c.id.desc()).limit(1)).one_or_none()
    if row is None:
        return None
    sizes = {name: row.data[name] for name in ("back_s", "ahead_s") if name in row.data}
    return ClockStep(at=row.at, **sizes)
