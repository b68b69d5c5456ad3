"""Idempotency keys: a call that is repeated does its work once.

The transaction that does the work claims the key, and keeps there the record of what it
made: all of it happens, or nothing. Another call with the same key waits for that
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

from registry.db.audit_context import call_of
from registry.db.bulk import insert_absent_for, insert_returning, update_rows
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
#: Only a process of an earlier release leaves a key without a record, and only for so long.
ABANDONED_AFTER: Final = timedelta(seconds=60)
MAX_KEY: Final = 255
#: Before each record. Earlier releases kept answers, in which this is not.
_RECORD: Final = '{"record":'
#: Before each fingerprint. Processes of earlier releases take it for another body's, and refuse
#: the call: they would show the record as if it were their answer, with names of hosts.
_MARK: Final = "record:"
_ONCE: Final = "once"
_HELD_UP: Final = "55P03"


@dataclass(slots=True)
class IdempotentCall:
    """Lets a call do its work once: what its next transaction makes is kept with its key."""

    key: IdempotencyKey
    kept: bool = False  #: by the transaction under way
    over: bool = False  #: that transaction is committed

    def begin(self, connection: Connection) -> None:
        """Claim the key; see `claim_key` for what it raises."""
        self.kept = False
        claim_key(connection, self.key)
        connection.execution_options(**{_ONCE: self})

    def keep(self, connection: Connection, record: Any) -> None:
        """Keep a record with the key, and the status of its answer with the audit's row."""
        keep_records(connection, [(self.key, record)])
        self.kept = True
        call = call_of(connection)
        if call is not None:
            call.status = self.key.status

    def check_kept(self) -> None:
        """Refuse to commit what a repeated call could not be answered with."""
        if not self.kept:
            raise RuntimeError(
                f"{self.key.key}: nothing was kept; the store has to use `keep_result`"
            )


def keep_result(connection: Connection, record: T) -> T:
    """Return what a transaction made; kept with the key of its call, if that has one."""
    once: IdempotentCall | None = connection.get_execution_options().get(_ONCE)
    if once is not None:
        once.keep(connection, record)
    return record


def kept_record(adapter: TypeAdapter[T], body: str) -> T | None:
    """Read what is kept with a key; None: it is the answer of an earlier release.

    Raises
    ------
    ValueError
        If the record is of a release whose records have other fields.
    """
    if not body.startswith(_RECORD):
        return None
    return adapter.validate_python(json.loads(body)["record"])


def claim_key(connection: Connection, key: IdempotencyKey) -> datetime:
    """Make a key this transaction's, and return the time: others wait until it is over.

    Raises
    ------
    AnsweredBeforeError
        If a call with it did its work: with the record of that.
    IdempotencyConflictError
        If it was used for another body.
    IdempotencyInProgressError
        If the call that has it takes longer than a lock is waited for.
    """
    if not is_key(key.key):
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
                return _claim_again(connection, key, row)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _HELD_UP:
            raise
        raise IdempotencyInProgressError(key.key) from error


def check_unused(connection: Connection, key: IdempotencyKey) -> None:
    """Look up a key without claiming it; see `claim_key` for what it raises."""
    row = connection.execute(_AGAIN, {"scope": key.scope, "key": key.key}).one_or_none()
    if row is not None:
        _check_unused(key, row)


def delete_old(connection: Connection) -> None:
    """Delete the keys that count no more."""
    connection.execute(delete(keys).where(keys.c.first_used_at < db_now(connection) - KEPT))


def _check_unused(key: IdempotencyKey, row: Row[Any]) -> None:
    """Raise what `claim_key` raises if a key that is there was used for something."""
    if row.now - row.first_used_at > KEPT:
        return
    if row.fingerprint.removeprefix(_MARK) != key.fingerprint:
        raise IdempotencyConflictError(key.key)
    if row.status is not None:
        raise AnsweredBeforeError(key.key, row.status, row.body)
    if row.now - row.started_at < ABANDONED_AFTER:
        raise IdempotencyInProgressError(key.key)


def _claim_again(connection: Connection, key: IdempotencyKey, row: Row[Any]) -> datetime:
    _check_unused(key, row)
    now: datetime = row.now
    taken = {"started_at": now, "first_used_at": now, "fingerprint": f"{_MARK}{key.fingerprint}"}
    taken |= {"request_id": None, "status": None, "body": None}
    connection.execute(update(keys).where(*_is_row_of(key)).values(**taken))
    return now


def claim_keys(
    connection: Connection, wanted: Iterable[IdempotencyKey], now: datetime
) -> Sequence[IdempotencyKey]:
    """Claim those of several keys that are new, and return them; a key twice is claimed once."""
    found: dict[tuple[str, str], IdempotencyKey] = {}
    for key in wanted:
        if is_key(key.key):
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
    """Let go of keys that this transaction claimed and makes nothing with."""
    if unused:
        which = tuple_(keys.c.scope, keys.c.key).in_([(key.scope, key.key) for key in unused])
        connection.execute(delete(keys).where(which))


def keep_records(connection: Connection, of_keys: Sequence[tuple[IdempotencyKey, Any]]) -> None:
    """Keep what was made with several keys of this transaction."""
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


def is_key(key: str) -> bool:
    """Return whether this may be a key."""
    return 1 <= len(key) <= MAX_KEY and key.isascii() and key.isprintable()


def _is_row_of(key: IdempotencyKey) -> tuple[ColumnElement[bool], ...]:
    return keys.c.scope == key.scope, keys.c.key == key.key


#: What every accepted request asks of the database, made once: to make it costs more than to ask.
_AGAIN: Final = select(keys, UtcNow().label("now")).where(
    keys.c.scope == bindparam("scope"), keys.c.key == bindparam("key")
)


@cache
def _claim_statement(dialect: str) -> Any:
    claim = insert_absent_for(dialect, keys).values(started_at=UtcNow(), first_used_at=UtcNow())
    return claim.returning(keys.c.started_at)


def _adapter_of(record: Any) -> TypeAdapter[Any]:
    kind: Any = type(record)
    return _adapter(kind)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
