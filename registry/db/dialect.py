"""Differences between SQLite and PostgreSQL."""

from __future__ import annotations

from sqlalchemy import Connection


def has_one_writer(connection: Connection) -> bool:
    """Return whether the database has one writer at a time, as SQLite has."""
    return connection.dialect.name == "sqlite"  # whose writers begin IMMEDIATE


def turn_off_jit(connection: Connection) -> None:
    """Let PostgreSQL not compile the queries of this transaction.

    Its compiler takes seconds for a query of many columns, at each execution, and the query then
    hardly takes less.
    """
    if not has_one_writer(connection):
        connection.exec_driver_sql("SET LOCAL jit = off")
