"""Idempotency keys: a creating call that is repeated is answered as it was the first time."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, delete, select, update

from registry.bulk import insert_if_absent
from registry.clock import db_now
from registry.engine import Database, retried
from registry.errors import (
    IdempotencyConflictError,
    IdempotencyInProgressError,
    InvalidError,
)
from registry.records import IdempotencyKey, StoredAnswer
from registry.schema import idempotency_keys as keys

KEPT = timedelta(hours=24)
#: a first call that takes longer than this has died
ABANDONED_AFTER = timedelta(seconds=60)
MAX_KEY = 255


class Idempotency:
    """Remembers for 24 hours what a key was answered."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @retried
    def begin(self, scope: str, key: str, fingerprint: str) -> StoredAnswer | None:
        """Return the stored answer; None if the caller is the first and has to do the work.

        Raises
        ------
        IdempotencyConflictError
            If the key was used for another body.
        IdempotencyInProgressError
            If the first call runs still. One that began more than 60 s ago and
            never ended is taken over.
        """
        if not (1 <= len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
            raise InvalidError("Idempotency-Key", key, f"1 to {MAX_KEY} printable characters")
        with self._database.write() as connection:
            now = db_now(connection)
            connection.execute(delete(keys).where(keys.c.first_used_at < now - KEPT))
            if _insert(connection, scope, key, fingerprint, now):
                return None
            row = connection.execute(select(keys).where(*_is(scope, key)).with_for_update()).one()
            if row.fingerprint != fingerprint:
                raise IdempotencyConflictError(key)
            if row.status is not None:
                return StoredAnswer(status=row.status, body=row.body)
            if now - row.started_at < ABANDONED_AFTER:
                raise IdempotencyInProgressError(key, now - row.started_at)
            connection.execute(update(keys).where(*_is(scope, key)).values(started_at=now))
            return None

    @retried
    def complete(self, scope: str, key: str, status: int, body: str) -> None:
        """Store the answer."""
        with self._database.write() as connection:
            connection.execute(
                update(keys)
                .where(*_is(scope, key), keys.c.status.is_(None))
                .values(status=status, body=body)
            )

    @retried
    def abandon(self, scope: str, key: str) -> None:
        """Forget a key whose call came to nothing, so that it may be tried again."""
        with self._database.write() as connection:
            connection.execute(
                delete(keys).where(
                    *_is(scope, key), keys.c.status.is_(None), keys.c.request_id.is_(None)
                )
            )


def request_of_key(connection: Connection, key: IdempotencyKey) -> UUID | None:
    """Return the request that a call with this key made before it died, if any."""
    if _insert(connection, key.scope, key.key, key.fingerprint, db_now(connection)):
        return None
    row = connection.execute(select(keys).where(*_is(key.scope, key.key)).with_for_update()).one()
    if row.fingerprint != key.fingerprint:
        raise IdempotencyConflictError(key.key)
    found: UUID | None = row.request_id
    return found


def bind_request(connection: Connection, key: IdempotencyKey, request_id: UUID) -> None:
    """Remember, in the transaction that makes the request, that this key made it."""
    connection.execute(update(keys).where(*_is(key.scope, key.key)).values(request_id=request_id))


def _is(scope: str, key: str) -> tuple[ColumnElement[bool], ...]:
    return keys.c.scope == scope, keys.c.key == key


def _insert(connection: Connection, scope: str, key: str, fingerprint: str, now: datetime) -> bool:
    return insert_if_absent(
        connection,
        keys,
        scope=scope,
        key=key,
        fingerprint=fingerprint,
        started_at=now,
        first_used_at=now,
    )
