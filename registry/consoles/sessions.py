"""The callers' side of console sessions: open one, type, read output, close it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, delete, func, insert, select

from registry.audit.events import record_event
from registry.consoles.session_rows import (
    SILENT_S,
    ConsoleSession,
    end_session,
    end_silent_sessions,
    lock_session,
    placed_vm_name,
    read_tenant_name,
    to_session,
)
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.idempotency_keys import store_result
from registry.db.ids import uuid7
from registry.db.locks import lock_vms
from registry.db.row_leases import CONSOLES, is_claimed
from registry.db.schema import console_inputs, console_outputs, console_sessions, vms
from registry.errors import ConflictError, InvalidError, NotFoundError
from registry.lifecycle import ConsoleState

#: Bytes of input in one call, and in all calls that no worker has taken.
MAX_TYPED_BYTES: Final = 4096
MAX_UNTAKEN_BYTES: Final = 65_536
_RESEND_AFTER: Final = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOutput:
    """Output of a guest from a position on."""

    session: ConsoleSession
    start: int  #: beyond the requested start if older output was dropped
    content: bytes

    @property
    def end(self) -> int:
        """The position in the console's output at which this part ends."""
        return self.start + len(self.content)


class ConsoleSessions(Repository):
    """Opens and closes console sessions of callers, and passes their input and output."""

    @retry_on_rollback
    def open(
        self, vm_id: UUID, *, actor: str, force: bool, at_most: int | None = None
    ) -> ConsoleSession:
        """Attach to a VM's console; with ``force`` take it from its holder.

        Raises
        ------
        ConflictError
            If the VM is on no host, another session holds its console, or the tenant has
            ``at_most`` sessions already.
        """
        key = uuid7()
        with self._database.write() as connection:
            lock_vms(connection, vms.c.id == vm_id)
            now = db_now(connection)
            end_silent_sessions(connection, now=now)
            name = placed_vm_name(connection, vm_id)
            held = lock_session(
                connection,
                console_sessions.c.vm_id == vm_id,
                console_sessions.c.state != ConsoleState.ENDED.value,
            )
            if held is not None and not force:
                raise ConflictError(
                    f"the console of VM {name} has been in use since"
                    f" {held.opened_at:%Y-%m-%d %H:%M:%S} UTC; it is free {SILENT_S} s after its"
                    " user is gone, and can be taken by force"
                )
            if held is None and at_most is not None:
                _check_session_limit(connection, vm_id, at_most)
            if held is not None:
                end_session(
                    connection, held, "another session took the console", actor=actor, now=now
                )
            connection.execute(
                insert(console_sessions).values(
                    id=key,
                    vm_id=vm_id,
                    state=ConsoleState.WAITING.value,
                    forced=force,
                    opened_at=now,
                    heartbeat_at=now,
                    next_input=1,
                    output_end=0,
                    epoch=0,
                )
            )
            record_event(
                connection,
                now,
                actor,
                "console_opened",
                "vm",
                vm_id,
                tenant=read_tenant_name(connection, vm_id),
                data={"session": str(key), "forced": force},
            )
            session = to_session(lock_session(connection, console_sessions.c.id == key))
            return store_result(connection, session)

    @retry_on_rollback
    def store_input(self, vm_id: UUID, id: UUID, number: int, content: bytes) -> ConsoleSession:  # noqa: A002
        """Store a piece of input for a console; ignore a piece whose number was stored before."""
        if not 1 <= len(content) <= MAX_TYPED_BYTES:
            raise InvalidError("content", f"{len(content)} bytes", f"1 to {MAX_TYPED_BYTES} bytes")
        with self._database.write() as connection:
            row = _lock_open_session_row(connection, vm_id, id)
            if number > row.next_input:
                raise ConflictError(f"piece {row.next_input} comes before piece {number}")
            if number == row.next_input:
                waiting: int = connection.execute(
                    select(func.coalesce(func.sum(func.length(console_inputs.c.content)), 0)).where(
                        console_inputs.c.session_id == id
                    )
                ).scalar_one()
                if waiting + len(content) > MAX_UNTAKEN_BYTES:
                    raise ConflictError(
                        f"{waiting} bytes that were typed did not reach the guest yet, and no more"
                        f" than {MAX_UNTAKEN_BYTES} are kept; try again in a moment"
                    )
                connection.execute(
                    insert(console_inputs).values(session_id=id, number=number, content=content)
                )
            CONSOLES.update_row(
                connection,
                id,
                heartbeat_at=db_now(connection),
                next_input=max(row.next_input, number + 1),
            )
            return to_session(lock_session(connection, console_sessions.c.id == id))

    @retry_on_rollback
    def record_reader(self, vm_id: UUID, id: UUID, *, after: int) -> bool:  # noqa: A002
        """Record how far the caller read a console; return whether no worker is attached to it."""
        with self._database.write() as connection:
            row = _lock_session_row(connection, vm_id, id)
            if row.state == ConsoleState.ENDED.value:
                return False
            now = db_now(connection)
            outputs = console_outputs.c
            connection.execute(
                delete(console_outputs).where(
                    outputs.session_id == id, outputs.start + func.length(outputs.content) <= after
                )
            )
            unserved = not is_claimed(row, now) and (
                row.sent_at is None or row.sent_at <= now - _RESEND_AFTER
            )
            CONSOLES.update_row(
                connection, id, heartbeat_at=now, **({"sent_at": now} if unserved else {})
            )
        return unserved

    def output(self, vm_id: UUID, id: UUID, *, after: int) -> ConsoleOutput:  # noqa: A002
        """Return the output of a guest's console after the first ``after`` bytes of the session."""
        outputs = console_outputs.c
        with self._database.read() as connection:
            row = connection.execute(
                select(console_sessions).where(
                    console_sessions.c.id == id, console_sessions.c.vm_id == vm_id
                )
            ).one_or_none()
            if row is None:
                raise NotFoundError("console session", id)
            pieces = connection.execute(
                select(outputs.start, outputs.content)
                .where(
                    outputs.session_id == id, outputs.start + func.length(outputs.content) > after
                )
                .order_by(outputs.start)
            ).all()
        content = b"".join(piece.content for piece in pieces)
        begin = pieces[0].start if pieces else max(after, row.output_end)
        skip = max(0, after - begin)
        return ConsoleOutput(session=to_session(row), start=begin + skip, content=content[skip:])

    @retry_on_rollback
    def close(self, vm_id: UUID, id: UUID, *, actor: str) -> None:  # noqa: A002
        """Close a console session; nothing happens if it is over."""
        with self._database.write() as connection:
            row = _lock_session_row(connection, vm_id, id)
            if row.state != ConsoleState.ENDED.value:
                end_session(connection, row, "it was closed", actor=actor, now=db_now(connection))


