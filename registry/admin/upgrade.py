"""Upgrade a database's schema to this code's revision, or report that it is outdated."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from alembic import command
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine, inspect, select, text

from registry.admin.known_schema import foreign_objects_in
from registry.admin.revisions import (
    FIRST_BEFORE_MERGE,
    LAST_BEFORE_MERGE,
    alembic_config,
    first_revision,
    head_revision,
    known_revisions,
)
from registry.db.engine import (
    LockTimeoutError,
    make_engine,
    parse_database_url,
    translate_unavailable,
)
from registry.db.locks import take_advisory_lock
from registry.db.online_indexes import build_missing_indexes
from registry.db.private_files import private_database, private_folder
from registry.db.schema import schema_serves
from registry.errors import ForeignSchemaObjectsError, SchemaOutdatedError

#: Time that an upgrade waits for a table, below what others wait; the pause between tries; and the
#: number of tries.
_LOCK_TIMEOUT_S: Final = 5
_PAUSE_S: Final = 5.0
_TRIES: Final = 60


def check_schema(connection: Connection) -> bool:
    """Raise `SchemaOutdatedError` unless this code can use the database's schema.

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
    since = _minimum_release(connection)
    if since not in known_revisions() and not (since and since < first_revision()):
        raise SchemaOutdatedError(found, head, code_since=since or found)
    return False


def _minimum_release(connection: Connection) -> str | None:
    """Return the oldest release that can use a newer schema, as the database states it, or None."""
    if not inspect(connection).has_table(schema_serves.name):
        return None
    return connection.scalars(select(schema_serves.c.code_since)).one_or_none()


def upgrade(database_url: str) -> str:
    """Upgrade the schema to the newest revision and return it; create SQLite's file if missing.

    All revisions run in one transaction, on PostgreSQL too: a failed upgrade leaves the database
    as it was. Indexes of large tables are the exception; they are built before, while processes
    write. Simultaneous upgrades run one after the other. If another transaction, such as a backup,
    reads a table for longer than a few seconds, the upgrade rolls back and tries again, for ten
    minutes. A newer database that this code can use is left as it is.

    Raises
    ------
    ForeignSchemaObjectsError
        If SQLite's file holds what our migrations did not make.
    LockTimeoutError
        If a table was never free.
    """
    url = parse_database_url(database_url)
    if url.get_backend_name() == "sqlite" and url.database and url.database != ":memory:":
        file = Path(url.database)
        if not file.parent.exists():
            private_folder(file.parent)
        private_database(file)
    engine = make_engine(database_url, patient=True)
    try:
        with translate_unavailable():
            if _is_older(engine):
                build_missing_indexes(engine)
        for left in reversed(range(_TRIES)):
            try:
                return _run_revisions(engine)
            except LockTimeoutError:
                if not left:
                    raise
                time.sleep(_PAUSE_S)
    finally:
        engine.dispose()
    return head_revision()


def _run_revisions(engine: Engine) -> str:
    """Run all migrations; raise `LockTimeoutError` where others hold a table for seconds.

    The wait is short because a transaction that waits for a table blocks all others from it.
    """
    with translate_unavailable(), engine.begin() as connection:
        take_advisory_lock(connection, "upgrade")
        if connection.dialect.name != "sqlite":
            connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT_S}s'"))
        found = MigrationContext.configure(connection).get_current_revision()
        if found is not None and found not in known_revisions():
            check_schema(connection)
            return found
        if strangers := foreign_objects_in(connection):
            raise ForeignSchemaObjectsError(strangers)
        command.upgrade(alembic_config(connection), "head")
    return head_revision()


def _is_older(engine: Engine) -> bool:
    """Return whether a PostgreSQL database has a known schema revision before the newest."""
    if engine.dialect.name == "sqlite":
        return False
    with engine.connect() as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    return found in known_revisions() and found != head_revision()
