"""Database engines, one for writing and one for reading, with safe connection options."""

from __future__ import annotations

import copy
import functools
import random
import select
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from registry.db.audit_context import (
    AuditedCall,
    begin_audited_call,
    insert_audit_row,
    mark_audit_row_committed,
)
from registry.db.db_watchdog import PATIENCE_S, DbWatchdog
from registry.errors import (
    CapacityExceededError,
    ConflictError,
    DatabaseFullError,
    InvalidError,
    RegistryUnavailableError,
)

if TYPE_CHECKING:
    from registry.db.idempotency_keys import IdempotentCall
    from registry.db.if_match import Condition

P = ParamSpec("P")
T = TypeVar("T")

BUSY_TIMEOUT_S: Final = 10
# Together no fewer than the threads of an API process.
POOL_SIZE: Final = 8
MAX_OVERFLOW: Final = 40
STATEMENT_TIMEOUT_S: Final = 60
#: The value for SSDs or memory. With PostgreSQL's default of 4, a query for few live rows among
#: many old ones reads the whole table.
RANDOM_PAGE_COST: Final = 1.1
#: A client that was stopped inside a transaction must not hold its locks for good.
IDLE_TIMEOUT_S: Final = 30
#: The client's wait for a statement. The server ends it sooner, unless its process hangs.
ANSWER_TIMEOUT_S: Final = STATEMENT_TIMEOUT_S + 10
#: TCP settings that detect a vanished peer, in seconds and milliseconds.
_KEEPALIVES: Final = {
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

#: Prefixes of the triggers' messages.
OVER_CAPACITY = "ledger: over capacity"
LEDGER = "ledger:"

#: Codes of transactions that PostgreSQL rolled back: deadlock, serialization failure.
_CLASHES: Final = frozenset({"40P01", "40001"})
_HELD_UP: Final = "55P03"
_FORBIDDEN: Final = "42501"
_DISK_FULL: Final = "53100"
_FULL_S: Final = 60.0  #: seconds for which a disk that refused a write counts as full
TRIES: Final = 6


class TransactionRolledBackError(RegistryUnavailableError):
    """The database rolled a transaction back for others; `retry_on_rollback` tries again."""


class LockTimeoutError(RegistryUnavailableError):
    """Another transaction holds a lock for longer than the lock timeout."""


def parse_database_url(database_url: str) -> URL:
    """Return a database URL with the driver that we use, or raise `InvalidError`."""
    try:
        url = make_url(database_url)
    except ArgumentError:
        raise InvalidError("database_url", "no URL", "sqlite:///… or postgresql://…") from None
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg"):
        raise InvalidError("database_url", url.drivername, "sqlite or postgresql")
    return url


def make_engine(
    database_url: str,
    *,
    read_only: bool = False,
    patient: bool = False,
    pulse: DbWatchdog | None = None,
) -> Engine:
    """Return an engine for transactions that read one snapshot, or that write.

    SQLite: a writer begins IMMEDIATE, since a read snapshot that became stale cannot be upgraded
    and fails at once, whatever the timeout. WAL lets readers go on during a write; it needs one
    machine and a local file system.

    PostgreSQL: a writer sees at each statement what is committed, and waits for the rows that it
    locks (`registry.db.locks`); a reader sees one snapshot. Statements and lock waits have
    timeouts, unless the engine is ``patient``. With a ``pulse``, calls to a server that hangs fail
    at once.
    """
    url = parse_database_url(database_url)
    if url.get_backend_name() == "postgresql":
        return _postgresql_engine(url, read_only=read_only, patient=patient, pulse=pulse)
    return _sqlite_engine(url, read_only=read_only)


def _postgresql_engine(
    url: URL, *, read_only: bool, patient: bool, pulse: DbWatchdog | None
) -> Engine:
    """Return an engine for PostgreSQL, with timeouts unless it is ``patient``."""
    from registry.db.watched_connection import watch  # noqa: PLC0415 - SQLite needs no driver of it

    seconds = {
        "lock_timeout": BUSY_TIMEOUT_S,
        "statement_timeout": STATEMENT_TIMEOUT_S,
        "idle_in_transaction_session_timeout": IDLE_TIMEOUT_S,
    }
    options = f"-c random_page_cost={RANDOM_PAGE_COST} "
    options += "" if patient else " ".join(f"-c {k}={v}s" for k, v in seconds.items())
    # What the URL says comes last, and so goes before.
    given = {
        "connect_timeout": str(PATIENCE_S),
        **_KEEPALIVES,
        "application_name": "fuga",
        **{key: value for key, value in url.query.items() if isinstance(value, str)},
    }
    given["options"] = f"{options} {given.get('options', '')}".strip()
    url = url.update_query_dict({key: value for key, value in given.items() if value})
    engine = create_engine(
        url,
        isolation_level="REPEATABLE READ" if read_only else "READ COMMITTED",
        execution_options={"postgresql_readonly": True} if read_only else {},
        pool_pre_ping=True,
        pool_size=POOL_SIZE,
        hide_parameters=True,  # errors are logged, and user-data is among them
        max_overflow=MAX_OVERFLOW,
    )
    # A thousand rows to a statement, not one: the ledger's triggers run once for each.
    engine.dialect.use_insertmanyvalues_wo_returning = True
    _ping_stale_connections(engine)
    watch(engine, pulse, max_wait_s=float("inf") if patient else ANSWER_TIMEOUT_S)
    return engine


def _find_watchdog(database_url: str) -> DbWatchdog | None:
    """Return the watchdog of a PostgreSQL server; None for SQLite."""
    url = parse_database_url(database_url)
    if url.get_backend_name() != "postgresql":
        return None
    from registry.db.watched_connection import watchdog_of  # noqa: PLC0415 - as above

    return watchdog_of(url)


def _ping_stale_connections(engine: Engine) -> None:
    """Ping a pooled connection only if its socket has data or was closed.

    A server that ends sends a message or closes its end, which the socket shows without a round
    trip. A query would not detect a cut connection sooner.
    """
    do_ping = engine.dialect.do_ping

    def ping(dbapi_connection: Any) -> bool:
        waiting = select.poll()
        waiting.register(dbapi_connection.pgconn.socket, select.POLLIN)
        return do_ping(dbapi_connection) if waiting.poll(0) else True

    engine.dialect.do_ping = ping  # type: ignore[method-assign]  # there is no setting for it


def _autocommit_engine(engine: Engine) -> Engine:
    """Return an engine without transactions for single SELECTs; for SQLite the same engine."""
    if engine.dialect.name == "sqlite":  # where a transaction that reads costs nothing
        return engine
    return engine.execution_options(isolation_level="AUTOCOMMIT")


def _sqlite_engine(url: URL, *, read_only: bool) -> Engine:
    """Return an engine for an SQLite file, with pragmas for concurrent processes."""
    engine = create_engine(
        url,
        connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False},
        pool_size=POOL_SIZE,
        hide_parameters=True,  # errors are logged, and user-data is among them
        max_overflow=MAX_OVERFLOW,
    )

    @event.listens_for(engine, "connect")
    def _set_pragmas(dbapi_connection: Any, _: Any) -> None:
        dbapi_connection.isolation_level = None  # we issue BEGIN ourselves
        for pragma in (
            f"busy_timeout = {BUSY_TIMEOUT_S * 1000}",
            "journal_mode = WAL",
            "synchronous = FULL",  # NORMAL would lose what was answered, if power fails
            "foreign_keys = ON",
            "trusted_schema = OFF",  # nothing in the file may call what only we should
            f"query_only = {'ON' if read_only else 'OFF'}",
        ):
            dbapi_connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def _begin_transaction(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


class _LastDiskFull:
    """The time, by `time.monotonic`, at which the database's disk was last full."""

    at: float | None = None

    @contextmanager
    def record_refusal(self) -> Iterator[None]:
        """Record the time if a write in the block finds the database's disk full."""
        try:
            yield
        except DatabaseFullError:
            self.at = time.monotonic()
            raise


class Database:
    """The two engines of a database. Each method of a repository is one transaction."""

    def __init__(self, database_url: str) -> None:
        self._pulse = _find_watchdog(database_url)
        self._write = make_engine(database_url, pulse=self._pulse)
        self._read = make_engine(database_url, read_only=True, pulse=self._pulse)
        self._read_autocommit = _autocommit_engine(self._read)
        self._call: AuditedCall | None = None
        self._condition: Condition | None = None
        self._once: IdempotentCall | None = None
        self._inside: Connection | None = None
        self._refusal = _LastDiskFull()

    @property
    def is_full(self) -> bool:
        """Whether the disk refused a write of this process within the last minute."""
        at = self._refusal.at
        return at is not None and time.monotonic() - at < _FULL_S

    @property
    def url(self) -> str:
        """The URL by which another process opens the database; it may contain a password."""
        return self._write.url.render_as_string(hide_password=False)

    def for_call(
        self,
        call: AuditedCall | None,
        condition: Condition | None = None,
        once: IdempotentCall | None = None,
    ) -> Database:
        """Return the database for one call: with its audit entry, precondition and key."""
        found = copy.copy(self)
        found._call, found._condition, found._once = call, condition, once
        return found

    def with_connection(self, connection: Connection) -> Database:
        """Return the database for reads within the transaction of this connection."""
        found = self.for_call(None)
        found._inside = connection
        return found

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a write transaction, which is committed at its end.

        The idempotency key is claimed first, then the precondition is checked; the audit row is
        written last.
        """
        call, condition = self._call, self._condition
        once = self._once if self._once is not None and not self._once.over else None
        with (
            self._refusal.record_refusal(),
            self._translate_errors(),
            self._write.begin() as connection,
        ):
            if call is not None:
                begin_audited_call(connection, call)
            if once is not None:
                once.begin(connection)
            if condition is not None and not condition.held:
                condition.check_locked(connection)
            yield connection
            if once is not None:
                once.check_stored()
            if call is not None:
                insert_audit_row(connection, call)
        if once is not None:
            once.over = True
        if condition is not None:
            condition.held = True
        if call is not None:
            mark_audit_row_committed(call)

    @contextmanager
    def write_and_roll_back(self) -> Iterator[Connection]:
        """Open a write transaction that is rolled back at its end."""
        with self._translate_errors(), self._write.connect() as connection:
            if self._call is not None:
                begin_audited_call(connection, self._call)
            yield connection
            connection.rollback()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a read-only transaction that sees one snapshot."""
        if self._inside is not None:
            yield self._inside
            return
        with self._translate_errors(), self._read.begin() as connection:
            yield connection

    @contextmanager
    def read_statement(self) -> Iterator[Connection]:
        """Yield an autocommit connection for a single SELECT, which saves two round trips."""
        with self._translate_errors(), self._read_autocommit.connect() as connection:
            yield connection

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate database errors in the block; fail at once if the server is known to hang."""
        if self._pulse is not None:
            self._pulse.check()
        with translate_unavailable():
            yield

    def close(self) -> None:
        """Close every connection of this process to the database."""
        if self._pulse is not None:
            self._pulse.close()
        self._write.dispose()
        self._read.dispose()


class Repository:
    """Reads and writes one subject of a database; each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database


def retry_on_rollback(method: Callable[P, T]) -> Callable[P, T]:
    """Repeat a method if the database rolled its transaction back because of a conflict.

    The method must be one transaction without other effects, as a transaction that was rolled back
    has no effect.
    """

    @functools.wraps(method)
    def call_again(*args: P.args, **kwargs: P.kwargs) -> T:
        for tried in range(1, TRIES):
            try:
                return method(*args, **kwargs)
            except TransactionRolledBackError:
                # A random pause, so that the clash does not repeat.
                time.sleep(random.uniform(0, 0.01 * 2**tried))  # noqa: S311
        return method(*args, **kwargs)

    return call_again


@contextmanager
def translate_unavailable() -> Iterator[None]:
    """Translate errors of a database that is unreachable, busy or full to errors of ours."""
    try:
        yield
    except IntegrityError:
        raise  # the stores translate it
    except DataError as error:
        found = str(error.orig).splitlines()[0]
        raise InvalidError("a value", found, "what the database can store") from error
    except DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None)
        if isinstance(error, ProgrammingError) and state != _FORBIDDEN:
            raise  # a mistake of ours
        message = str(error.orig).strip()
        if state == _HELD_UP:
            raise LockTimeoutError(message) from error
        if state == _DISK_FULL or _is_disk_full(error.orig):
            raise DatabaseFullError(message) from error
        kind = TransactionRolledBackError if state in _CLASHES else RegistryUnavailableError
        raise kind(message) from error
    except PoolTimeoutError as error:
        raise RegistryUnavailableError(str(error)) from error


def _is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error of SQLite says that the disk is full."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, sqlite3.Error) and code == sqlite3.SQLITE_FULL


@contextmanager
def translate_ledger_refusals() -> Iterator[None]:
    """Translate errors of the ledger's triggers to errors of the register center."""
    try:
        yield
    except DBAPIError as error:
        message = str(error.orig)
        if OVER_CAPACITY in message:
            raise CapacityExceededError(message) from error
        if LEDGER in message:
            raise ConflictError(message) from error
        raise