def _check_session_limit(connection: Connection, vm_id: UUID, at_most: int) -> None:
    """Raise `ConflictError` if the VM's tenant has as many open console sessions as it may."""
    owner = select(vms.c.tenant_id).where(vms.c.id == vm_id).scalar_subquery()
    used = connection.scalars(
        select(vms.c.name)
        .join(console_sessions, console_sessions.c.vm_id == vms.c.id)
        .where(vms.c.tenant_id == owner, console_sessions.c.state != ConsoleState.ENDED.value)
        .order_by(console_sessions.c.opened_at)
        .limit(at_most)
    ).all()
    if len(used) >= at_most:
        raise ConflictError(
            f"tenant {read_tenant_name(connection, vm_id)} has {len(used)} consoles in use, as many"
            f" as a tenant may have at a time ({', '.join(used)}): let go of one (Ctrl-] in"
            f" `fuga console`); one whose user is gone is free after {SILENT_S} s"
        )


def _lock_session_row(connection: Connection, vm_id: UUID, key: UUID) -> Row[Any]:
    """Lock and return the row of a VM's console session, or raise `NotFoundError`."""
    row: Row[Any] | None = lock_session(
        connection, console_sessions.c.id == key, console_sessions.c.vm_id == vm_id
    )
    if row is None:
        raise NotFoundError("console session", key)
    return row


def _lock_open_session_row(connection: Connection, vm_id: UUID, key: UUID) -> Row[Any]:
    """Lock and return the row of an open console session, or raise `ConflictError`."""
    row = _lock_session_row(connection, vm_id, key)
    if row.state == ConsoleState.ENDED.value:
        raise ConflictError(f"the console session is over: {row.reason}")
    return row
