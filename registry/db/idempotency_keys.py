"""Idempotency keys: a repeated call does its work once.

The transaction that does the work claims the key, and keeps there the record of what it
made, so all of it happens or nothing. Another call with the same key waits for that
transaction. What is kept is the record, not an answer: an answer depends on who reads it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Connection, Row, bindparam, delete, select, tuple_, update
from sqlalchemy.exc import DBAPIError

from registry.db.audit_context import audited_call_of
from registry.db.bulk import insert_or_skip_for, insert_returning, update_rows
from registry.db.clock import UtcNow, db_now
from registry.db.schema import idempotency_keys as keys
from registry.errors import (
    AnsweredBeforeError,
    IdempotencyConflictError,
    IdempotencyInProgressError,
    InvalidError,
)
from registry.records.journal import IdempotencyKey

T = TypeVar("T")

KEPT: Final = timedelta(hours=24)
#: How long a key without a record, which only earlier releases write, counts as in progress.
ABANDONED_AFTER: Final = timedelta(seconds=60)
MAX_KEY: Final = 255
#: Prefix of each record. Earlier releases stored answers without it.
_RECORD: Final = '{"record":'
#: Prefix of each fingerprint. Earlier releases take it for the fingerprint of another body and
#: refuse the call; otherwise they would return the record as an answer, with host names.
_MARK: Final = "record:"
_ONCE: Final = "once"
_HELD_UP: Final = "55P03"


@dataclass(slots=True)
class IdempotentCall:
    """A call with an idempotency key: the result of its next transaction is stored with the key."""

    key: IdempotencyKey
    kept: bool = False  #: the transaction under way stored a record
    over: bool = False  #: the transaction is committed

    def begin(self, connection: Connection) -> None:
        """Claim the call's idempotency key; it raises the errors of `claim_key`."""
        self.kept = False
        claim_key(connection, self.key)
        connection.execution_options(**{_ONCE: self})

    def store(self, connection: Connection, record: Any) -> None:
        """Store the call's result with its idempotency key, and the status with the audit row."""
        store_records(connection, [(self.key, record)])
        self.kept = True
        call = audited_call_of(connection)
        if call is not None:
            call.status = self.key.status

    def check_stored(self) -> None:
        """Raise if no result is stored, as a repeated call could not be answered."""
        if not self.kept:
            raise RuntimeError(
                f"{self.key.key}: nothing was kept; the store has to use `store_result`"
            )


def store_result(connection: Connection, record: T) -> T:
    """Return a transaction's result, and store it with the idempotency key of its call, if any."""
    once: IdempotentCall | None = connection.get_execution_options().get(_ONCE)
    if once is not None:
        once.store(connection, record)
    return record


def parse_stored_record(adapter: TypeAdapter[T], body: str) -> T | None:
    """Parse the record stored with an idempotency key; None for an answer of an earlier release.

    Raises
    ------
    ValueError
        If the record comes from a release with other fields.
    """
    if not body.startswith(_RECORD):
        return None
    return adapter.validate_python(json.loads(body)["record"])


def claim_key(connection: Connection, key: IdempotencyKey) -> datetime:
    """Lock an idempotency key for this transaction and return the time; others block until its end.

    Raises
    ------
    AnsweredBeforeError
        If an earlier call with the key did its work; it has the stored record.
    IdempotencyConflictError
        If the key was used for another body.
    IdempotencyInProgressError
        If the call that holds the key takes longer than the lock timeout.
    """
    if not is_idempotency_key(key.key):
        raise InvalidError("Idempotency-Key", key.key, f"1 to {MAX_KEY} printable characters")
    fresh = {"scope": key.scope, "key": key.key, "fingerprint": f"{_MARK}{key.fingerprint}"}
    try:
        while True:
            begun: datetime | None = connection.scalar(
                _claim_statement(connection.dialect.name), fresh
            )
            if begun is not None:
                return begun
            row = connection.execute(_AGAIN.with_for_update(), fresh).one_or_none()
            if row is not None:  # and not given back just now
                return _reclaim_key(connection, key, row)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _HELD_UP:
            raise
        raise IdempotencyInProgressError(key.key) from error


