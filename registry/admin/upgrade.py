"""Upgrade a database's schema to this code's revision, or report that it is outdated."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from alembic import command
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine, inspect, select, text

from registry.admin.known_schema import strangers_in
from registry.admin.revisions import (
    FIRST_BEFORE_MERGE,
    LAST_BEFORE_MERGE,
    alembic_config,
    first_revision,
    head_revision,
    known_revisions,
)
from registry.db.engine import HeldUpError, database_at, make_engine, translate_unavailable
from registry.db.locks import take_turns
from registry.db.online_indexes import build_beforehand
from registry.db.private_files import private_database, private_folder
from registry.db.schema import schema_serves
from registry.errors import SchemaOutdatedError, StrangersInSchemaError

#: How long an upgrade waits for a table, below what others wait; and how often it tries.
_LOCK_TIMEOUT_S: Final = 5
_PAUSE_S: Final = 5.0
_TRIES: Final = 60


def check_schema(connection: Connection) -> bool:
    """Raise `SchemaOutdatedError` unless this code can use the schema.

    Returns whether the schema is current.

    An older revision is outdated. An unknown revision is newer: revisions
    only add, as a rule, and those that remove something record in the database which
    code the schema still serves.
    """
    found = MigrationContext.configure(connection).get_current_revision()
    head = head_revision()
    if found == head:
        return True
    if found is None or found in known_revisions():
        raise SchemaOutdatedError(found, head)
    if found < first_revision():
        pass_first = LAST_BEFORE_MERGE if found >= FIRST_BEFORE_MERGE else None
        raise SchemaOutdatedError(found, head, first=first_revision(), pass_first=pass_first)
    since = _code_since(connection)
    if since not in known_revisions() and not (since and since < first_revision()):
        raise SchemaOutdatedError(found, head, code_since=since or found)
    return False


def _code_since(connection: Connection) -> str | None:
    if not inspect(connection).has_table(schema_serves.name):
        return None
    return connection.scalars(select(schema_serves.c.code_since)).one_or_none()


def upgrade(database_url: str) -> str:
    """Bring the database to head, creating SQLite's file; return the revision.

    All revisions run in one transaction, on PostgreSQL as well: a failed upgrade
    leaves the database as it was, but for indexes of large tables, which are built
    before, while processes write. Two at once take turns. While a backup or another transaction
    reads a table for longer than a few seconds, it lets go and tries again, for ten minutes.
    A database that is newer than this code, and serves it, is left as it is.

    Raises
    ------
    StrangersInSchemaError
        If SQLite's file holds what our migrations did not make.
    HeldUpError
        If a table was never free.
    """
    url = database_at(database_url)
    if url.get_backend_name() == "sqlite" and url.database and url.database != ":memory:":
        file = Path(url.database)
        if not file.parent.exists():
            private_folder(file.parent)
        private_database(file)
    engine = make_engine(database_url, patient=True)
    try:
        with translate_unavailable():
            if _is_older(engine):
                build_beforehand(engine)
        for left in reversed(range(_TRIES)):
            try:
                return _upgrade_at_once(engine)
            except HeldUpError:
                if not left:
                    raise
                time.sleep(_PAUSE_S)
    finally:
        engine.dispose()
    return head_revision()


def _upgrade_at_once(engine: Engine) -> str:
    """Run all revisions; raise `HeldUpError` where others hold a table for seconds.

    Who waits for a table keeps all others from it: behind a backup they would fail.
    """
    with translate_unavailable(), engine.begin() as connection:
        take_turns(connection, "upgrade")
        if connection.dialect.name != "sqlite":
            connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT_S}s'"))
        found = MigrationContext.configure(connection).get_current_revision()
        if found is not None and found not in known_revisions():
            check_schema(connection)
            return found
        if strangers := strangers_in(connection):
            raise StrangersInSchemaError(strangers)
        command.upgrade(alembic_config(connection), "head")
    return head_revision()


def _is_older(engine: Engine) -> bool:
    """Return whether a server's database is there, of a revision before the last."""
    if engine.dialect.name == "sqlite":
        return False
    with engine.connect() as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    return found in known_revisions() and found != head_revision()
