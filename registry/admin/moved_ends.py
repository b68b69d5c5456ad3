"""Moves ends that were written by a wrong clock of the database, once the clock is set right.

A lifetime is a number of seconds from when it was given. Its end is stored as a time, by the clock
of that moment. When the clock steps from there to another time, the end moves by the step, so that
as much of the lifetime is left as before.

The numbers of events say by which clock an end was written: they rise whatever the clock does. The
events' times confirm it.

A step ahead moves what was written since the last step back that it undoes. A step back moves what
was written since the step ahead that it undoes; if it undoes none, nothing moves. Ends at a time
that somebody chose (a reservation that begins later) never move.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    Table,
    and_,
    bindparam,
    func,
    select,
    update,
)

from registry.audit.events import event_row, record_events
from registry.db.bulk import chunks, is_any_of
from registry.db.schema import (
    events,
    power_actions,
    requests,
    reservations,
    spot_preemptions,
    spot_room_holds,
    tokens,
)
from registry.lifecycle import FINISHED, OPEN_RESERVATIONS

STEPPED_BACK: Final = "clock_stepped_back"
STEPPED_AHEAD: Final = "clock_stepped_ahead"
END_MOVED: Final = "end_moved"
#: Steps whose sizes differ by at most this undo each other: a step back is known by its least size.
SAME_SIZE: Final = timedelta(seconds=60)
#: Within this time of a step ahead, a step back of its size undoes it.
UNDONE_WITHIN: Final = timedelta(days=1)
#: The longest that a step back is in force before it is noticed, while a control centre leads.
_UNNOTICED: Final = timedelta(seconds=60)
#: So long after a step back, a time without a leader of its length is taken for a return.
_RETURNS_WITHIN: Final = timedelta(days=7)
#: Events and steps before a step that are searched.
_EVENTS_BEFORE: Final = 100_000
_STEPS_BEFORE: Final = 50


@dataclass(frozen=True, slots=True)
class _Ends:
    """The columns of a table whose times are counted from when they were written."""

    table: Table
    columns: Sequence[str]
    subject: str
    kinds: Sequence[str]  #: of the events with which ends are written
    which: ColumnElement[bool]  #: rows whose end is still to come

    @property
    def key(self) -> Column[Any]:
        return self.table.c.id


_ENDS: Final = (
    _Ends(
        requests,
        ("expires_at",),
        "request",
        ("request_created", "request_extended", END_MOVED),
        and_(
            requests.c.expires_at.is_not(None),
            requests.c.ending_since.is_(None),
            requests.c.state.not_in([state.value for state in FINISHED]),
        ),
    ),
    _Ends(
        reservations,
        ("keep_from", "starts_at", "ends_at"),
        "reservation",
        ("reservation_asked", END_MOVED),
        # One that was to begin later begins at a time that somebody chose.
        and_(
            reservations.c.state.in_(OPEN_RESERVATIONS),
            reservations.c.keep_from == reservations.c.starts_at,
        ),
    ),
    _Ends(
        tokens,
        ("expires_at",),
        "token",
        ("token_created", "logged_in", END_MOVED),
        and_(tokens.c.expires_at.is_not(None), tokens.c.revoked_at.is_(None)),
    ),
)
#: Notices and holds: what there is of them counts from a short time before a step.
_NOTICES: Final = ((spot_preemptions, "ends_at"), (spot_room_holds, "until"))


@dataclass(slots=True)
class _StepBack:
    """A step back that no step ahead has undone."""

    row: Row[Any]
    left: timedelta


def move_after_step_ahead(connection: Connection, now: datetime, ahead: timedelta) -> None:
    """Move ends that the clock before a step ahead wrote, if that clock had stepped back.

    The step is not recorded yet.
    """
    undone: list[tuple[int, timedelta]] = []
    for step in reversed(_open_steps_back(connection)):
        if ahead <= timedelta():
            break
        part = ahead if abs(ahead - step.left) <= SAME_SIZE else min(ahead, step.left)
        undone.append((_last_before_step_back(connection, step.row), part))
        ahead -= part
    whole = sum((part for _, part in undone), timedelta())
    # What was written by the new time before the step was noticed does not move.
    until = _last_event(connection, events.c.at <= now - (whole + ahead) / 2)
    for since, part in undone:
        # What was written before the later one of two steps back moves by the earlier one alone.
        _move_written(connection, now, whole, since=since, until=until)
        until, whole = since, whole - part


def is_step_ahead_undone(connection: Connection) -> bool:
    """Return whether the clock stepped back since its last step ahead, by as much in all."""
    back = timedelta()
    for step in _last_steps(connection):
        if step.kind == STEPPED_AHEAD:
            return back >= timedelta(seconds=step.data["ahead_s"]) - SAME_SIZE
        back += _size(step)
    return False


def unseen_return(connection: Connection, now: datetime, led_until: datetime) -> timedelta:
    """Return by how much the clock may have returned from a step back since a leader read it.

    It may have if the time without a leader is as long as the clock stepped back. If that time
    has indeed passed, ends that are moved by it come too late, not too early.
    """
    open_steps = _open_steps_back(connection)
    back = sum((step.left for step in open_steps), timedelta())
    if not open_steps or now - open_steps[-1].row.at > back + _RETURNS_WITHIN:
        return timedelta()
    return back if now - led_until >= back - SAME_SIZE else timedelta()


def move_notices(connection: Connection, ahead: timedelta) -> None:
    """Move notices, holds of room and the times at which guests are forced off by a step ahead."""
    for table, column in _NOTICES:
        _move_all(connection, table, (column,), ahead, list(connection.execute(select(table))))
    forced = select(power_actions).where(power_actions.c.force_at.is_not(None))
    _move_all(connection, power_actions, ("force_at",), ahead, list(connection.execute(forced)))


def move_after_step_back(connection: Connection, now: datetime, back: timedelta) -> None:
    """Move ends that were written after the last step ahead, if a step back undoes that.

    The step back is not recorded yet. Only what certainly was written in between moves, since
    this makes it end earlier.
    """
    last = next(iter(_last_steps(connection)), None)
    if last is None or last.kind != STEPPED_AHEAD:
        return
    ahead = _size(last)
    began = last.at - ahead  # by the clock to which the present step returns
    if abs(ahead - back) > SAME_SIZE or now - began > UNDONE_WITHIN:
        return
    until = _last_event(connection, events.c.at > now + SAME_SIZE / 2)
    since = _last_event(
        connection, and_(events.c.id < last.id, events.c.at < last.at - ahead / 2), last.id
    )
    _move_written(connection, now, -ahead, since=since, until=until)


def _open_steps_back(connection: Connection) -> Sequence[_StepBack]:
    """Return the steps back that no step ahead has undone, the oldest first."""
    found: list[_StepBack] = []
    for row in reversed(_last_steps(connection)):
        size = _size(row)
        if row.kind == STEPPED_BACK:
            found.append(_StepBack(row, size))
            continue
        while found and size > timedelta():
            found[-1].left, size = found[-1].left - size, size - found[-1].left
            if found[-1].left > SAME_SIZE:
                break
            found.pop()
            if size <= SAME_SIZE:
                break
    return found


def _last_steps(connection: Connection) -> Sequence[Any]:
    """Return the last recorded steps of the clock by over a minute, the newest first."""
    found: list[Any] = [
        row
        for kind in (STEPPED_BACK, STEPPED_AHEAD)
        for row in connection.execute(
            select(events.c.id, events.c.at, events.c.kind, events.c.data)
            .where(events.c.kind == kind)
            .order_by(events.c.id.desc())
            .limit(_STEPS_BEFORE)
        )
    ]
    large = [row for row in found if _size(row) > SAME_SIZE]
    return sorted(large, key=lambda row: row.id, reverse=True)


def _size(step: Row[Any]) -> timedelta:
    """Return by how much the clock stepped; of a step ahead what is new since the one before."""
    name = "back_s" if step.kind == STEPPED_BACK else "more_s"
    return timedelta(seconds=step.data.get(name, step.data.get("ahead_s", 0.0)))


def _last_event(
    connection: Connection, which: ColumnElement[bool], before: int | None = None
) -> int:
    """Return the number of the last event that meets a condition, among the last ones, or 0."""
    last = before or connection.scalar(select(func.max(events.c.id))) or 0
    found = connection.scalar(
        select(events.c.id)
        .where(events.c.id <= last, events.c.id > last - _EVENTS_BEFORE, which)
        .order_by(events.c.id.desc())
        .limit(1)
    )
    return found or 0


def _last_before_step_back(connection: Connection, step: Row[Any]) -> int:
    """Return the number of the last event that was written before a step back.

    The step is recorded when it is noticed. What was written since it is of the time just before
    that, and what was written just before it is ahead of that.
    """
    earlier = events.c.id < step.id
    ahead = _last_event(connection, and_(earlier, events.c.at > step.at + SAME_SIZE / 2), step.id)
    return ahead or _last_event(
        connection, and_(earlier, events.c.at < step.at - _UNNOTICED), step.id
    )


def _move_written(
    connection: Connection, now: datetime, by: timedelta, *, since: int, until: int
) -> None:
    """Move the ends whose last event is after ``since`` and not after ``until``."""
    for each in _ENDS:
        rows = list(_rows_written(connection, each, since, until))
        _move_all(connection, each.table, each.columns, by, [row for row, _ in rows])
        moved = [
            event_row(
                now,
                "control",
                END_MOVED,
                each.subject,
                row.id,
                tenant=tenant,
                reason=f"the database's clock stepped by {by.total_seconds():+.0f} s",
                data={name: (row._mapping[name] + by).isoformat() for name in each.columns},
            )
            for row, tenant in rows
        ]
        if moved:
            record_events(connection, moved)
    _end_with_parents(connection)


def _rows_written(
    connection: Connection, ends: _Ends, since: int, until: int
) -> Iterator[tuple[Row[Any], str | None]]:
    """Lock and yield rows whose end was last written after one event and not after another."""
    keys: Sequence[UUID] = connection.scalars(select(ends.key).where(ends.which)).all()
    for some in chunks(sorted(keys)):
        last: Mapping[str, Any] = {
            row.subject_id: row
            for row in connection.execute(
                select(events.c.id, events.c.subject_id, events.c.tenant)
                .where(
                    is_any_of(connection, events.c.subject_id, [str(key) for key in some]),
                    events.c.kind.in_(ends.kinds),
                    events.c.subject_type == ends.subject,
                )
                .order_by(events.c.id)
            )
        }
        wanted = {key: event for key, event in last.items() if since < event.id <= until}
        chosen = [key for key in some if str(key) in wanted]
        locked = select(ends.table).where(is_any_of(connection, ends.key, chosen), ends.which)
        for row in connection.execute(locked.order_by(ends.key).with_for_update()).all():
            yield row, wanted[str(row.id)].tenant


def _move_all(
    connection: Connection,
    table: Table,
    columns: Sequence[str],
    by: timedelta,
    rows: list[Row[Any]],
) -> None:
    """Move the times in some columns of rows, which were read in this transaction."""
    if not rows:
        return
    keys = [column.name for column in table.primary_key]
    same = [table.c[name] == bindparam(f"key_{name}") for name in keys]
    statement = update(table).where(*same)
    statement = statement.values({name: bindparam(f"new_{name}") for name in columns})
    connection.execute(
        statement,
        [
            {f"key_{name}": row._mapping[name] for name in keys}
            | {f"new_{name}": row._mapping[name] + by for name in columns}
            for row in rows
        ],
    )


def _end_with_parents(connection: Connection) -> None:
    """Bring the ends of logins back to those of the tokens from which they were made."""
    parent = tokens.alias()
    end = select(parent.c.expires_at).where(parent.c.id == tokens.c.parent_id)
    later = end.where(parent.c.expires_at < tokens.c.expires_at)
    connection.execute(
        update(tokens)
        .where(tokens.c.parent_id.is_not(None), later.exists())
        .values(expires_at=end.scalar_subquery())
    )
