"""What the two databases do differently."""

from __future__ import annotations

from sqlalchemy import Connection


def has_one_writer(connection: Connection) -> bool:
    """Return whether every other writer waits until this transaction is over."""
    return connection.dialect.name == "sqlite"  # whose writers begin IMMEDIATE
