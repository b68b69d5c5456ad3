"""Idempotency keys: a creating call that is repeated is answered as it was the first time.

A creation that is one transaction claims its key inside it, and keeps its answer there
(`claim_key`, `keep_answers`): either all of it happened, or nothing. Whoever comes with the
same key meanwhile waits for that transaction. What takes several transactions says before
the first that it began (`Idempotency.begin`), and after the last how it ended.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, bindparam, delete, select, tuple_, update

from registry.errors import (
    AnsweredBeforeError,
    IdempotencyConflictError,
    IdempotencyInProgressError,
    InvalidError,
)
from registry.ground.bulk import absent, insert_returning, update_rows
from registry.ground.clock import UtcNow, db_now
from registry.ground.engine import Database, retried
from registry.ground.schema import idempotency_keys as keys
from registry.records.journal import IdempotencyKey, StoredAnswer

KEPT = timedelta(hours=24)
#: a first call that takes longer than this has died
ABANDONED_AFTER = timedelta(seconds=60)
MAX_KEY = 255
#: How often a process deletes what is older than `KEPT`, which counts no more in any case.
FORGET_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Claim:
    """A key that belongs to the transaction which claimed it."""

    now: datetime
    request_id: UUID | None  #: made by a call with this key that died before its answer was kept


class Idempotency:
    """Remembers for 24 hours what a key was answered."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._forgot_at = float("-inf")  #: on this process's monotonic clock

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
        wanted = IdempotencyKey(scope=scope, key=key, fingerprint=fingerprint)
        with self._database.write() as connection:
            try:
                claim_key(connection, wanted)
            except AnsweredBeforeError as before:
                return StoredAnswer(status=before.status, body=before.body)
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

    def forget_old(self) -> None:
        """Delete keys that count no more, if this process did not do so lately."""
        if self.may_forget():
            self._forgot_at = time.monotonic()
            self._delete_old()

    def may_forget(self) -> bool:
        """Tell whether it is time to, without asking the database."""
        return time.monotonic() - self._forgot_at >= FORGET_EVERY_S

    @retried
    def _delete_old(self) -> None:
        with self._database.write() as connection:
            now = db_now(connection)
            connection.execute(delete(keys).where(keys.c.first_used_at < now - KEPT))


def claim_key(connection: Connection, key: IdempotencyKey) -> Claim:
    """Make a key this transaction's: whoever else wants it waits until it is over.

    Raises
    ------
    AnsweredBeforeError
        If a call with it was answered: with that answer.
    IdempotencyConflictError
        If it was used for another body.
    IdempotencyInProgressError
        If a call that takes several transactions began and has not ended. One
        that began more than 60 s ago is taken over.
    """
    if not _is_key(key.key):
        raise InvalidError("Idempotency-Key", key.key, f"1 to {MAX_KEY} printable characters")
    fresh = {"scope": key.scope, "key": key.key, "fingerprint": key.fingerprint}
    while True:
        begun = connection.scalar(_claim(connection.dialect.name), fresh)
        if begun is not None:
            return Claim(begun, None)
        row = connection.execute(_AGAIN, fresh).one_or_none()
        if row is not None:  # and not given back just now
            return _claim_again(connection, key, row)


def _claim_again(connection: Connection, key: IdempotencyKey, row: Row[Any]) -> Claim:
    """Claim a key that is there."""
    taken: dict[str, Any] = {"started_at": row.now}
    if row.now - row.first_used_at > KEPT:
        taken |= {"first_used_at": row.now, "fingerprint": key.fingerprint}
        taken |= {"request_id": None, "status": None, "body": None}
    elif row.fingerprint != key.fingerprint:
        raise IdempotencyConflictError(key.key)
    elif row.status is not None:
        raise AnsweredBeforeError(key.key, row.status, row.body)
    elif row.request_id is not None:
        return Claim(row.now, row.request_id)
    elif row.now - row.started_at < ABANDONED_AFTER:
        raise IdempotencyInProgressError(key.key, row.now - row.started_at)
    connection.execute(update(keys).where(*_is(key.scope, key.key)).values(**taken))
    return Claim(row.now, None)


def claim_keys(
    connection: Connection, wanted: Iterable[IdempotencyKey], now: datetime
) -> Sequence[IdempotencyKey]:
    """Claim those of several keys that are new, and return them; a key twice is claimed once."""
    found: dict[tuple[str, str], IdempotencyKey] = {}
    for key in wanted:
        if _is_key(key.key):
            found.setdefault((key.scope, key.key), key)
    rows = [
        {
            "scope": key.scope,
            "key": key.key,
            "fingerprint": key.fingerprint,
            "started_at": now,
            "first_used_at": now,
        }
        for _, key in sorted(found.items())  # whoever claims several meets others in one order
    ]
    fresh = insert_returning(connection, keys, rows, ["scope", "key"], unless_there=True)
    return [found[row.scope, row.key] for row in fresh]


def give_back(connection: Connection, unused: Collection[IdempotencyKey]) -> None:
    """Let go of keys that this transaction claimed and makes nothing with."""
    if unused:
        which = tuple_(keys.c.scope, keys.c.key).in_([(key.scope, key.key) for key in unused])
        connection.execute(delete(keys).where(which))


def keep_answers(
    connection: Connection, made: Sequence[tuple[IdempotencyKey, UUID, StoredAnswer | None]]
) -> None:
    """Remember what several keys of this transaction made, and how their callers are answered."""
    rows = [
        {
            "scope": key.scope,
            "key": key.key,
            "request_id": request_id,
            "status": answer.status if answer is not None else None,
            "body": answer.body if answer is not None else None,
        }
        for key, request_id, answer in made
    ]
    update_rows(connection, keys, rows, keys=("scope", "key"))


def _is_key(key: str) -> bool:
    return 1 <= len(key) <= MAX_KEY and key.isascii() and key.isprintable()


def _is(scope: str, key: str) -> tuple[ColumnElement[bool], ...]:
    return keys.c.scope == scope, keys.c.key == key


#: What every accepted request asks of the database, made once: to make it costs more than to ask.
_AGAIN: Final = (
    select(keys, UtcNow().label("now"))
    .where(keys.c.scope == bindparam("scope"), keys.c.key == bindparam("key"))
    .with_for_update()
)


@cache
def _claim(dialect: str) -> Any:
    claim = absent(dialect, keys).values(started_at=UtcNow(), first_used_at=UtcNow())
    return claim.returning(keys.c.started_at)
