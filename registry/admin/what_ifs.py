"""What-ifs: simulations of the site that operators request, run one at a time.

One API process runs the simulation from the row's creation on, and renews a time in the row.
A reader that finds this time too old marks the what-if as interrupted. A process that was
killed leaves only the row. Only the newest what-ifs are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

from sqlalchemy import Connection, Row, Select, delete, insert, select, update

from registry.audit.changes import WHAT_IF
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.idempotency_keys import store_result
from registry.db.ids import uuid7
from registry.db.locks import take_advisory_lock
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, cursor_uuid, page_of
from registry.db.row_conversion import record_of
from registry.db.schema import what_ifs
from registry.errors import ClaimLostError, ConflictError, NotFoundError
from registry.lifecycle import WhatIfEvent, WhatIfState
from registry.records.what_ifs import WhatIf, WhatIfResult

#: How long the process that runs a what-if may be silent.
LEASE_S: Final = 20.0
#: The most what-ifs that wait or run at a time on the site.
MAX_OPEN: Final = 4
#: How many of the newest what-ifs are kept.
MAX_KEPT: Final = 50
_TURNS: Final = "what-ifs"
_OPEN: Final = (WhatIfState.WAITING.value, WhatIfState.RUNNING.value)
_ACTOR: Final = "api"
_GONE: Final = "the API process that carried it is gone; ask again"
W = TypeVar("W", bound=WhatIf)
_SHORT: Final = tuple(what_ifs.c[name] for name in (*WhatIf.__dataclass_fields__, "lease_until"))


class WhatIfs(Repository):
    """Creates, runs, cancels and lists what-ifs."""

    @retry_on_rollback
    def create(self, arguments: Mapping[str, Any], executor_id: UUID, *, actor: str) -> WhatIf:
        """Create a what-if that this executor runs; delete the oldest beyond `MAX_KEPT`.

        Raises
        ------
        ConflictError
            If `MAX_OPEN` wait or run.
        """
        with self._database.write() as connection:
            open_, now = _lock_open_what_ifs(connection)
            if len(open_) >= MAX_OPEN:
                runs = next((each for each in open_ if each.state == "running"), open_[0])
                raise ConflictError(
                    f"{len(open_)} what-ifs wait or run, which is the most. {runs.id} of"
                    f" {runs.requested_by} runs, {100 * runs.progress:.0f} % of it is over:"
                    f" try again later, or end one with `fuga what-if cancel {runs.id}`"
                )
            key = uuid7()
            connection.execute(
                insert(what_ifs).values(
                    id=key,
                    state=WhatIfState.WAITING.value,
                    arguments=dict(arguments),
                    requested_by=actor,
                    requested_at=now,
                    progress=0.0,
                    executor_id=executor_id,
                    lease_until=now + timedelta(seconds=LEASE_S),
                )
            )
            newest = select(what_ifs.c.id).order_by(what_ifs.c.id.desc()).limit(MAX_KEPT)
            connection.execute(
                delete(what_ifs).where(what_ifs.c.id.not_in(newest), what_ifs.c.state.not_in(_OPEN))
            )
            return store_result(connection, _get_what_if(connection, key))

    @retry_on_rollback
    def report_progress(self, id: UUID, executor_id: UUID, progress: float) -> WhatIfState:  # noqa: A002
        """Record the executor's heartbeat and progress; start the what-if when its turn comes.

        Returns
        -------
        WhatIfState
            The state; the executor stops unless it waits or runs. INTERRUPTED if another
            executor runs it.

        Raises
        ------
        NotFoundError
            If the what-if is deleted.
        """
        with self._database.write() as connection:
            open_, now = _lock_open_what_ifs(connection, executor_id)
            row = _lock_what_if(connection, id)
            if row.state not in _OPEN:
                return WhatIfState(row.state)
            if row.executor_id != executor_id:
                return WhatIfState.INTERRUPTED
            until = now + timedelta(seconds=LEASE_S)
            values: dict[str, Any] = {"lease_until": until, "progress": progress}
            # The open what-if with the lowest id has its turn.
            if row.state == WhatIfState.WAITING.value and open_[0].id == id:
                _apply_what_if_event(
                    connection, row, WhatIfEvent.BEGUN, now, began_at=now, **values
                )
                return WhatIfState.RUNNING
            connection.execute(update(what_ifs).where(what_ifs.c.id == id).values(**values))
            return WhatIfState(row.state)

    @retry_on_rollback
    def end(
        self,
        id: UUID,  # noqa: A002
        executor_id: UUID,
        event: WhatIfEvent,
        *,
        report: Mapping[str, Any] | None = None,
        error: str | None = None,
    ) -> None:
        """End a what-if that ran, and record its report or its error.

        Raises
        ------
        ClaimLostError
            If the what-if was cancelled, or marked as interrupted.
        """
        with self._database.write() as connection:
            row = _lock_what_if(connection, id)
            if row.state not in _OPEN or row.executor_id != executor_id:
                raise ClaimLostError(f"what-if {id}", f"it is {row.state}")
            now = db_now(connection)
            progress = 1.0 if event is WhatIfEvent.FINISHED else row.progress
            _apply_what_if_event(
                connection,
                row,
                event,
                now,
                reason=error,
                ended_at=now,
                report=None if report is None else dict(report),
                last_error=error,
                progress=progress,
            )

    @retry_on_rollback
    def cancel(self, id: UUID, *, actor: str) -> WhatIf:  # noqa: A002
        """Cancel a what-if that waits or runs; its child process is killed within seconds.

        Raises
        ------
        IllegalTransitionError
            If the what-if is over.
        """
        with self._database.write() as connection:
            _, now = _lock_open_what_ifs(connection)
            row = _lock_what_if(connection, id)
            _apply_what_if_event(
                connection,
                row,
                WhatIfEvent.CANCELLED,
                now,
                actor=actor,
                ended_at=now,
                cancelled_by=actor,
            )
            return store_result(connection, _get_what_if(connection, id))

    def get(self, id: UUID) -> WhatIfResult:  # noqa: A002
        """Return a what-if with its report, or raise `NotFoundError`."""
        query = select(what_ifs).where(what_ifs.c.id == id)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
            if row is None:
                raise NotFoundError("what-if", id)
            return _to_what_if(row, db_now(connection), WhatIfResult)

    def list(
        self,
        *,
        state: WhatIfState | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page[WhatIf]:
        """Return a page of what-ifs without reports, the latest first."""
        query: Select[Any] = select(*_SHORT).order_by(what_ifs.c.id.desc())
        if cursor is not None:
            query = query.where(what_ifs.c.id < cursor_uuid(cursor))
        with self._database.read() as connection:
            now = db_now(connection)
            # There are few. A silent one counts as interrupted, whatever its row says.
            found = [_to_what_if(row, now, WhatIf) for row in connection.execute(query)]
        if state is not None:
            found = [each for each in found if each.state == state]
        return page_of(found[: check_limit(limit) + 1], limit, lambda each: (each.id.hex,))


def _lock_open_what_ifs(
    connection: Connection, executor_id: UUID | None = None
) -> tuple[list[Row[Any]], datetime]:
    """Lock and return the what-ifs that wait or run, the oldest first.

    Mark those with a silent executor as interrupted; ``executor_id`` counts as alive.
    """
    take_advisory_lock(connection, _TURNS)
    now = db_now(connection)
    query: Select[Any] = select(*_SHORT, what_ifs.c.executor_id).where(what_ifs.c.state.in_(_OPEN))
    there = []
    for row in connection.execute(query.order_by(what_ifs.c.id)).all():
        if row.lease_until > now or row.executor_id == executor_id:
            there.append(row)
        else:
            _apply_what_if_event(
                connection,
                row,
                WhatIfEvent.INTERRUPTED,
                now,
                ended_at=row.lease_until,
                last_error=_GONE,
            )
    return there, now


def _to_what_if(row: Row[Any], now: datetime, kind: type[W]) -> W:
    """Return a what-if from its row; an open one with a silent executor is interrupted."""
    if row.state not in _OPEN or row.lease_until > now:
        return record_of(kind, row)
    return record_of(
        kind, row, state=WhatIfState.INTERRUPTED, ended_at=row.lease_until, last_error=_GONE
    )


def _get_what_if(connection: Connection, key: UUID) -> WhatIf:
    """Return the record of a what-if by its id."""
    row = connection.execute(select(*_SHORT).where(what_ifs.c.id == key)).one()
    return _to_what_if(row, db_now(connection), WhatIf)


def _lock_what_if(connection: Connection, key: UUID) -> Row[Any]:
    """Lock and return the row of a what-if, or raise `NotFoundError`."""
    query: Select[Any] = select(*_SHORT, what_ifs.c.executor_id).where(what_ifs.c.id == key)
    row = connection.execute(query.with_for_update()).one_or_none()
    if row is None:
        raise NotFoundError("what-if", key)
    return row


def _apply_what_if_event(
    connection: Connection,
    row: Row[Any],
    event: WhatIfEvent,
    now: datetime,
    *,
    actor: str = _ACTOR,
    reason: str | None = None,
    **values: Any,
) -> None:
    """Change the state of a what-if and record the event."""
    step = WHAT_IF.step(row.state, event)
    connection.execute(
        update(what_ifs).where(what_ifs.c.id == row.id).values(state=step.after.value, **values)
    )
    step.record_event(connection, now, actor, row.id, reason=reason)
