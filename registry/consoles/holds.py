"""The workers' side of console sessions: hold the console and relay input and output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, delete, exists, insert, select

from registry.consoles.session_rows import change_session_state, end_session, lock_session
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.host_access import HOST_COLUMNS, to_host_access
from registry.db.row_leases import CONSOLES, is_claimed
from registry.db.schema import (
    assignments,
    console_inputs,
    console_outputs,
    console_sessions,
    hosts,
    is_place,
    tenants,
    vms,
)
from registry.errors import ClaimLostError
from registry.lifecycle import ConsoleEvent, ConsoleState
from registry.records.hosts import HostAccess

#: Bytes of unread guest output that are kept.
MAX_UNREAD_BYTES: Final = 262_144


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleClaim:
    """A worker's claim on a console session."""

    session_id: UUID
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleWork:
    """The console that a worker is to attach to, with its host and the claim."""

    claim: ConsoleClaim
    vm_id: UUID
    force: bool
    host: HostAccess


class ConsoleHolds(Repository):
    """Claims console sessions for workers, and relays their input and output."""

    @retry_on_rollback
    def claim(self, id: UUID, owner: str, lease_s: float) -> ConsoleWork | None:  # noqa: A002
        """Claim a console session; None if it is over, its VM is on no host, or it is claimed."""
        with self._database.write() as connection:
            row = lock_session(connection, console_sessions.c.id == id)
            now = db_now(connection)
            if row is None or row.state == ConsoleState.ENDED.value:
                return None
            if is_claimed(row, now):
                return None
            place: Any = connection.execute(
                select(*HOST_COLUMNS)
                .select_from(assignments)
                .join(hosts, hosts.c.id == assignments.c.host_id)
                .where(assignments.c.vm_id == row.vm_id, is_place)
            ).one_or_none()
            if place is None:
                end_session(connection, row, "the VM is on no host any more", actor=owner, now=now)
                return None
            if row.state == ConsoleState.ATTACHED.value:
                change_session_state(
                    connection, row, ConsoleEvent.LOST, "its worker is gone", actor=owner, now=now
                )
            epoch = row.epoch + 1
            CONSOLES.claim(connection, id, owner, lease_s, now=now, epoch=epoch)
            return ConsoleWork(
                claim=ConsoleClaim(session_id=id, epoch=epoch),
                vm_id=row.vm_id,
                # An earlier holder of this session may not know yet that it lost it.
                force=row.forced or epoch > 1,
                host=to_host_access(place),
            )

    def tenant(self, id: UUID) -> str | None:  # noqa: A002
        """Return the tenant of a console session's VM; None if the session is over."""
        query = (
            select(tenants.c.name)
            .select_from(console_sessions)
            .join(vms, vms.c.id == console_sessions.c.vm_id)
            .join(tenants, tenants.c.id == vms.c.tenant_id)
            .where(console_sessions.c.id == id)
            .where(console_sessions.c.state != ConsoleState.ENDED.value)
        )
        with self._database.read() as connection:
            return connection.scalars(query).one_or_none()

    @retry_on_rollback
    def record_wait_reason(self, id: UUID, reason: str) -> None:  # noqa: A002
        """Record why a console session still waits for a worker."""
        with self._database.write() as connection:
            row = lock_session(
                connection,
                console_sessions.c.id == id,
                console_sessions.c.state == ConsoleState.WAITING.value,
            )
            if row is not None and row.reason != reason:
                CONSOLES.update_row(connection, id, reason=reason)

    @retry_on_rollback
    def mark_attached(self, claim: ConsoleClaim) -> None:
        """Record that the worker is attached to the console."""
        with self._database.write() as connection:
            row = _lock_claimed_session(connection, claim)
            change_session_state(
                connection,
                row,
                ConsoleEvent.ATTACHED,
                None,
                actor=row.lease_owner,
                now=db_now(connection),
            )

    def has_input(self, claim: ConsoleClaim) -> bool:
        """Return whether a console session has waiting input, or raise `ClaimLostError`."""
        typed = exists().where(console_inputs.c.session_id == claim.session_id)
        with self._database.read() as connection:
            row = connection.execute(
                select(
                    console_sessions.c.state, console_sessions.c.epoch, typed.label("typed")
                ).where(console_sessions.c.id == claim.session_id)
            ).one_or_none()
        _check_claim(claim, row)
        return row is not None and bool(row.typed)

    @retry_on_rollback
    def take_input(self, claim: ConsoleClaim) -> bytes:
        """Return a console session's waiting input and delete it."""
        with self._database.write() as connection:
            _lock_claimed_session(connection, claim)
            mine = console_inputs.c.session_id == claim.session_id
            pieces = connection.scalars(
                select(console_inputs.c.content).where(mine).order_by(console_inputs.c.number)
            ).all()
            connection.execute(delete(console_inputs).where(mine))
        return b"".join(pieces)

    @retry_on_rollback
    def store_output(self, claim: ConsoleClaim, content: bytes) -> None:
        """Store output of the guest's console; drop the oldest unread output beyond the limit."""
        with self._database.write() as connection:
            row = _lock_claimed_session(connection, claim)
            output_end = row.output_end + len(content)
            connection.execute(
                insert(console_outputs).values(
                    session_id=row.id, start=row.output_end, content=content
                )
            )
            connection.execute(
                delete(console_outputs).where(
                    console_outputs.c.session_id == row.id,
                    console_outputs.c.start < output_end - MAX_UNREAD_BYTES,
                )
            )
            CONSOLES.update_row(connection, row.id, output_end=output_end)

    @retry_on_rollback
    def extend_claim(self, claim: ConsoleClaim, lease_s: float) -> None:
        """Extend the claim on a console session; raise `ClaimLostError` if it is lost or over."""
        with self._database.write() as connection:
            _lock_claimed_session(connection, claim)
            CONSOLES.extend(connection, claim.session_id, lease_s)

    @retry_on_rollback
    def release_claim(self, claim: ConsoleClaim, reason: str | None) -> None:
        """Release the claim on a console session, so that another worker may attach it again."""
        with self._database.write() as connection:
            row = _lock_claimed_session(connection, claim)
            now = db_now(connection)
            change_session_state(
                connection,
                row,
                ConsoleEvent.LOST,
                reason,
                actor=row.lease_owner,
                now=now,
                **CONSOLES.none,
            )

    @retry_on_rollback
    def mark_ended(self, claim: ConsoleClaim, reason: str) -> None:
        """End the console session of a claim and record why."""
        with self._database.write() as connection:
            row = _lock_claimed_session(connection, claim)
            end_session(connection, row, reason, actor=row.lease_owner, now=db_now(connection))


def _lock_claimed_session(connection: Connection, claim: ConsoleClaim) -> Row[Any]:
    """Lock and return the row of a claimed console session, or raise `ClaimLostError`."""
    row: Row[Any] | None = lock_session(connection, console_sessions.c.id == claim.session_id)
    return _check_claim(claim, row)


def _check_claim(claim: ConsoleClaim, row: Row[Any] | None) -> Row[Any]:
    """Return the row of a console session, or raise `ClaimLostError` if the claim is lost."""
    if row is None or row.state == ConsoleState.ENDED.value or row.epoch != claim.epoch:
        found = "it is over" if row is None or row.epoch == claim.epoch else "another has it"
        raise ClaimLostError(f"console session {claim.session_id}", found)
    return row
