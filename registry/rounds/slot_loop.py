"""The switch of the slot loop: while it is paused, no leader commits a round."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from sqlalchemy import Connection, select, update

from registry.audit.changes import SLOT_LOOP
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.idempotency_keys import store_result
from registry.db.row_conversion import record_of
from registry.db.schema import slot_loop
from registry.errors import InvalidError, SlotLoopPausedError
from registry.lifecycle import SlotLoopEvent, SlotLoopState
from registry.records.liveness import SlotLoopStatus

MAX_REASON_LENGTH: Final = 200


class SlotLoopSwitch(Repository):
    """Pauses and resumes the decisions; the row outlives every control centre."""

    def get(self) -> SlotLoopStatus:
        """Return whether slots are decided or the slot loop is paused, and since when."""
        with self._database.read() as connection:
            return slot_loop_status(connection)

    def pause(self, reason: str, *, actor: str) -> SlotLoopStatus:
        """Pause the slot loop: no round commits after this returns.

        Raises
        ------
        IllegalTransitionError
            If it is paused already.
        """
        return self._apply_event(SlotLoopEvent.PAUSE, reason, actor)

    def resume(self, reason: str | None = None, *, actor: str) -> SlotLoopStatus:
        """Resume the slot loop from the next slot on.

        Raises
        ------
        IllegalTransitionError
            If it is not paused.
        """
        return self._apply_event(SlotLoopEvent.RESUME, reason, actor)

    @retry_on_rollback
    def record_decided_slot(self, slot_at: datetime, length_s: float) -> None:
        """Record a decided slot without a round; it counts as waiting time of requests.

        The commit of a round records its slot itself.
        """
        with self._database.write() as connection:
            connection.execute(
                update(slot_loop).values(
                    last_slot_at=slot_at,
                    slot_length_s=length_s,
                    without_round=slot_loop.c.without_round + 1,
                )
            )

    @retry_on_rollback
    def _apply_event(self, event: SlotLoopEvent, reason: str | None, actor: str) -> SlotLoopStatus:
        """Pause or resume the slot loop, and record who did it and why."""
        if reason is not None and not 0 < len(reason) <= MAX_REASON_LENGTH:
            raise InvalidError("reason", reason, f"1 to {MAX_REASON_LENGTH} characters")
        with self._database.write() as connection:
            query = select(slot_loop.c.state).with_for_update()
            step = SLOT_LOOP.step(connection.execute(query).scalar_one(), event)
            now = db_now(connection)
            connection.execute(
                update(slot_loop).values(
                    state=step.after.value, reason=reason, changed_by=actor, changed_at=now
                )
            )
            step.record_event(connection, now, actor, "slot_loop", reason=reason)
            return store_result(connection, slot_loop_status(connection))


def slot_loop_status(connection: Connection) -> SlotLoopStatus:
    """Return the status of the slot loop in a caller's transaction."""
    row = connection.execute(select(slot_loop)).one()
    return record_of(SlotLoopStatus, row)


def check_not_paused(connection: Connection) -> None:
    """Raise `SlotLoopPausedError` if the slot loop is paused, as then no round begins."""
    switch = connection.execute(select(slot_loop.c.state, slot_loop.c.reason)).one()
    if switch.state == SlotLoopState.PAUSED.value:
        raise SlotLoopPausedError(switch.reason)
