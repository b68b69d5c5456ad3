"""Rolls: an operator's command runs on hosts, some at a time, after their VMs moved away.

A roll is a row, with one row for the phase of each host. The command runs where its
driver runs, a `fuga roll`. Everything else is stored here, so that another driver can
resume the roll when its driver is gone. The driver reports each step and receives the next
one (`registry.moves.roll_steps`). Its token becomes invalid when another resumes the roll.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from sqlalchemy import Connection, Row, ScalarSelect, Select, func, insert, select, update

from registry.audit.changes import ROLL
from registry.db.bulk import chunks, insert_rows, is_any_of
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.idempotency_keys import store_result
from registry.db.ids import uuid7
from registry.db.locks import lock_hosts
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, cursor_uuid, decode_cursor, page_of
from registry.db.row_conversion import record_of
from registry.db.schema import hosts, plans, roll_hosts, rolls
from registry.errors import ConflictError, InvalidError, NotFoundError, UnknownNameError
from registry.lifecycle import HostAdmin, HostHealth, RollEvent, RollPhase, RollState
from registry.moves.plans import cancel_plan
from registry.moves.roll_steps import (
    current_turn,
    record_step,
    roll_host_rows,
    to_roll_host,
    write_roll_host,
)
from registry.moves.stored_plans import GOES_ON
from registry.records.rolls import (
    NewRoll,
    Roll,
    RollHost,
    RollLease,
    RollStep,
    RollTarget,
    StepReport,
)

#: Silence of a driver after which another may take the roll over.
LEASE_S: Final = 60.0
#: Selector of every host that is not retired, and prefix of a label.
ALL: Final = "all"
LABEL: Final = "label="
_OVER: Final = (RollPhase.DONE.value, RollPhase.SKIPPED.value)
_OPEN: Final = (RollState.RUNNING.value, RollState.STOPPED.value)


class Rolls(Repository):
    """Begins, drives, resumes, cancels and lists rolls."""

    def targets(
        self, selected: Collection[str], skipped: Collection[str] = ()
    ) -> tuple[RollTarget, ...]:
        """Return the hosts that a roll's selectors select, by name.

        Parameters
        ----------
        selected
            Selectors: each is a name, ``label=LABEL``, or ``all``.
        skipped
            Names of hosts to leave out.

        Raises
        ------
        UnknownNameError
            If a named host does not exist, or no host has a label.
        """
        columns = (hosts.c.id, hosts.c.name, hosts.c.admin, hosts.c.health, hosts.c.labels)
        query: Select[Any] = select(*columns).where(hosts.c.admin != HostAdmin.RETIRED.value)
        with self._database.read() as connection:
            known = {row.name: row for row in connection.execute(query.order_by(hosts.c.name))}
        for name in skipped:
            _check_host_known("skipped", name, known)
        chosen = {name for each in selected for name in _hosts_selected_by(each, known)} - set(
            skipped
        )
        return tuple(
            RollTarget(
                id=row.id, name=name, admin=HostAdmin(row.admin), health=HostHealth(row.health)
            )
            for name, row in known.items()
            if name in chosen
        )

    @retry_on_rollback
    def begin(self, new: NewRoll, *, actor: str) -> RollLease:
        """Begin a roll. Nothing happens to its hosts before its driver's first step.

        Raises
        ------
        ConflictError
            If a host is in another roll that is not over.
        """
        keys = [key for turn in new.turns for key in turn]
        if not keys:
            raise InvalidError("hosts", "none", "one host at least")
        with self._database.write() as connection:
            lock_hosts(connection, *keys)
            _check_not_in_other_roll(connection, keys)
            id, token, now = uuid7(), uuid4(), db_now(connection)  # noqa: A001
            connection.execute(
                insert(rolls).values(
                    id=id,
                    state=RollState.RUNNING.value,
                    at_once=new.at_once,
                    checked=new.checked,
                    command=new.command,
                    empty_within_s=new.limits.empty_within_s,
                    run_within_s=new.limits.run_within_s,
                    up_within_s=new.limits.up_within_s,
                    began_by=actor,
                    began_at=now,
                    **_driver_values(new.driver, token, now),
                )
            )
            insert_rows(
                connection,
                roll_hosts,
                [
                    {
                        "roll_id": id,
                        "position": position,
                        "host_id": key,
                        "turn": turn,
                        "phase": RollPhase.WAITING.value,
                        "since": now,
                    }
                    for position, (turn, key) in enumerate(_turn_numbers(new.turns))
                ],
            )
            return store_result(connection, RollLease(roll=_get_roll(connection, id), token=token))

    @retry_on_rollback
    def resume(
        self,
        id: UUID,  # noqa: A002 - the contract's name
        *,
        driver: str,
        command: str,
        skipped: Collection[str] = (),
        actor: str,
    ) -> RollLease:
        """Resume a roll that stopped, or whose driver is gone.

        Hosts continue in their phases: failed steps are repeated, and a command that may have run
        runs once more. Skipped hosts stay as they are.

        Raises
        ------
        ConflictError
            If the roll is over, or its driver's lease is live.
        UnknownNameError
            If a host to skip is not in the roll, or is done.
        """
        with self._database.write() as connection:
            row, now = _lock_roll(connection, id), db_now(connection)
            if row.state not in _OPEN:
                raise ConflictError(
                    f"roll {id} is {row.state}: there is nothing to resume; `fuga roll --hosts`"
                    " begins another"
                )
            if row.state == RollState.RUNNING.value and row.driver_lease_until > now:
                raise ConflictError(
                    f"{row.driver} drives the roll. If it is gone, the roll can be resumed in"
                    f" {(row.driver_lease_until - now).total_seconds():.0f} s"
                )
            there = {each.name: each for each in roll_host_rows(connection, id)}
            open_ = [name for name, each in there.items() if each.phase not in _OVER]
            for name in skipped:
                if name not in open_:
                    raise UnknownNameError("skipped", "host", name, known=open_)
            for name in open_:
                after = RollPhase.SKIPPED if name in skipped else _resumed_phase(there[name].phase)
                write_roll_host(
                    connection,
                    there[name],
                    phase=after.value,
                    error=None,
                    since=now,
                    plans=0,
                    plan_id=None,
                )
            token = uuid4()
            values = {"command": command, "last_error": None, **_driver_values(driver, token, now)}
            _apply_roll_event(connection, row, RollEvent.RESUMED, now=now, actor=actor, **values)
            return store_result(connection, RollLease(roll=_get_roll(connection, id), token=token))

    @retry_on_rollback
    def drive(self, id: UUID, token: UUID, report: StepReport, *, actor: str) -> RollStep:  # noqa: A002
        """Record the driver's report, advance the roll, and return its next step.

        Raises
        ------
        ConflictError
            If another process drives the roll by now, or the roll is over.
        """
        with self._database.write() as connection:
            row, now = _lock_roll(connection, id), db_now(connection)
            if row.driver_token != token:
                raise ConflictError(f"another fuga drives the roll by now: {row.driver}")
            if row.state == RollState.RUNNING.value:
                until = now + timedelta(seconds=LEASE_S)
                event, error = record_step(connection, row, report, now=now, actor=actor)
                if event is None:
                    connection.execute(
                        update(rolls).where(rolls.c.id == id).values(driver_lease_until=until)
                    )
                else:
                    _end_roll(connection, row, event, error, now=now, actor=actor)
            roll = _get_roll(connection, id)
            turn = tuple(to_roll_host(each) for each in current_turn(connection, id))
            return RollStep(roll=roll, hosts=turn)

    @retry_on_rollback
    def cancel(self, id: UUID, *, actor: str) -> Roll:  # noqa: A002
        """Cancel a roll and its plans; its hosts keep their states, and running commands end first.

        Raises
        ------
        IllegalTransitionError
            If the roll is over.
        """
        with self._database.write() as connection:
            row, now = _lock_roll(connection, id), db_now(connection)
            ROLL.step(row.state, RollEvent.CANCELLED)
            connection.execute(update(rolls).where(rolls.c.id == id).values(cancelled_by=actor))
            if row.state == RollState.STOPPED.value or row.driver_lease_until <= now:
                _end_roll(connection, row, RollEvent.CANCELLED, None, now=now, actor=actor)
            return store_result(connection, _get_roll(connection, id))

    def hosts_emptied_later(self, plan_id: UUID) -> Sequence[str]:
        """Return the names of the hosts that the roll of an evacuation plan will empty later."""
        of_plan = select(roll_hosts.c.roll_id).where(roll_hosts.c.plan_id == plan_id)
        query = (
            select(hosts.c.name)
            .join(roll_hosts, roll_hosts.c.host_id == hosts.c.id)
            .where(roll_hosts.c.roll_id.in_(of_plan), roll_hosts.c.phase == RollPhase.WAITING.value)
            .order_by(hosts.c.name)
        )
        with self._database.read() as connection:
            return connection.scalars(query).all()

    def get(self, id: UUID) -> Roll:  # noqa: A002
        """Return a roll, or raise `NotFoundError`."""
        with self._database.read() as connection:
            return _get_roll(connection, id)

    def hosts(
        self,
        id: UUID,  # noqa: A002
        *,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page[RollHost]:
        """Return a page of a roll's hosts, in order."""
        after = -1 if cursor is None else int(decode_cursor(cursor, int)[0])
        with self._database.read() as connection:
            _get_roll(connection, id)
            rows = roll_host_rows(connection, id, after=after, limit=check_limit(limit) + 1)
        page = page_of(rows, limit, lambda row: (row.position,))
        return Page(items=tuple(to_roll_host(row) for row in page.items), next=page.next)

    def list(
        self,
        *,
        state: RollState | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page[Roll]:
        """Return a page of rolls, the latest first."""
        query = _ROLLS.order_by(rolls.c.id.desc()).limit(check_limit(limit) + 1)
        if state is not None:
            query = query.where(rolls.c.state == state.value)
        if cursor is not None:
            query = query.where(rolls.c.id < cursor_uuid(cursor))
        with self._database.read() as connection:
            now = db_now(connection)
            found = [_to_roll(row, now) for row in connection.execute(query)]
        return page_of(found, limit, lambda roll: (roll.id.hex,))


def _hosts_selected_by(selector: str, known: dict[str, Row[Any]]) -> Sequence[str]:
    """Return the names of the hosts that a roll's selector selects."""
    if selector == ALL:
        return list(known)
    if not selector.startswith(LABEL):
        _check_host_known("hosts", selector, known)
        return [selector]
    label = selector.removeprefix(LABEL)
    found = [name for name, row in known.items() if label in row.labels]
    if not found:
        hint = "`fuga host list` shows the labels of each"
        raise UnknownNameError("hosts", "host with the label", label, hint=hint)
    return found


def _check_host_known(field: str, name: str, known: dict[str, Row[Any]]) -> None:
    """Raise `UnknownNameError` if a roll names a host that does not exist."""
    if name not in known:
        raise UnknownNameError(field, "host", name, hint="`fuga host list` lists them")


def _turn_numbers(turns: Sequence[Sequence[UUID]]) -> Iterator[tuple[int, UUID]]:
    """Yield the hosts of a new roll, each with the number of its turn."""
    for number, turn in enumerate(turns):
        for key in turn:
            yield number, key


def _resumed_phase(phase: str) -> RollPhase:
    """Return the phase in which a host of a roll resumes; one that was empty is emptied again."""
    was = RollPhase(phase)
    return RollPhase.EMPTYING if was in (RollPhase.EMPTY, RollPhase.RUNNING) else was


def _driver_values(driver: str, token: UUID, now: datetime) -> dict[str, Any]:
    """Return the columns of a roll's new driver, with its lease."""
    until = now + timedelta(seconds=LEASE_S)
    return {"driver": driver, "driver_token": token, "driver_lease_until": until}


def _check_not_in_other_roll(connection: Connection, keys: Sequence[UUID]) -> None:
    """Raise `ConflictError` if a host is in another roll that is not over."""
    for some in chunks(keys):
        query = (
            select(rolls.c.id, hosts.c.name)
            .join(roll_hosts, roll_hosts.c.roll_id == rolls.c.id)
            .join(hosts, hosts.c.id == roll_hosts.c.host_id)
            .where(
                rolls.c.state.in_(_OPEN),
                roll_hosts.c.phase.not_in(_OVER),
                is_any_of(connection, roll_hosts.c.host_id, some),
            )
            .order_by(hosts.c.name)
        )
        first = connection.execute(query.limit(1)).one_or_none()
        if first is not None:
            raise ConflictError(
                f"roll {first.id} goes over host {first.name} and is not over: resume it, or end"
                f" it with `fuga roll cancel {first.id}`"
            )


def _lock_roll(connection: Connection, key: UUID) -> Row[Any]:
    """Lock and return the row of a roll, or raise `NotFoundError`."""
    row = connection.execute(select(rolls).where(rolls.c.id == key).with_for_update()).one_or_none()
    if row is None:
        raise NotFoundError("roll", key)
    return row


def _end_roll(
    connection: Connection,
    row: Row[Any],
    event: RollEvent,
    error: str | None,
    *,
    now: datetime,
    actor: str,
) -> None:
    """End or stop a roll and record the event; a cancelled roll cancels its plans."""
    ended = None if event is RollEvent.STOPPED else now
    values = {"last_error": error, "ended_at": ended, "driver_lease_until": now}
    _apply_roll_event(connection, row, event, now=now, actor=actor, reason=error, **values)
    if event is RollEvent.CANCELLED:
        of_roll = select(roll_hosts.c.plan_id).where(roll_hosts.c.roll_id == row.id)
        query = select(plans.c.id).where(plans.c.id.in_(of_roll), GOES_ON).order_by(plans.c.id)
        for plan in connection.scalars(query).all():
            cancel_plan(connection, plan, actor=actor, reason=f"roll {row.id} was cancelled")


def _apply_roll_event(
    connection: Connection,
    row: Row[Any],
    event: RollEvent,
    *,
    now: datetime,
    actor: str,
    reason: str | None = None,
    **values: Any,
) -> None:
    """Change the state of a roll and record the event."""
    step = ROLL.step(row.state, event)
    connection.execute(
        update(rolls).where(rolls.c.id == row.id).values(state=step.after.value, **values)
    )
    step.record_event(connection, now, actor, row.id, reason=reason)


def _phase_count(*phases: RollPhase) -> ScalarSelect[int]:
    """Return the SQL count of a roll's hosts in some phases."""
    query = select(func.count()).where(roll_hosts.c.roll_id == rolls.c.id)
    return query.where(roll_hosts.c.phase.in_(phases)).scalar_subquery()


_ROLLS: Final[Select[Any]] = select(
    rolls,
    _phase_count(*RollPhase).label("hosts"),
    _phase_count(RollPhase.DONE).label("done"),
    _phase_count(RollPhase.SKIPPED).label("skipped"),
)


def _get_roll(connection: Connection, key: UUID) -> Roll:
    """Return a roll, or raise `NotFoundError`."""
    row = connection.execute(_ROLLS.where(rolls.c.id == key)).one_or_none()
    if row is None:
        raise NotFoundError("roll", key)
    return _to_roll(row, db_now(connection))


def _to_roll(row: Row[Any], now: datetime) -> Roll:
    """Return the record of a roll from its row."""
    driven = row.state == RollState.RUNNING.value and row.driver_lease_until > now
    return record_of(Roll, row, driver_lease_until=row.driver_lease_until if driven else None)
