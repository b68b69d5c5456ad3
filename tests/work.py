"""How much work a database does for a transaction, told by the database, not by a clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, event

#: Rows that our tables gave to scans, wanted or not, of this transaction and of some before.
_READ = """
    SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)
    FROM pg_stat_xact_user_tables
"""
_STEP = 100


@dataclass
class Work:
    """What was done meanwhile: comparable within one database only."""

    units: int = 0  #: rows read on PostgreSQL, instructions of its machine on SQLite
    transactions: int = 0
    statements: list[str] = field(default_factory=list)


@contextmanager
def work() -> Iterator[Work]:
    """Count what every transaction does that begins and is committed here."""
    done = Work()

    def begin(connection: Connection) -> None:
        done.transactions += 1
        if connection.dialect.name == "sqlite":
            _driver(connection).set_progress_handler(step, _STEP)
        else:
            done.units -= _rows_read(connection)

    def step() -> int:
        done.units += _STEP
        return 0

    def commit(connection: Connection) -> None:
        if connection.dialect.name == "sqlite":
            _driver(connection).set_progress_handler(None, 0)
        else:
            done.units += _rows_read(connection)

    def execute(*given: Any) -> None:
        done.statements.append(given[2])

    listeners = (("begin", begin), ("commit", commit), ("before_cursor_execute", execute))
    for name, listener in listeners:
        event.listen(Engine, name, listener)
    try:
        yield done
    finally:
        for name, listener in listeners:
            event.remove(Engine, name, listener)


def _driver(connection: Connection) -> Any:
    return connection.connection.dbapi_connection


def _rows_read(connection: Connection) -> int:
    with _driver(connection).cursor() as cursor:
        return int(cursor.execute(_READ).fetchone()[0])
