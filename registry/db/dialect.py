"""Differences between SQLite and PostgreSQL."""

from __future__ import annotations

from sqlalchemy import Connection


def has_one_writer(connection: Connection) -> bool:
    """Return whether the database has one writer at a time, as SQLite has."""
    return connection.dialect.name == "sqlite"  # whose writers begin IMMEDIATE
