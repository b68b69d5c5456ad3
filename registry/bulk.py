"""Statements over many rows, and inserts that may find their row there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

T = TypeVar("T")
#: well below SQLite's 32,766 and PostgreSQL's 65,535
PARAMETERS: Final = 2_000


def chunks(values: Sequence[T], size: int = PARAMETERS) -> Iterator[Sequence[T]]:
    """Yield the values in runs of at most ``size``."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def insert_if_absent(connection: Connection, table: Table, **values: Any) -> bool:
    """Insert a row unless its key is there, also of a transaction just over; tell whether.

    An insert that fails would end the transaction on PostgreSQL.
    """
    make = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    statement: Any = make(table).values(**values).on_conflict_do_nothing()
    counted = statement.execution_options(preserve_rowcount=True)
    return bool(connection.execute(counted).rowcount)
