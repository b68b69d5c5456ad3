"""Leases on rows that are messages: which worker holds a row, and until when.

A row describes its work. Its message is sent to a worker, which leases the row for a while,
renews the lease before each step, and returns it. The lease's token distinguishes the worker
from one that took over after the lease expired. All tables of such rows have the same columns for
that: ``sent_at``, ``lease_owner`` and ``lease_until``, most of them ``lease_token``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, or_, select, update

from registry.db.clock import db_now
from registry.db.schema import (
    assignments,
    console_sessions,
    host_fences,
    image_copies,
    images,
    leftovers,
    moves,
    power_actions,
    volumes,
)
from registry.errors import ClaimLostError

_COLUMNS: Final = ("lease_token", "lease_owner", "lease_until")


def is_claimed(row: Any, now: datetime) -> bool:
    """Return whether a worker holds an unexpired lease on a row."""
    return row.lease_until is not None and bool(row.lease_until > now)


class RowLease:
    """The claims on the rows of one table; changing one needs the row's lock."""

    def __init__(self, table: Any, subject: str) -> None:
        self.table = table
        self.subject = subject
        (self.key,) = table.primary_key.columns
        #: The values of a row without a lease.
        self.none: Mapping[str, None] = MappingProxyType(
            {name: None for name in _COLUMNS if name in table.c}
        )

    def is_unclaimed(self, now: datetime) -> ColumnElement[bool]:
        """Return the condition that no worker holds an unexpired lease on a row."""
        return or_(self.table.c.lease_until.is_(None), self.table.c.lease_until <= now)

    def is_due(self, now: datetime, stale: datetime) -> ColumnElement[bool]:
        """Return the condition that a row is unclaimed and was not sent since ``stale``.

        A sending time ahead of ``now`` was written before the clock stepped back, so the row is
        sent again.
        """
        sent_at = self.table.c.sent_at
        return and_(self.is_unclaimed(now), or_(sent_at.is_(None), sent_at <= stale, sent_at > now))

    def count_claimed(
        self, connection: Connection, which: ColumnElement[bool], now: datetime
    ) -> int:
        """Return how many rows that meet a condition are leased to workers."""
        held = select(func.count()).where(self.table.c.lease_until > now, which)
        return connection.execute(held).scalar_one()

    def mark_sent(
        self, connection: Connection, query: Select[Any], limit: int, *, now: datetime
    ) -> Sequence[UUID]:
        """Return the keys of rows and mark them as sent, except those leased to workers.

        The query's order comes first, then rows never sent, then those sent longest ago.
        """
        table = self.table
        keys = connection.scalars(
            query.with_only_columns(self.key)
            .order_by(table.c.sent_at.nulls_first(), self.key)
            .limit(limit)
            .with_for_update(of=table, skip_locked=True, key_share=True)
        ).all()
        if keys:
            connection.execute(update(table).where(self.key.in_(keys)).values(sent_at=now))
        return keys

    def claim_values(
        self, owner: str, lease_s: float, token: UUID, *, now: datetime
    ) -> dict[str, Any]:
        """Return the values of the columns of a worker's lease on a row."""
        said = dict(zip(_COLUMNS, (token, owner, now + timedelta(seconds=lease_s)), strict=True))
        return {name: said[name] for name in self.none}

    def claim(
        self,
        connection: Connection,
        key: UUID,
        owner: str,
        lease_s: float,
        *,
        now: datetime,
        **values: Any,
    ) -> UUID:
        """Lease an unclaimed row to a worker, and return the token that proves the claim."""
        token = uuid4()
        self.update_row(
            connection, key, **self.claim_values(owner, lease_s, token, now=now), **values
        )
        return token

    def check_claim(self, row: Row[Any] | None, key: UUID, token: UUID) -> Row[Any]:
        """Return a locked row; raise `ClaimLostError` if it is gone or claimed by another."""
        subject = f"{self.subject} {key}"
        if row is None:
            raise ClaimLostError(subject, "it does not exist")
        if row.lease_token != token:
            owner = row.lease_owner or "no worker"
            raise ClaimLostError(subject, f"{owner} has it, and it is {row.state}")
        return row

    def extend(self, connection: Connection, key: UUID, lease_s: float, **values: Any) -> None:
        """Extend a worker's lease on a row, also one that expired and was not taken over."""
        until = db_now(connection) + timedelta(seconds=lease_s)
        self.update_row(connection, key, lease_until=until, **values)

    def release_claim(self, connection: Connection, key: UUID, **values: Any) -> None:
        """Release a worker's lease on a row."""
        self.update_row(connection, key, **self.none, **values)

    def retry_later(self, connection: Connection, key: UUID, **values: Any) -> None:
        """Release the lease on an unfinished row, which is sent again after a while."""
        self.release_claim(connection, key, sent_at=db_now(connection), **values)

    def update_row(self, connection: Connection, key: UUID, **values: Any) -> None:
        """Update columns of a leased row, by its key."""
        connection.execute(update(self.table).where(self.key == key).values(**values))


ASSIGNMENTS: Final = RowLease(assignments, "assignment")
CONSOLES: Final = RowLease(console_sessions, "console session")
COPIES: Final = RowLease(image_copies, "image copy")
FENCES: Final = RowLease(host_fences, "the fencing of host")
IMPORTS: Final = RowLease(images, "image")
LEFTOVERS: Final = RowLease(leftovers, "leftover")
MOVES: Final = RowLease(moves, "move")
POWER: Final = RowLease(power_actions, "the power of VM")
VOLUMES: Final = RowLease(volumes, "volume")