def check_unused(connection: Connection, key: IdempotencyKey) -> None:
    """Check an idempotency key without claiming it; it raises the errors of `claim_key`."""
    row = connection.execute(_AGAIN, {"scope": key.scope, "key": key.key}).one_or_none()
    if row is not None:
        _check_key_unused(key, row)


def delete_expired_keys(connection: Connection) -> None:
    """Delete idempotency keys that are past their lifetime."""
    connection.execute(delete(keys).where(keys.c.first_used_at < db_now(connection) - KEPT))


def _check_key_unused(key: IdempotencyKey, row: Row[Any]) -> None:
    """Raise the error of `claim_key` for an idempotency key that was used."""
    if row.now - row.first_used_at > KEPT:
        return
    if row.fingerprint.removeprefix(_MARK) != key.fingerprint:
        raise IdempotencyConflictError(key.key)
    if row.status is not None:
        raise AnsweredBeforeError(key.key, row.status, row.body)
    if row.now - row.started_at < ABANDONED_AFTER:
        raise IdempotencyInProgressError(key.key)


def _reclaim_key(connection: Connection, key: IdempotencyKey, row: Row[Any]) -> datetime:
    """Claim an existing idempotency key again that is unused or expired; return the time."""
    _check_key_unused(key, row)
    now: datetime = row.now
    taken = {"started_at": now, "first_used_at": now, "fingerprint": f"{_MARK}{key.fingerprint}"}
    taken |= {"request_id": None, "status": None, "body": None}
    connection.execute(update(keys).where(*_key_conditions(key)).values(**taken))
    return now


def claim_keys(
    connection: Connection, wanted: Iterable[IdempotencyKey], now: datetime
) -> Sequence[IdempotencyKey]:
    """Claim the idempotency keys that are unused, and return them without duplicates."""
    found: dict[tuple[str, str], IdempotencyKey] = {}
    for key in wanted:
        if is_idempotency_key(key.key):
            found.setdefault((key.scope, key.key), key)
    rows = [
        {
            "scope": key.scope,
            "key": key.key,
            "fingerprint": f"{_MARK}{key.fingerprint}",
            "started_at": now,
            "first_used_at": now,
        }
        for _, key in sorted(found.items())  # all calls lock several in one order
    ]
    fresh = insert_returning(connection, keys, rows, ["scope", "key"], unless_there=True)
    return [found[row.scope, row.key] for row in fresh]


def release_keys(connection: Connection, unused: Collection[IdempotencyKey]) -> None:
    """Delete idempotency keys that this transaction claimed without using them."""
    if unused:
        which = tuple_(keys.c.scope, keys.c.key).in_([(key.scope, key.key) for key in unused])
        connection.execute(delete(keys).where(which))


def store_records(connection: Connection, of_keys: Sequence[tuple[IdempotencyKey, Any]]) -> None:
    """Store the results of several calls with their idempotency keys."""
    rows = [
        {
            "scope": key.scope,
            "key": key.key,
            "status": key.status,
            "body": f"{_RECORD}{_adapter_of(record).dump_json(record).decode()}}}",
        }
        for key, record in of_keys
    ]
    update_rows(connection, keys, rows, keys=("scope", "key"))


def is_idempotency_key(key: str) -> bool:
    """Return whether a text is a valid idempotency key."""
    return 1 <= len(key) <= MAX_KEY and key.isascii() and key.isprintable()


def _key_conditions(key: IdempotencyKey) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that select the row of an idempotency key."""
    return keys.c.scope == key.scope, keys.c.key == key.key


#: Statements of every accepted request, cached, as building them costs more than running them.
_AGAIN: Final = select(keys, UtcNow().label("now")).where(
    keys.c.scope == bindparam("scope"), keys.c.key == bindparam("key")
)


@cache
def _claim_statement(dialect: str) -> Any:
    """Return the INSERT that claims an idempotency key unless its row exists."""
    claim = insert_or_skip_for(dialect, keys).values(started_at=UtcNow(), first_used_at=UtcNow())
    return claim.returning(keys.c.started_at)


def _adapter_of(record: Any) -> TypeAdapter[Any]:
    """Return pydantic's adapter for a result that is stored with an idempotency key."""
    kind: Any = type(record)
    return _cached_adapter(kind)


@cache
def _cached_adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
